INSERT INTO {s}.blobs (tenant) VALUES ($1::text) RETURNING id
