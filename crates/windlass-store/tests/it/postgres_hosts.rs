//! URL with several hosts: the host that accepts writes is found, whatever the others do.

use crate::postgres_server::{Disk, PostgresServer};
use crate::postgres_several::{new_job, now};
use std::net::TcpListener;
use windlass_store::postgres::PostgresStore;
use windlass_store::{Step, Store, StoreError};

/// URL of a new schema on `primary`, with the hosts `others` first.
fn url(others: &[u16], primary: &PostgresServer, more: &str) -> String {
    let hosts: Vec<String> =
        others.iter().chain([&primary.port()]).map(|port| format!("127.0.0.1:{port}")).collect();
    let schema = primary.new_schema_url().split_once("schema=").unwrap().1.to_owned();
    format!("postgres://postgres@{}/postgres?schema={schema}{more}", hosts.join(","))
}

async fn assert_takes_writes(url: &str) {
    let store = PostgresStore::open(url, &crate::not_safe()).await.unwrap();
    store.commit(vec![Step::insert(vec![new_job("one")])], now()).await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_takes_connections_and_says_nothing_does_not_hide_the_next() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    assert_takes_writes(&url(&[port], PostgresServer::shared(), "")).await;
    // Also with a very long connection timeout.
    assert_takes_writes(&url(&[port, port], PostgresServer::shared(), "&connect_timeout=3600")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_takes_no_writes_is_passed_over_without_being_asked_to() {
    let standby = PostgresServer::start(Disk::Fast, &["default_transaction_read_only = on"]);
    assert_takes_writes(&url(&[standby.port()], PostgresServer::shared(), "")).await;
    assert_takes_writes(&url(&[standby.port()], PostgresServer::shared(), "&target_session_attrs=any")).await;
    match PostgresStore::open(&standby.url(), &crate::not_safe()).await {
        Err(StoreError::Unavailable(why)) => assert!(why.contains("does not allow writes"), "{why}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a standby was taken for a primary"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_gives_up_after_the_connect_timeout_of_the_url() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "postgres://postgres@127.0.0.1:{}/postgres?connect_timeout=1",
        silent.local_addr().unwrap().port()
    );
    match PostgresStore::open(&url, &crate::not_safe()).await {
        Err(StoreError::Unavailable(why)) => assert!(why.contains("did not respond within 1 s"), "{why}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("nobody is there"),
    }
}
