SELECT lane, state, sum(n)::bigint FROM {s}.tallies GROUP BY lane, state HAVING sum(n) <> 0
