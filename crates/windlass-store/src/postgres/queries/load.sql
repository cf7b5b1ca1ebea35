SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body FROM {s}.jobs WHERE id = ANY ($1::bigint[])
UNION ALL
SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body FROM {s}.jobs_done WHERE id = ANY ($1::bigint[])
