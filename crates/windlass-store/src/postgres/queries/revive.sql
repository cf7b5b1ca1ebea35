WITH new AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bool[],
                         $8::bytea[])
                  AS new (id, version, state, at, moves, unique_ref, other_body, body)
), gone AS (
    DELETE FROM {s}.jobs_done AS job WHERE job.id = ANY ($1::bigint[]) RETURNING job.*
)
INSERT INTO {s}.jobs (id, version, lane, state, at, created_at, format, payload, moves, asked, body, unique_ref, alias_ref,
                      parent)
SELECT gone.id, new.version, gone.lane, new.state, new.at, gone.created_at, gone.format, gone.payload, new.moves, gone.asked,
       CASE WHEN new.other_body THEN new.body ELSE gone.body END, new.unique_ref, gone.alias_ref, gone.parent
FROM gone JOIN new ON new.id = gone.id
