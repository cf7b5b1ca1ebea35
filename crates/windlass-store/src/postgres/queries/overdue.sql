(SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body, at AS deadline
 FROM {s}.jobs WHERE state = 1 AND at <= $1::bigint ORDER BY at, id LIMIT $2::bigint)
UNION ALL
(SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body, at AS deadline
 FROM {s}.jobs WHERE state = 3 AND at > 0 AND at <= $1::bigint ORDER BY at, id LIMIT $2::bigint)
UNION ALL
(SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body, deadline
 FROM {s}.jobs_done WHERE deadline <= $1::bigint ORDER BY deadline, id LIMIT $2::bigint)
ORDER BY deadline, id
LIMIT $2::bigint
