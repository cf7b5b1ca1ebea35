DELETE FROM {s}.jobs WHERE id = ANY ($1::bigint[])
