DELETE FROM {s}.blobs WHERE id = $1::bigint AND NOT is_whole
