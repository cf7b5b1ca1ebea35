-- A push by SQL that names a date in the future says so, as one by the server's own API does: the job goes by that date also when
-- the clock is set.

-- As in migration 2, and `run_at` is left in the options where it is such a date.
CREATE OR REPLACE FUNCTION {s}.push_asked(options jsonb, limit_keys jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $body$
DECLARE
    policy jsonb := '{}';
    extras jsonb := '{}';
    keep jsonb;
BEGIN
    IF options ? 'lease_ms' THEN
        IF (options ->> 'lease_ms')::numeric NOT BETWEEN 10 AND 365 * 86400000::bigint THEN
            RAISE EXCEPTION 'windlass push: lease_ms must be between 10 ms and a year' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        policy := policy || jsonb_build_object('lease', jsonb_build_object('length_ms', options -> 'lease_ms'));
    END IF;
    IF options ? 'retry' THEN
        policy := policy || jsonb_build_object('retry', {s}.push_retry(options -> 'retry'));
    END IF;
    IF options ? 'keep' THEN
        SELECT jsonb_object_agg(replace(key, '_ms', ''), {s}.push_keep(value)) INTO keep FROM jsonb_each(options -> 'keep');
        policy := policy || jsonb_build_object('keep', coalesce(keep, '{}'));
    END IF;
    IF options ? 'alias' THEN
        extras := extras || jsonb_build_object('alias', options -> 'alias');
    END IF;
    IF options ? 'tags' THEN
        extras := extras || jsonb_build_object('tags', options -> 'tags');
    END IF;
    IF options ? 'unique' THEN
        extras := extras || jsonb_build_object('unique', CASE jsonb_typeof(options -> 'unique')
            WHEN 'string' THEN jsonb_build_object('key', options -> 'unique') ELSE options -> 'unique' END);
    END IF;
    IF options ? 'run_at' THEN
        extras := extras || '{"dated": true}';
    END IF;
    IF limit_keys IS NOT NULL THEN
        extras := extras || jsonb_build_object('limit_keys', limit_keys);
    END IF;
    RETURN nullif(jsonb_strip_nulls(jsonb_build_object('policy', nullif(policy, '{}'), 'extras', nullif(extras, '{}'))), '{}');
END
$body$;

DO $do$
DECLARE
    had text := pg_get_functiondef('{s}.push_bytes(text, bytea, jsonb, text)'::regprocedure);
    new text := replace(had, '.push_asked(options, ',
                        '.push_asked(CASE WHEN run_at > now_ms THEN options ELSE options - ''run_at'' END, ');
BEGIN
    IF new = had THEN
        RAISE EXCEPTION 'push_bytes is not as migration 2 made it';
    END IF;
    EXECUTE new;
END
$do$;
