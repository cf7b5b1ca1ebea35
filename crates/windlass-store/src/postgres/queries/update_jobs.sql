UPDATE {s}.jobs AS job
SET version = new.version, state = new.state, at = new.at, moves = new.moves, unique_ref = new.unique_ref,
    body = CASE WHEN new.other_body THEN new.body ELSE job.body END
FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bool[], $8::bytea[])
     AS new (id, version, state, at, moves, unique_ref, other_body, body)
WHERE job.id = new.id
