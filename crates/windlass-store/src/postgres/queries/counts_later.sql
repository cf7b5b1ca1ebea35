-- By lane: of those that wait for their time, how many were tried before, and how many are to shut down.
SELECT lane, count(*) FILTER (WHERE state = 0 AND substring(moves FROM 8 FOR 8) <> '\x0000000000000000'::bytea),
       count(*) FILTER (WHERE state = 7)
FROM {s}.jobs
WHERE lane = ANY ($1::int[]) AND state IN (0, 7) AND at > $2::bigint
GROUP BY lane
