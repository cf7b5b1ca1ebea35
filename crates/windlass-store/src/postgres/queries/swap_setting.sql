UPDATE {s}.settings SET value = $3::bytea WHERE key = $1::text AND value = $2::bytea RETURNING key
