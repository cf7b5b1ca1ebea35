DELETE FROM {s}.settings WHERE key = ANY($1::text[])
