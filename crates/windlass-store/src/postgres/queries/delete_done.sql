DELETE FROM {s}.jobs_done WHERE id = ANY ($1::bigint[])
