-- Which transaction made a lane, so that a server can ask for those it does not know without naming all it knows.
-- {s} stands for the schema.

ALTER TABLE {s}.lanes ADD COLUMN made_in xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX lanes_by_birth ON {s}.lanes (made_in);
