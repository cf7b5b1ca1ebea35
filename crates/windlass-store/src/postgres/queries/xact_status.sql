SELECT pg_xact_status($1::text::xid8), substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
