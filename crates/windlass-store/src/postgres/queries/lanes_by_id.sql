SELECT id, tenant, queue, name, priority, limit_keys FROM {s}.lanes WHERE id = ANY ($1::int[])
