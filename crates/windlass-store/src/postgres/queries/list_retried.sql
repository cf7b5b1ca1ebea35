-- Of the ready jobs, only those with an attempt behind them.
-- The rows of each part end with the one that reaches the bytes of a page.
-- Lengths of values that are stored aside are known without reading them.
SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body, 0 AS part
FROM (
  SELECT *, sum(octet_length(payload) + coalesce(octet_length(body), 0)) OVER (ORDER BY id DESC) AS bytes
  FROM (
    SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body
    FROM {s}.jobs
    WHERE id < $1::bigint AND state = 0 AND substring(moves FROM 8 FOR 8) <> '\x0000000000000000'::bytea
      AND ($3::int[] IS NULL OR lane = ANY ($3::int[]))
      AND ($4::bytea IS NULL OR position($4::bytea IN payload) > 0)
    ORDER BY id DESC
    LIMIT $5::bigint
  ) AS found
) AS measured
WHERE bytes - octet_length(payload) - coalesce(octet_length(body), 0) < $7::bigint
UNION ALL
SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body, 1 AS part
FROM (
  SELECT *, sum(octet_length(payload) + coalesce(octet_length(body), 0)) OVER (ORDER BY id DESC) AS bytes
  FROM (
    SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body
    FROM {s}.jobs
    WHERE $2::smallint[] IS NOT NULL AND id < $1::bigint AND state = ANY ($2::smallint[])
      AND ($3::int[] IS NULL OR lane = ANY ($3::int[]))
      AND ($4::bytea IS NULL OR position($4::bytea IN payload) > 0)
    ORDER BY id DESC
    LIMIT $5::bigint
  ) AS found
) AS measured
WHERE bytes - octet_length(payload) - coalesce(octet_length(body), 0) < $7::bigint
UNION ALL
SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body, 2 AS part
FROM (
  SELECT *, sum(octet_length(payload) + coalesce(octet_length(body), 0)) OVER (ORDER BY id DESC) AS bytes
  FROM (
    SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body
    FROM {s}.jobs_done
    WHERE $6::smallint[] IS NOT NULL AND id < $1::bigint AND state = ANY ($6::smallint[])
      AND ($3::int[] IS NULL OR lane = ANY ($3::int[]))
      AND ($4::bytea IS NULL OR position($4::bytea IN payload) > 0)
    ORDER BY id DESC
    LIMIT $5::bigint
  ) AS found
) AS measured
WHERE bytes - octet_length(payload) - coalesce(octet_length(body), 0) < $7::bigint
