-- As claim.sql, for one lane, which needs no sorting.
SELECT job.id, job.version, job.lane, job.state, job.at, job.created_at, job.format, job.payload, job.moves, job.asked, job.body
FROM {s}.jobs AS job
WHERE job.lane = $1::int AND job.state IN (0, 7) AND job.at <= $4::bigint AND (job.at, job.id) >= ($2::bigint, $3::bigint)
  AND NOT job.id = ANY ($6::bigint[])
ORDER BY job.at, job.id
LIMIT $5::bigint
FOR UPDATE SKIP LOCKED
