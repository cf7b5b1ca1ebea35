SELECT id FROM {s}.jobs WHERE lane = ANY ($1::int[]) AND state IN (0, 7) ORDER BY lane, at, id LIMIT $2::bigint
