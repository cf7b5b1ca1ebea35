-- By lane: of those that wait for their time, how many were tried before, and how many are to shut down.
SELECT lane, count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 7)
FROM {s}.jobs
WHERE (state = 7 OR state = 0 AND substring(moves FROM 8 FOR 8) <> '\x0000000000000000'::bytea)
  AND lane = ANY ($1::int[]) AND at > $2::bigint
GROUP BY lane
