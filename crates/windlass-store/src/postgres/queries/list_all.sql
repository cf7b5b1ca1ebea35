(SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body, FALSE AS is_done
FROM {s}.jobs
WHERE id < $1::bigint AND ($2::smallint[] IS NULL OR state = ANY ($2::smallint[]))
  AND (NOT $7::bool OR state <> 0 OR substring(moves FROM 8 FOR 8) <> '\x0000000000000000'::bytea)
  AND ($3::int[] IS NULL OR lane = ANY ($3::int[]))
  AND ($4::bytea IS NULL OR position($4::bytea IN payload) > 0)
ORDER BY id DESC
LIMIT $5::bigint)
UNION ALL
(SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body, TRUE AS is_done
FROM {s}.jobs_done
WHERE id < $1::bigint AND ($6::smallint[] IS NULL OR state = ANY ($6::smallint[]))
  AND ($3::int[] IS NULL OR lane = ANY ($3::int[]))
  AND ($4::bytea IS NULL OR position($4::bytea IN payload) > 0)
ORDER BY id DESC
LIMIT $5::bigint)
