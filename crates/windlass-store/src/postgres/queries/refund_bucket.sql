-- Not while a claim has the key to itself, and only if the bucket is still the one that was read.
UPDATE {s}.buckets SET bucket = $4::bytea, full_at = $5::bigint
FROM (SELECT pg_advisory_xact_lock($1::bigint)) AS held WHERE ref = $2::bytea AND bucket = $3::bytea RETURNING ref
