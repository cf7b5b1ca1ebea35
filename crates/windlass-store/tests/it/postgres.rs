//! The store on PostgreSQL.

use crate::postgres_server::{Disk, PostgresServer};

#[test]
fn a_server_for_tests_comes_back_after_a_kill_with_what_was_committed() {
    let server = PostgresServer::start(Disk::Safe, &["max_connections = 20"]);
    server.sql("CREATE TABLE t (x int)");
    server.sql("INSERT INTO t VALUES (7)");
    server.kill();
    server.resume();
    assert_eq!(server.sql("SELECT x FROM t; SHOW max_connections; SHOW fsync"), "7\n20\non");
    server.restart();
    assert_eq!(server.sql("SELECT x FROM t"), "7");
}
