SELECT key FROM {s}.settings WHERE starts_with(key, $1::text) ORDER BY key
