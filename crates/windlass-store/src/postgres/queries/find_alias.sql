SELECT min(id) FROM (SELECT id FROM {s}.jobs WHERE alias_ref = $1::bytea
                     UNION ALL SELECT id FROM {s}.jobs_done WHERE alias_ref = $1::bytea) AS found
