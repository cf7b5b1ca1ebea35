WITH old AS (DELETE FROM {s}.blobs WHERE NOT is_whole AND begun_at < now() - interval '1 day')
DELETE FROM {s}.servers WHERE id = $1::text OR seen_at < clock_timestamp() - interval '1 day'
