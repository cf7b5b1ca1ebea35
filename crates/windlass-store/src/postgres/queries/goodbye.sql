-- The sign of nobody (`-`) stays: it tells whoever starts next how far the clock had come.
WITH old AS (DELETE FROM {s}.blobs WHERE NOT is_whole AND begun_at < now() - interval '1 day'),
last AS (INSERT INTO {s}.servers (id) VALUES ('-') ON CONFLICT (id) DO UPDATE SET seen_at = clock_timestamp())
DELETE FROM {s}.servers WHERE id = $1::text OR (seen_at < clock_timestamp() - interval '1 day' AND id <> '-')
