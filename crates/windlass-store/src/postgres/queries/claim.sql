-- The first jobs of some lanes, in order, locked one by one until there are enough. Nothing is locked that is not wanted, and
-- nothing that another server is about to take is waited for.
SELECT job.id, job.version, job.lane, job.state, job.at, job.created_at, job.format, job.payload, job.moves, job.asked, job.body
FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bigint[]) AS lane (id, priority, from_at, from_id)
CROSS JOIN LATERAL (
    SELECT first.id, first.at FROM {s}.jobs AS first
    WHERE first.lane = lane.id AND first.state IN (0, 7) AND first.at <= $5::bigint
      AND (first.at, first.id) >= (lane.from_at, lane.from_id)
    ORDER BY first.at, first.id
    LIMIT $6::bigint
) AS candidate
JOIN {s}.jobs AS job ON job.id = candidate.id
WHERE job.state IN (0, 7) AND job.at <= $5::bigint AND job.lane = lane.id
  AND (lane.priority, candidate.at, candidate.id) <= ($8::int, $9::bigint, $10::bigint)
  AND NOT job.id = ANY ($11::bigint[])
ORDER BY lane.priority, candidate.at, candidate.id
LIMIT $7::bigint
FOR UPDATE OF job SKIP LOCKED
