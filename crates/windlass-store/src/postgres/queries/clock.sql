-- What time it is on the timeline, in ms: not when the transaction or the statement began.
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - {s}.clock_ahead_ms()
