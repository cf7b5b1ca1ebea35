INSERT INTO {s}.buckets (ref, bucket, full_at) SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[])
ON CONFLICT (ref) DO UPDATE SET bucket = excluded.bucket, full_at = excluded.full_at
