use crate::seed;
use std::sync::Arc;
use windlass_store::Store;
use windlass_store::conformance::{exercise, exercise_copies};
use windlass_store::memory::MemoryStore;

#[tokio::test]
async fn the_store_in_memory_conforms() {
    exercise(|| async { Arc::new(MemoryStore::new()) as Arc<dyn Store> }, seed()).await;
}

#[tokio::test]
async fn the_store_in_memory_can_be_copied() {
    exercise_copies(|| async { Arc::new(MemoryStore::new()) as Arc<dyn Store> }, seed()).await;
}
