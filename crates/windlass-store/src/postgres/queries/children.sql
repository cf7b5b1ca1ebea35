SELECT id FROM {s}.jobs WHERE parent = $1::bigint UNION ALL SELECT id FROM {s}.jobs_done WHERE parent = $1::bigint ORDER BY id
