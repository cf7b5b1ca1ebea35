-- The first job of each of these lanes, whether its time has come or not.
SELECT lane.id, head.at, head.id
FROM unnest($1::int[]) AS lane (id)
LEFT JOIN LATERAL (
    SELECT job.at, job.id FROM {s}.jobs AS job
    WHERE job.lane = lane.id AND job.state IN (0, 7)
    ORDER BY job.at, job.id
    LIMIT 1
) AS head ON true
