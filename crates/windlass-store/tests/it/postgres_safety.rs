//! A database that may lose acknowledged commits is refused, unless that is accepted.

use crate::postgres_server::{Disk, PostgresServer};
use windlass_store::postgres::{PostgresOptions, PostgresStore};
use windlass_store::{Store, StoreError};

async fn refusal(url: &str) -> String {
    match PostgresStore::open(url, &PostgresOptions::default()).await {
        Err(StoreError::Open(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{url} was opened"),
    }
}

/// Opens the store and makes a query.
async fn assert_accepted(url: &str, accept_unsafe: bool) {
    let options = PostgresOptions { accept_unsafe, ..PostgresOptions::default() };
    let store = PostgresStore::open(url, &options).await.unwrap();
    store.health().await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_does_not_wait_for_its_disk_is_refused_and_left_as_it_is() {
    let server = PostgresServer::shared();
    let url = server.new_schema_url();
    let why = refusal(&url).await;
    assert!(why.contains("fsync = off") && why.contains("--durability relaxed"), "{why}");
    let schema = url.split_once("schema=").unwrap().1;
    let made = format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'");
    assert_eq!(server.sql(&made), "0", "nothing was made");
    assert_accepted(&url, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_acknowledges_before_it_writes_is_refused_whoever_told_it_to() {
    let server = PostgresServer::start(Disk::Safe, &["synchronous_commit = off"]);
    let why = refusal(&server.url()).await;
    assert!(why.contains("synchronous_commit = off") && why.contains("--durability relaxed"), "{why}");
    assert_accepted(&server.url(), true).await;
    // Only the setting of the store's own role counts.
    server.sql("ALTER ROLE postgres SET synchronous_commit = local");
    assert_accepted(&server.url(), false).await;
    server.sql("ALTER ROLE postgres SET synchronous_commit = off");
    let why = refusal(&server.url()).await;
    assert!(why.contains("for this role"), "{why}");
    server.sql("ALTER ROLE postgres RESET synchronous_commit");
    server.sql("ALTER SYSTEM SET synchronous_commit = on");
    server.restart();
    assert_accepted(&server.url(), false).await;
}
