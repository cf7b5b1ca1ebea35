-- By lane in which jobs wait: the first start after $1, and the first after $2, which is not before $1. From one lane to the
-- next by the index; within a lane it is asked again only where the answer is not known already.
WITH RECURSIVE waiting AS (
    (SELECT job.lane, job.at FROM {s}.jobs AS job WHERE job.state IN (0, 7) ORDER BY job.lane, job.at, job.id LIMIT 1)
    UNION ALL
    SELECT next.lane, next.at
    FROM waiting CROSS JOIN LATERAL (
        SELECT job.lane, job.at FROM {s}.jobs AS job WHERE job.state IN (0, 7) AND job.lane > waiting.lane
        ORDER BY job.lane, job.at, job.id LIMIT 1
    ) AS next
)
SELECT waiting.lane, since.at, later.at
FROM waiting
CROSS JOIN LATERAL (
    SELECT CASE WHEN waiting.at > $1::bigint THEN waiting.at ELSE (
        SELECT job.at FROM {s}.jobs AS job WHERE job.lane = waiting.lane AND job.state IN (0, 7) AND job.at > $1::bigint
        ORDER BY job.at LIMIT 1) END AS at
) AS since
CROSS JOIN LATERAL (
    SELECT CASE WHEN since.at > $2::bigint THEN since.at ELSE (
        SELECT job.at FROM {s}.jobs AS job WHERE job.lane = waiting.lane AND job.state IN (0, 7) AND job.at > $2::bigint
        ORDER BY job.at LIMIT 1) END AS at
) AS later
WHERE since.at IS NOT NULL
