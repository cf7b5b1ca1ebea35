-- When there are as many entries as $1; gives how many there are then. One server at a time; the others have nothing to do then.
WITH mine AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtextextended('windlass tallies {s}', 0)) AS is_mine,
           (SELECT count(*) FROM (SELECT FROM {s}.tallies LIMIT $1::bigint) AS few) AS entries
), gone AS (
    DELETE FROM {s}.tallies WHERE (SELECT is_mine AND entries = $1::bigint FROM mine) RETURNING lane, state, n
), summed AS (
    INSERT INTO {s}.tallies (lane, state, n)
    SELECT lane, state, sum(n)::bigint FROM gone GROUP BY lane, state HAVING sum(n) <> 0
    RETURNING 1
)
SELECT count(*) FROM summed
