-- By lane: the first start after $1, and the first after $2.
SELECT lane.id, since.at, later.at
FROM {s}.lanes AS lane
LEFT JOIN LATERAL (
    SELECT job.at FROM {s}.jobs AS job WHERE job.lane = lane.id AND job.state IN (0, 7) AND job.at > $1::bigint
    ORDER BY job.at LIMIT 1
) AS since ON true
LEFT JOIN LATERAL (
    SELECT job.at FROM {s}.jobs AS job WHERE job.lane = lane.id AND job.state IN (0, 7) AND job.at > $2::bigint
    ORDER BY job.at LIMIT 1
) AS later ON true
WHERE since.at IS NOT NULL OR later.at IS NOT NULL
