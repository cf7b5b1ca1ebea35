-- By the same clock as those who fill them.
DELETE FROM {s}.buckets
WHERE full_at < floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - (SELECT {s}.clock_ahead_ms())
