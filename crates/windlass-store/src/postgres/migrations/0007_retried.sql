-- Ready jobs with an attempt behind them are tallied, in place of a state: 101. The number of attempts is in bytes 7 to 14 of `moves`.
-- {s} stands for the schema.
INSERT INTO {s}.tallies (lane, state, n)
SELECT lane, 101, count(*) FROM {s}.jobs
WHERE state = 0 AND substring(moves FROM 8 FOR 8) <> '\x0000000000000000'::bytea
GROUP BY lane;
