DELETE FROM {s}.settings WHERE key = $1::text
