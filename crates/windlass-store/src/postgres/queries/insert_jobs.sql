INSERT INTO {s}.jobs (id, lane, state, at, created_at, format, payload, asked, body, unique_ref, alias_ref, parent)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::bigint[], $5::bigint[], $6::smallint[], $7::bytea[],
                     $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[], $12::bigint[])
