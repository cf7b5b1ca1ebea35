-- Unless the tenant has one with this SHA-1 already.
UPDATE {s}.blobs SET sha1 = $2::bytea, sha256 = $3::bytea, bytes = $4::bigint, stored_at = $5::bigint, is_whole = true
WHERE id = $1::bigint
  AND NOT EXISTS (SELECT FROM {s}.blobs AS other
                  WHERE other.tenant = $6::text AND other.sha1 = $2::bytea AND other.is_whole AND other.id <> $1::bigint)
RETURNING id
