SELECT tenant, sha1, sha256, bytes, stored_at FROM {s}.blobs WHERE is_whole AND ($1::text IS NULL OR tenant = $1::text)
