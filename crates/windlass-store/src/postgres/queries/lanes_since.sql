-- Lanes that were made by transactions from $1 on, and from which on the next look has to ask: those before it have ended, and
-- what they made is seen here. Numbers of lanes would not do: one that was given out early may be committed late.
-- The largest is looked at first, so that there is nothing to read when there is nothing new, whatever the planner believes.
SELECT lane.id, lane.tenant, lane.queue, lane.name, lane.priority, lane.limit_keys,
       pg_snapshot_xmin(pg_current_snapshot())::text
FROM (VALUES (1)) AS always
LEFT JOIN {s}.lanes AS lane
       ON lane.made_in >= $1::text::xid8
      AND (SELECT newest.made_in FROM {s}.lanes AS newest ORDER BY newest.made_in DESC LIMIT 1) >= $1::text::xid8
