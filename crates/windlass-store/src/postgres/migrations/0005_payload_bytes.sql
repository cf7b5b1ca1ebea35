-- Bytes of payloads are tallied beside the numbers of jobs, in place of a state: 100.
-- {s} stands for the schema.
INSERT INTO {s}.tallies (lane, state, n)
SELECT lane, 100, sum(octet_length(payload))
FROM (SELECT lane, payload FROM {s}.jobs UNION ALL SELECT lane, payload FROM {s}.jobs_done) AS kept
GROUP BY lane HAVING sum(octet_length(payload)) > 0;

-- Pushes by SQL tally them, too.
DO $do$
DECLARE
    had text := pg_get_functiondef('{s}.push_bytes(text, bytea, jsonb, text)'::regprocedure);
    new text := replace(had, 'VALUES (lane, 0, 1);', 'VALUES (lane, 0, 1), (lane, 100, octet_length(payload));');
BEGIN
    IF new = had THEN
        RAISE EXCEPTION 'push_bytes is not as migration 4 left it';
    END IF;
    EXECUTE new;
END
$do$;
