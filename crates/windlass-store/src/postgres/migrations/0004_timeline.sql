-- Times of jobs are on a timeline that goes on evenly: the database's clock, less how far that was set ahead since.
CREATE OR REPLACE FUNCTION {s}.clock_ahead_ms() RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT coalesce((SELECT (convert_from(value, 'UTF8')::jsonb ->> 'ahead_ms')::bigint FROM {s}.settings WHERE key = 'clock'), 0)
$body$;

-- Pushes by SQL are on it, too.
DO $do$
DECLARE
    had text := pg_get_functiondef('{s}.push_bytes(text, bytea, jsonb, text)'::regprocedure);
    new text := had;
BEGIN
    IF position('clock_ahead_ms' IN had) > 0 THEN
        RETURN;
    END IF;
    new := replace(new, 'floor(extract(epoch FROM clock_timestamp()) * 1000)',
                        'floor(extract(epoch FROM clock_timestamp()) * 1000) - {s}.clock_ahead_ms()');
    new := replace(new, '(options ->> ''run_at'')::bigint', '(options ->> ''run_at'')::bigint - {s}.clock_ahead_ms()');
    new := replace(new, 'floor(extract(epoch FROM (options ->> ''run_at'')::timestamptz) * 1000)::bigint',
                        'floor(extract(epoch FROM (options ->> ''run_at'')::timestamptz) * 1000)::bigint - {s}.clock_ahead_ms()');
    IF new = had THEN
        RAISE EXCEPTION 'push_bytes is not as migration 2 made it';
    END IF;
    EXECUTE new;
END
$do$;
