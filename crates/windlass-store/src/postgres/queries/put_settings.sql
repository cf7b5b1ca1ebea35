INSERT INTO {s}.settings (key, value) SELECT * FROM unnest($1::text[], $2::bytea[])
ON CONFLICT (key) DO UPDATE SET value = excluded.value
