INSERT INTO {s}.jobs (id, version, lane, state, at, created_at, format, payload, moves, asked, body, unique_ref, alias_ref,
                      parent)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::smallint[], $5::bigint[], $6::bigint[], $7::smallint[],
                     $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[], $12::bytea[], $13::bytea[], $14::bigint[])
