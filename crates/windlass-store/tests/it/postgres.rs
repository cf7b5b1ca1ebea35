//! PostgreSQL store.

use crate::postgres_server::{Disk, PostgresServer};
use crate::seed;
use std::sync::Arc;
use windlass_store::Store;
use windlass_store::conformance::{exercise, exercise_copies, restart_equivalence};
use windlass_store::postgres::PostgresStore;

async fn open(url: &str) -> Arc<dyn Store> {
    Arc::new(PostgresStore::open(url, &crate::not_safe()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_on_postgresql_conforms() {
    let server = PostgresServer::shared();
    Box::pin(exercise(|| async { open(&server.new_schema_url()).await }, seed())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_on_postgresql_can_be_copied() {
    let server = PostgresServer::shared();
    Box::pin(exercise_copies(|| async { open(&server.new_schema_url()).await }, seed())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_changes_nothing() {
    let url = PostgresServer::shared().new_schema_url();
    Box::pin(restart_equivalence(|| async { open(&url).await }, seed())).await;
}

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
