-- The first job of each lane in which jobs wait, whether its time has come or not: from one lane to the next by the index.
WITH RECURSIVE head AS (
    (SELECT job.lane, job.at, job.id FROM {s}.jobs AS job WHERE job.state IN (0, 7)
     ORDER BY job.lane, job.at, job.id LIMIT 1)
    UNION ALL
    SELECT next.lane, next.at, next.id
    FROM head CROSS JOIN LATERAL (
        SELECT job.lane, job.at, job.id FROM {s}.jobs AS job WHERE job.state IN (0, 7) AND job.lane > head.lane
        ORDER BY job.lane, job.at, job.id LIMIT 1
    ) AS next
)
SELECT lane, at, id FROM head
