//! The connection for notifications between servers: a silent one is noticed and replaced.

use crate::postgres_server::{Disk, PostgresServer};
use crate::postgres_several::{new_job, now};
use std::process::Command;
use std::time::{Duration, Instant};
use windlass_store::postgres::{PostgresOptions, PostgresStore};
use windlass_store::{Step, Store};

/// Four seconds without an answer, half a second until the next connection, and time for a busy machine.
const NOTICED_MAX: Duration = Duration::from_secs(4 + 1 + 15);
/// Far above the time of a start on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);

/// Server process of a connection that listens or has sent a notification, except these.
fn listener(database: &PostgresServer, but: &[u32]) -> Option<u32> {
    let pids = database.sql(
        "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
         AND (query LIKE 'LISTEN %' OR query LIKE '%pg_notify(%')",
    );
    pids.lines().filter_map(|pid| pid.trim().parse().ok()).find(|pid| !but.contains(pid))
}

async fn until<T>(what: &str, most: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < most, "not so after {most:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A server process that is stopped: its connection stays open, and nothing is answered.
struct Stopped(u32);

impl Stopped {
    fn stop(pid: u32) -> Stopped {
        signal("-STOP", pid);
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal("-CONT", self.0);
    }
}

fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill {name} {pid}");
}

async fn push(store: &PostgresStore) {
    store.commit(vec![Step::insert(vec![new_job("one")])], now()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_for_notifications_is_noticed_in_time_and_replaced() {
    let database = PostgresServer::start(Disk::Fast, &[]);
    let options = PostgresOptions { poll_ms: 200, ..crate::not_safe() };
    let store = PostgresStore::open(&database.url(), &options).await.unwrap();
    let ours = until("it listens", READY_MAX, || listener(&database, &[])).await;
    let other = PostgresStore::open(&database.url(), &options).await.unwrap();
    let theirs = until("the other one listens", READY_MAX, || listener(&database, &[ours])).await;
    // A server sends nothing before it knows of another one.
    let has_sent = format!("SELECT 1 FROM pg_stat_activity WHERE pid = {ours} AND query LIKE '%pg_notify(%'");
    let began = Instant::now();
    while database.sql(&has_sent).is_empty() {
        assert!(began.elapsed() < READY_MAX, "no notification is sent");
        push(&store).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let _stopped = Stopped::stop(ours);
    push(&store).await;
    until("it listens on another connection", NOTICED_MAX, || listener(&database, &[ours, theirs])).await;
    // Commits do not depend on it.
    push(&store).await;
    drop(_stopped);
    store.close().await.unwrap();
    other.close().await.unwrap();
}
