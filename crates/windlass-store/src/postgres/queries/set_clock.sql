-- What is known of the clock, unless somebody has said otherwise since. Signs of life from before it was set back would be taken
-- for another step.
WITH said AS (
    INSERT INTO {s}.settings AS setting (key, value) VALUES ('clock', $1::bytea)
    ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value WHERE setting.value = $2::bytea
    RETURNING 1
), gone AS (
    DELETE FROM {s}.servers WHERE seen_at > clock_timestamp() AND EXISTS (SELECT FROM said)
)
SELECT count(*) FROM said
