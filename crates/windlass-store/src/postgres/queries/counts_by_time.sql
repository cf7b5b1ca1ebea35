-- By lane: how many wait for their time, and when the one that has waited longest for a worker could start.
SELECT lane.id, oldest.at,
       (SELECT count(*) FROM {s}.jobs AS job WHERE job.lane = lane.id AND job.state IN (0, 7) AND job.at > $2::bigint)
FROM unnest($1::int[]) AS lane (id)
LEFT JOIN LATERAL (
    SELECT job.at FROM {s}.jobs AS job WHERE job.lane = lane.id AND job.state IN (0, 7) AND job.at <= $2::bigint
    ORDER BY job.at LIMIT 1
) AS oldest ON true
