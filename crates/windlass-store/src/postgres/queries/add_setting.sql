INSERT INTO {s}.settings (key, value) VALUES ($1::text, $2::bytea) ON CONFLICT (key) DO NOTHING RETURNING key
