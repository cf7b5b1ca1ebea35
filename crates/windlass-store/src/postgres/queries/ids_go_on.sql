-- New jobs get ids after $1, and never ones that were given out before.
SELECT setval('{s}.job_ids', greatest($1::bigint, last_value)) FROM {s}.job_ids WHERE $1::bigint >= last_value
