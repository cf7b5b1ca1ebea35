-- What time it is, in ms: not when the transaction or the statement began.
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
