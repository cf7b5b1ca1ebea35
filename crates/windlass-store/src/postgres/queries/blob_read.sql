SELECT bytes FROM {s}.blob_pieces WHERE blob = $1::bigint AND place = $2::int
