DELETE FROM {s}.blobs
WHERE tenant = $1::text AND sha1 = $2::bytea AND sha256 = $3::bytea AND is_whole AND stored_at <= $4::bigint
RETURNING id
