SELECT id, sha1, sha256, bytes, stored_at FROM {s}.blobs
WHERE tenant = $1::text AND is_whole AND (sha1 = $2::bytea OR sha256 = $2::bytea)
