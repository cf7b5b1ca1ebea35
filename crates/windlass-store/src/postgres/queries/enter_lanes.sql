INSERT INTO {s}.lanes (tenant, queue, name, priority, limit_keys)
SELECT DISTINCT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::bytea[])
ON CONFLICT (tenant, queue, name, priority, sha256(limit_keys)) DO UPDATE SET seen_at = now()
RETURNING id, tenant, queue, name, priority, limit_keys
