INSERT INTO {s}.blob_pieces (blob, place, bytes) VALUES ($1::bigint, $2::int, $3::bytea) ON CONFLICT DO NOTHING
