SELECT lane, sum(n)::bigint FROM {s}.tallies WHERE state = 100 GROUP BY lane
