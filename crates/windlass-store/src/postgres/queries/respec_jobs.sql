UPDATE {s}.jobs AS job
SET lane = new.lane, format = new.format, payload = new.payload, asked = new.asked, alias_ref = new.alias_ref, parent = new.parent
FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bigint[])
     AS new (id, lane, format, payload, asked, alias_ref, parent)
WHERE job.id = new.id
