-- Ready jobs with an attempt behind them are listed and counted apart. The number of attempts is in bytes 7 to 14 of `moves`.
-- The queries have exactly these conditions. {s} stands for the schema.
CREATE INDEX jobs_retried ON {s}.jobs (id)
WHERE state = 0 AND substring(moves FROM 8 FOR 8) <> '\x0000000000000000'::bytea;
CREATE INDEX jobs_later ON {s}.jobs (lane, at, state)
WHERE state = 7 OR state = 0 AND substring(moves FROM 8 FOR 8) <> '\x0000000000000000'::bytea;
