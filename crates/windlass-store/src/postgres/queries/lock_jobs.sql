SELECT id, version FROM {s}.jobs WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE
