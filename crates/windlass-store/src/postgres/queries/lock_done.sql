SELECT id, version, lane FROM {s}.jobs_done WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE
