-- By lane: how many of its jobs run, on whichever server.
SELECT lane, sum(n)::bigint FROM {s}.tallies WHERE state = 1 AND lane = ANY ($1::int[]) GROUP BY lane
