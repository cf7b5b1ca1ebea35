-- As refund_bucket: with what returns it is full, and need not be remembered.
DELETE FROM {s}.buckets USING (SELECT pg_advisory_xact_lock($1::bigint)) AS held
WHERE ref = $2::bytea AND bucket = $3::bytea RETURNING ref
