-- The rows end with the one that reaches the bytes of a page.
-- Lengths of values that are stored aside are known without reading them.
SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body
FROM (
  SELECT *, sum(octet_length(payload) + coalesce(octet_length(body), 0)) OVER (ORDER BY id DESC) AS bytes
  FROM (
    SELECT id, version, lane, state, at, created_at, format, payload, moves, asked, body
    FROM {s}.jobs_done
    WHERE id < $1::bigint AND ($2::smallint[] IS NULL OR state = ANY ($2::smallint[]))
      AND ($3::int[] IS NULL OR lane = ANY ($3::int[]))
      AND ($4::bytea IS NULL OR position($4::bytea IN payload) > 0)
    ORDER BY id DESC
    LIMIT $5::bigint
  ) AS found
) AS measured
WHERE bytes - octet_length(payload) - coalesce(octet_length(body), 0) < $6::bigint
