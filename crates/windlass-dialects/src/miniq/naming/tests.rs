use super::*;
use windlass_engine::{ManualClock, Options, Random};
use windlass_store::faulty::{Call, FaultyStore, Kind};
use windlass_store::memory::MemoryStore;

/// Random source that always returns the same number, and so the same name.
struct Loaded;

impl Random for Loaded {
    fn next_u64(&self) -> u64 {
        7
    }
}

#[tokio::test]
async fn a_server_without_a_free_name_does_not_start_and_says_what_to_do() {
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(MemoryStore::shared());
    let engine = Engine::start(store, clock, Arc::new(Loaded), Options::default()).await.unwrap();
    assert_eq!(find_name(&engine, "host").await.unwrap().as_deref(), Some("ht-0007"));
    let held = sysid::reserve(&engine, "host", "ht-0007").await.unwrap();
    let text = find_name(&engine, "host").await.unwrap_err().to_string();
    assert!(text.starts_with("getSysid: too many tries: ") && text.contains("30 minutes"), "{text}");
    held.release(&engine).await.unwrap();
    assert!(find_name(&engine, "host").await.is_ok());
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_keeps_no_server_from_starting() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::shared()));
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(Loaded));
    let engine = Engine::start(store, clock, random, Options::default()).await.unwrap();
    faults.fail_next_call(Call::Read, 1, Kind::BeforeDoing);
    assert_eq!(find_name(&engine, "host").await.unwrap(), None);
    assert!(find_name(&engine, "host").await.unwrap().is_some());
}
