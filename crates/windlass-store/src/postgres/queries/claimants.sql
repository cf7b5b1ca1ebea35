SELECT unique_ref AS ref, id FROM {s}.jobs WHERE unique_ref = ANY ($1::bytea[])
UNION ALL SELECT alias_ref, id FROM {s}.jobs WHERE alias_ref = ANY ($1::bytea[])
UNION ALL SELECT unique_ref, id FROM {s}.jobs_done WHERE unique_ref = ANY ($1::bytea[])
UNION ALL SELECT alias_ref, id FROM {s}.jobs_done WHERE alias_ref = ANY ($1::bytea[])
