-- Lanes that were made by transactions from $1 on, and from which on the next look has to ask: those before it have ended, and
-- what they made is seen here. Numbers of lanes would not do: one that was given out early may be committed late.
-- A crash or a failover may give out numbers of transactions anew. A session that was there at $2, in the history $3, when the
-- last look was made knows that there was none; any other gives all lanes.
-- The largest is looked at first, so that there is nothing to read when there is nothing new, whatever the planner believes.
WITH here AS MATERIALIZED (
    SELECT floor(extract(epoch FROM backend_start) * 1000000)::bigint AS started,
           substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) AS history
    FROM pg_stat_get_activity(pg_backend_pid())
), since AS MATERIALIZED (
    SELECT CASE WHEN started < $2::bigint AND history = $3::text THEN $1::text ELSE '0' END::xid8 AS transaction FROM here
)
SELECT lane.id, lane.tenant, lane.queue, lane.name, lane.priority, lane.limit_keys,
       pg_snapshot_xmin(pg_current_snapshot())::text,
       floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint, here.history
FROM here
LEFT JOIN {s}.lanes AS lane
       ON lane.made_in >= (SELECT transaction FROM since)
      AND (SELECT newest.made_in FROM {s}.lanes AS newest ORDER BY newest.made_in DESC LIMIT 1)
          >= (SELECT transaction FROM since)
