-- Jobs made by an application inside its own transaction. {s} stands for the schema.

CREATE FUNCTION {s}.push_option_error(problem text) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    RAISE EXCEPTION 'windlass push: %', problem USING ERRCODE = 'invalid_parameter_value';
END
$body$;

-- One of the keep times: milliseconds (0: forget at once) or "ever".
CREATE FUNCTION {s}.push_keep(asked jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
    IF asked = '"ever"' THEN
        RETURN '"ever"';
    ELSIF jsonb_typeof(asked) = 'number' AND (asked #>> '{}')::numeric = 0 THEN
        RETURN '"drop"';
    ELSIF jsonb_typeof(asked) = 'number' AND (asked #>> '{}')::numeric > 0 THEN
        RETURN jsonb_build_object('ms', floor((asked #>> '{}')::numeric)::bigint);
    END IF;
    RAISE EXCEPTION 'windlass push: keep times are milliseconds or "ever", not %', asked USING ERRCODE = 'invalid_parameter_value';
END
$body$;

-- A number of attempts, or {"max_attempts", "backoff", "give_up_after_ms"}, as the server stores it.
CREATE FUNCTION {s}.push_retry(asked jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $body$
DECLARE
    retry jsonb := '{}';
    backoff jsonb := asked -> 'backoff';
BEGIN
    IF jsonb_typeof(asked) = 'number' THEN
        asked := jsonb_build_object('max_attempts', asked);
    ELSIF jsonb_typeof(asked) <> 'object' THEN
        RAISE EXCEPTION 'windlass push: retry is a number of attempts or an object, not %', asked USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF asked ? 'max_attempts' THEN
        IF jsonb_typeof(asked -> 'max_attempts') = 'number' AND (asked ->> 'max_attempts')::numeric < 1 THEN
            RAISE EXCEPTION 'windlass push: retry counts the attempts in all: write 1 for a single attempt' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        retry := retry || jsonb_build_object('max_attempts', asked -> 'max_attempts');
    END IF;
    IF asked ? 'give_up_after_ms' THEN
        retry := retry || jsonb_build_object('give_up_after_ms', asked -> 'give_up_after_ms');
    END IF;
    IF backoff = '"none"' THEN
        retry := retry || '{"backoff": "none"}';
    ELSIF backoff ? 'fixed_ms' THEN
        retry := retry || jsonb_build_object('backoff', jsonb_build_object('fixed', jsonb_build_object('delay_ms', backoff -> 'fixed_ms')));
    ELSIF backoff ? 'base_ms' THEN
        retry := retry || jsonb_build_object('backoff', jsonb_build_object('exponential', jsonb_build_object(
            'base_ms', backoff -> 'base_ms', 'cap_ms', coalesce(backoff -> 'cap_ms', '3600000'),
            'jitter_percent', coalesce(backoff -> 'jitter_percent', '10'))));
    ELSIF backoff IS NOT NULL THEN
        RAISE EXCEPTION 'windlass push: backoff is "none", {"fixed_ms"} or {"base_ms", "cap_ms", "jitter_percent"}' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN retry;
END
$body$;

-- Policy and rarer wishes as the server stores them; NULL: none.
CREATE FUNCTION {s}.push_asked(options jsonb, limit_keys jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $body$
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
    IF limit_keys IS NOT NULL THEN
        extras := extras || jsonb_build_object('limit_keys', limit_keys);
    END IF;
    RETURN nullif(jsonb_strip_nulls(jsonb_build_object('policy', nullif(policy, '{}'), 'extras', nullif(extras, '{}'))), '{}');
END
$body$;

-- Digest of a tenant and a key, as the server makes it.
CREATE FUNCTION {s}.push_ref(kind text, tenant text, key text) RETURNS bytea LANGUAGE sql IMMUTABLE AS $body$
    SELECT substring(sha256(convert_to(kind || tenant || '/' || key, 'UTF8')) FOR 16)
$body$;

-- Holds the key for the rest of the transaction; gives the job that has it, if any.
CREATE FUNCTION {s}.push_holder(ref bytea) RETURNS bigint LANGUAGE plpgsql AS $body$
DECLARE
    holder bigint;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'windlass push: unique and alias need READ COMMITTED: an older snapshot cannot show who has the key'
            USING ERRCODE = 'feature_not_supported';
    END IF;
    PERFORM pg_advisory_xact_lock(('x' || encode(substring(ref FOR 8), 'hex'))::bit(64)::bigint);
    SELECT min(id) INTO holder FROM (
        SELECT id FROM {s}.jobs WHERE unique_ref = ref OR alias_ref = ref
        UNION ALL SELECT id FROM {s}.jobs_done WHERE unique_ref = ref OR alias_ref = ref) AS found;
    RETURN holder;
END
$body$;

-- The lane of such jobs, made where there is none that this transaction can see.
CREATE FUNCTION {s}.push_lane(tenant text, queue text, name text, priority integer, limit_keys bytea) RETURNS integer
LANGUAGE plpgsql AS $body$
DECLARE
    found integer;
BEGIN
    SELECT min(lane.id) INTO found FROM {s}.lanes AS lane
    WHERE lane.tenant = push_lane.tenant AND lane.queue = push_lane.queue AND lane.name = push_lane.name
      AND lane.priority = push_lane.priority AND sha256(lane.limit_keys) = sha256(push_lane.limit_keys);
    IF found IS NULL THEN
        INSERT INTO {s}.lanes (tenant, queue, name, priority, limit_keys)
        VALUES (push_lane.tenant, push_lane.queue, push_lane.name, push_lane.priority, push_lane.limit_keys)
        RETURNING id INTO found;
    END IF;
    RETURN found;
END
$body$;

CREATE FUNCTION {s}.push_bytes(name text, payload bytea, options jsonb DEFAULT '{}', format text DEFAULT 'binary') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    now_ms bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    tenant text := coalesce(options ->> 'tenant', 'default');
    queue text := coalesce(options ->> 'queue', 'default');
    wrong text;
    run_at bigint;
    holder bigint;
    lane integer;
    made bigint;
    unique_key text := CASE jsonb_typeof(options -> 'unique') WHEN 'string' THEN options ->> 'unique'
                                                              ELSE options -> 'unique' ->> 'key' END;
    unique_ref bytea;
    alias_ref bytea;
    has_limits boolean;
    asked jsonb;
BEGIN
    SELECT key INTO wrong FROM jsonb_object_keys(options) AS key
    WHERE key NOT IN ('tenant', 'queue', 'priority', 'run_at', 'delay_ms', 'unique', 'retry', 'lease_ms', 'keep', 'tags', 'alias');
    IF wrong IS NOT NULL THEN
        PERFORM {s}.push_option_error(format('there is no option %I', wrong));
    ELSIF name IS NULL OR octet_length(name) NOT BETWEEN 1 AND 255 THEN
        PERFORM {s}.push_option_error('a name has 1 to 255 bytes');
    ELSIF octet_length(queue) NOT BETWEEN 1 AND 255 OR queue ~ '[[:cntrl:]]' THEN
        PERFORM {s}.push_option_error('a queue has 1 to 255 bytes and no control characters');
    ELSIF tenant !~ '^[A-Za-z0-9_.-]{1,64}$' THEN
        PERFORM {s}.push_option_error('a tenant has 1 to 64 letters, digits, _, - and .');
    ELSIF options ? 'run_at' AND options ? 'delay_ms' THEN
        PERFORM {s}.push_option_error('run_at and delay_ms exclude each other: give one of them');
    ELSIF options -> 'unique' ->> 'on_conflict' = 'update' THEN
        -- It would hold the row of another job, and whoever needs it, until the application's transaction ends.
        PERFORM {s}.push_option_error('on_conflict "update" is for the server''s own API');
    END IF;
    run_at := CASE WHEN options ? 'delay_ms' THEN now_ms + greatest((options ->> 'delay_ms')::bigint, 0)
                   WHEN jsonb_typeof(options -> 'run_at') = 'number' THEN (options ->> 'run_at')::bigint
                   WHEN options ? 'run_at' THEN floor(extract(epoch FROM (options ->> 'run_at')::timestamptz) * 1000)::bigint
                   ELSE now_ms END;
    IF unique_key IS NOT NULL THEN
        unique_ref := {s}.push_ref('u', tenant, unique_key);
        holder := {s}.push_holder(unique_ref);
        IF holder IS NOT NULL AND options -> 'unique' ->> 'on_conflict' = 'refuse' THEN
            RAISE EXCEPTION 'windlass push: job % holds this unique key', holder USING ERRCODE = 'unique_violation';
        END IF;
    END IF;
    IF holder IS NULL AND options ? 'alias' THEN
        alias_ref := {s}.push_ref('a', tenant, options ->> 'alias');
        holder := {s}.push_holder(alias_ref);
    END IF;
    IF holder IS NOT NULL THEN
        RETURN holder;
    END IF;
    -- Which limits are about this job is for a server to work out; until then it waits.
    has_limits := EXISTS (SELECT FROM {s}.settings AS setting WHERE starts_with(setting.key, 'limit/' || tenant || '/'));
    asked := {s}.push_asked(options, CASE WHEN has_limits THEN jsonb_build_array(chr(31) || 'unchecked') END);
    lane := {s}.push_lane(tenant, queue, name, coalesce((options ->> 'priority')::integer, 0),
                          CASE WHEN has_limits THEN '\x91aa1f756e636865636b6564'::bytea ELSE ''::bytea END);
    INSERT INTO {s}.jobs (lane, state, at, created_at, format, payload, asked, unique_ref, alias_ref)
    VALUES (lane, 0, run_at, now_ms,
            CASE format WHEN 'json' THEN 0 WHEN 'msgpack' THEN 1 WHEN 'text' THEN 2 WHEN 'binary' THEN 3 END,
            payload, convert_to(asked::text, 'UTF8'), unique_ref, alias_ref)
    RETURNING id INTO made;
    INSERT INTO {s}.tallies (lane, state, n) VALUES (lane, 0, 1);
    -- The same words for all jobs of a second: PostgreSQL then says them once per transaction.
    PERFORM pg_notify({channel}, format('- e %s %s 0', lane, floor(run_at / 1000.0)::bigint * 1000));
    RETURN made;
END
$body$;

-- The usual way: a payload in JSON.
CREATE FUNCTION {s}.push(name text, payload jsonb DEFAULT 'null', options jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE sql AS $body$
    SELECT {s}.push_bytes(name, convert_to(payload::text, 'UTF8'), options, 'json')
$body$;

-- For those who were let in: GRANT USAGE ON SCHEMA, GRANT EXECUTE ON FUNCTION push, push_bytes.
REVOKE ALL ON FUNCTION {s}.push(text, jsonb, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION {s}.push_bytes(text, bytea, jsonb, text) FROM PUBLIC;
