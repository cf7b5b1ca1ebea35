UPDATE {s}.blobs SET stored_at = CASE WHEN sha256 = $3::bytea THEN $4::bigint ELSE stored_at END
WHERE tenant = $1::text AND sha1 = $2::bytea AND is_whole
RETURNING sha256
