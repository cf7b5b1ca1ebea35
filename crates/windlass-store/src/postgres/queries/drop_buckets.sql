DELETE FROM {s}.buckets WHERE ref = ANY ($1::bytea[]) OR full_at < $2::bigint
