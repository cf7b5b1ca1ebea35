DELETE FROM {s}.buckets WHERE ref = ANY ($1::bytea[])
