-- What stands in place of a state beyond the last is no number of jobs.
SELECT lane, state, sum(n)::bigint FROM {s}.tallies WHERE state < 100 GROUP BY lane, state HAVING sum(n) <> 0
