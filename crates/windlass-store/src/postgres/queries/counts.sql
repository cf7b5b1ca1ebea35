-- What stands in place of a state beyond the last is no number of jobs, except 101: how many ready ones were tried before.
SELECT lane, state, sum(n)::bigint FROM {s}.tallies WHERE state < 100 OR state = 101 GROUP BY lane, state HAVING sum(n) <> 0
