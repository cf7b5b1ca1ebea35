-- The first job of each lane, whether its time has come or not.
SELECT lane.id, head.at, head.id
FROM {s}.lanes AS lane
LEFT JOIN LATERAL (
    SELECT job.at, job.id FROM {s}.jobs AS job
    WHERE job.lane = lane.id AND job.state IN (0, 7)
    ORDER BY job.at, job.id
    LIMIT 1
) AS head ON true
WHERE $1::int[] IS NULL OR lane.id = ANY ($1::int[])
