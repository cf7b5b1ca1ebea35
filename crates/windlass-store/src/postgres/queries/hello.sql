-- A sign of life; gives the time, whether others are there, what is known of the clock, and the last sign of life before.
WITH me AS (
    INSERT INTO {s}.servers (id) VALUES ($1::text) ON CONFLICT (id) DO UPDATE SET seen_at = clock_timestamp()
)
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       EXISTS (SELECT FROM {s}.servers WHERE id NOT IN ($1::text, '-') AND seen_at > clock_timestamp() - interval '10 seconds'),
       (SELECT convert_from(value, 'UTF8') FROM {s}.settings WHERE key = 'clock'),
       (SELECT floor(extract(epoch FROM max(seen_at)) * 1000)::bigint FROM {s}.servers)
