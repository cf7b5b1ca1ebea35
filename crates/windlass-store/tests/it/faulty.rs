use std::sync::Arc;
use windlass_core::Timestamp;
use windlass_store::faulty::{Call, FaultyStore, Kind};
use windlass_store::memory::MemoryStore;
use windlass_store::{Settings, Store, StoreError};

use crate::seed;
use windlass_store::conformance::exercise;

const NOW: Timestamp = Timestamp::EPOCH;

#[tokio::test]
async fn without_faults_it_is_a_store_like_any_other() {
    exercise(|| async { FaultyStore::new(Arc::new(MemoryStore::new())).0 as Arc<dyn Store> }, seed()).await;
}

#[tokio::test]
async fn a_fault_before_doing_leaves_nothing_done() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    faults.fail_next(1, Kind::BeforeDoing);
    let answer = store.put_setting("a", Some(vec![1])).await;
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    assert!(store.settings("a").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_fault_after_doing_leaves_it_done() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    faults.fail_next(1, Kind::AfterDoing);
    let answer = store.put_setting("a", Some(vec![1])).await;
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    assert_eq!(store.settings("a").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_fault_waits_for_the_call_it_is_meant_for() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    faults.fail_next_call(Call::Commit, 2, Kind::BeforeDoing);
    store.due(NOW, 1).await.unwrap();
    store.commit(vec![], NOW).await.unwrap_err();
    assert_eq!(faults.pending(), 1);
    store.commit(vec![], NOW).await.unwrap_err();
    store.commit(vec![], NOW).await.unwrap();
}

#[tokio::test]
async fn a_held_call_goes_on_when_released() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    faults.fail_next_call(Call::Set, 1, Kind::Hold);
    let writer = store.clone();
    let writing = tokio::spawn(async move { writer.put_setting("a", Some(vec![1])).await });
    faults.until_held(1).await;
    assert!(store.settings("a").await.unwrap().is_empty());
    faults.release();
    writing.await.unwrap().unwrap();
    assert_eq!(store.settings("a").await.unwrap().len(), 1);
}
