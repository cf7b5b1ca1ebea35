INSERT INTO {s}.paused (tenant, queue) VALUES ($1::text, $2::text) ON CONFLICT DO NOTHING
