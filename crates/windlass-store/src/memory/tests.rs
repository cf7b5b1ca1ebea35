use super::*;
use windlass_core::{JobSpec, Payload, Policy};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn plain_job(run_at: Timestamp) -> NewJob {
    let spec = JobSpec {
        tenant: Tenant::default(),
        queue: Queue::default(),
        name: Name::new("mail").unwrap(),
        payload: Payload::default(),
        priority: 0,
        created_at: at(0),
        policy: Arc::new(Policy::default()),
        extras: None,
    };
    NewJob { spec: Arc::new(spec), run_at, body: None, held_by_parent: false }
}

#[derive(Default)]
struct Heard(Mutex<usize>);

impl Listener for Heard {
    fn became_ready(&self, _: &Tenant, _: &Queue, _: &Name, count: Option<usize>) {
        *self.0.lock() += count.expect("it counts");
    }
}

impl Heard {
    fn take(&self) -> usize {
        std::mem::take(&mut *self.0.lock())
    }
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let store = MemoryStore::new();
    store.close().await.unwrap();
    assert!(matches!(store.health().await, Err(StoreError::Closed)));
    assert!(matches!(store.load(vec![]).await, Err(StoreError::Closed)));
    store.reopen("any");
}

#[tokio::test]
async fn a_delayed_job_is_told_of_once_its_time_has_come() {
    let (store, heard) = (MemoryStore::new(), Arc::new(Heard::default()));
    store.listen(heard.clone());
    store.commit(vec![Step::insert(vec![plain_job(at(100))])], at(0)).await.unwrap();
    assert_eq!(heard.take(), 0);
    assert_eq!(store.due(at(99), 10).await.unwrap().next, Some(at(100)));
    assert_eq!(heard.take(), 0);
    store.due(at(100), 10).await.unwrap();
    assert_eq!(heard.take(), 1);
    store.due(at(101), 10).await.unwrap();
    assert_eq!(heard.take(), 0);
}

#[tokio::test]
async fn a_job_committed_behind_the_last_look_is_told_of_at_once() {
    let (store, heard) = (MemoryStore::new(), Arc::new(Heard::default()));
    store.listen(heard.clone());
    store.due(at(110), 10).await.unwrap();
    store.commit(vec![Step::insert(vec![plain_job(at(100))])], at(99)).await.unwrap();
    assert_eq!(heard.take(), 1);
}

#[tokio::test]
async fn after_the_clock_went_back_jobs_are_told_of_again() {
    let (store, heard) = (MemoryStore::new(), Arc::new(Heard::default()));
    store.listen(heard.clone());
    store.commit(vec![Step::insert(vec![plain_job(at(100))])], at(0)).await.unwrap();
    store.due(at(110), 10).await.unwrap();
    store.due(at(50), 10).await.unwrap();
    heard.take();
    store.due(at(100), 10).await.unwrap();
    assert_eq!(heard.take(), 1);
}
