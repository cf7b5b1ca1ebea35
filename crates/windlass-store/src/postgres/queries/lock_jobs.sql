SELECT id, version, lane FROM {s}.jobs WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE
