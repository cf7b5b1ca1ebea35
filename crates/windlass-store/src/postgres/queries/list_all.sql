(SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body, 0 AS part
FROM {s}.jobs
WHERE id < $1::bigint AND ($2::smallint[] IS NULL OR state = ANY ($2::smallint[]))
  AND ($3::int[] IS NULL OR lane = ANY ($3::int[]))
  AND ($4::bytea IS NULL OR position($4::bytea IN payload) > 0)
ORDER BY id DESC
LIMIT $5::bigint)
UNION ALL
(SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body, 1 AS part
FROM {s}.jobs_done
WHERE id < $1::bigint AND ($6::smallint[] IS NULL OR state = ANY ($6::smallint[]))
  AND ($3::int[] IS NULL OR lane = ANY ($3::int[]))
  AND ($4::bytea IS NULL OR position($4::bytea IN payload) > 0)
ORDER BY id DESC
LIMIT $5::bigint)
