-- A sign of life; gives the time, and whether others are there.
WITH me AS (
    INSERT INTO {s}.servers (id) VALUES ($1::text) ON CONFLICT (id) DO UPDATE SET seen_at = clock_timestamp()
)
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       EXISTS (SELECT FROM {s}.servers WHERE id <> $1::text AND seen_at > clock_timestamp() - interval '10 seconds')
