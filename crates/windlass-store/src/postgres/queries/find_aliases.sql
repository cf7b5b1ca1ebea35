SELECT min(id) FROM (SELECT id, alias_ref FROM {s}.jobs WHERE alias_ref = ANY ($1::bytea[])
                     UNION ALL SELECT id, alias_ref FROM {s}.jobs_done WHERE alias_ref = ANY ($1::bytea[])) AS found
GROUP BY alias_ref
