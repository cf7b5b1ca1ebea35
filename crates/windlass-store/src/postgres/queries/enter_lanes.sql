WITH asked AS (
    SELECT DISTINCT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::bytea[])
                           AS asked (tenant, queue, name, priority, limit_keys)
), found AS (
    SELECT lane.id, lane.tenant, lane.queue, lane.name, lane.priority, lane.limit_keys
    FROM asked JOIN {s}.lanes AS lane
      ON lane.tenant = asked.tenant AND lane.queue = asked.queue AND lane.name = asked.name
     AND lane.priority = asked.priority AND sha256(lane.limit_keys) = sha256(asked.limit_keys)
), made AS (
    INSERT INTO {s}.lanes (tenant, queue, name, priority, limit_keys)
    SELECT * FROM asked
    WHERE NOT EXISTS (SELECT FROM found WHERE found.tenant = asked.tenant AND found.queue = asked.queue
                        AND found.name = asked.name AND found.priority = asked.priority
                        AND found.limit_keys = asked.limit_keys)
    RETURNING id, tenant, queue, name, priority, limit_keys
)
SELECT * FROM found UNION ALL SELECT * FROM made
