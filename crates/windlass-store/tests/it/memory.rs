use crate::seed;
use std::sync::Arc;
use windlass_store::Store;
use windlass_store::conformance::exercise;
use windlass_store::memory::MemoryStore;

#[tokio::test]
async fn the_store_in_memory_conforms() {
    exercise(|| async { Arc::new(MemoryStore::new()) as Arc<dyn Store> }, seed()).await;
}
