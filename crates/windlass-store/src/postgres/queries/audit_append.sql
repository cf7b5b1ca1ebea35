INSERT INTO {s}.audit (at, tenant, who, role, action, target, detail)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
