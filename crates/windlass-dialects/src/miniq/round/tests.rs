use super::*;
use crate::dialect::Soon;
use crate::miniq::Settings;
use crate::runners::{Batch, Run};
use std::sync::Mutex;
use std::time::Duration;
use windlass_core::handler::HandlerText;
use windlass_engine::journal::{self, Journal};
use windlass_engine::{Engine, ManualClock, Options, SeededRandom};
use windlass_store::faulty::{Call, Faults, FaultyStore, Kind};
use windlass_store::memory::MemoryStore;

/// Runners with this number of free slots.
struct Places(Arc<Mutex<usize>>);

impl Runners for Places {
    fn check(&self, _: &HandlerText) -> Result<(), String> {
        Ok(())
    }
    fn resource(&self, _: &HandlerText) -> Resource {
        "places"
    }
    fn book(&self, _: &str, _: &str, _: &HandlerText) -> Result<Box<dyn Booking>, NoRoom> {
        let mut free = self.0.lock().unwrap();
        *free = free.checked_sub(1).ok_or(NoRoom::Full("places"))?;
        Ok(Box::new(Place(Arc::clone(&self.0))))
    }
    fn room(&self) -> Soon<'static, ()> {
        Box::pin(std::future::pending())
    }
    fn warm(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn stop(&self, _: Duration) -> Soon<'_, ()> {
        Box::pin(async {})
    }
}

struct Place(Arc<Mutex<usize>>);

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

impl Booking for Place {
    fn jobs_max(&self) -> usize {
        10
    }
    fn start(self: Box<Self>, _: Batch) -> Box<dyn Run> {
        unreachable!("the store of these tests has no jobs")
    }
}

/// Server whose store has handlers and no jobs.
async fn world() -> (Arc<State>, Faults) {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(1)));
    let engine = Engine::start(store, clock, random, Options::default()).await.unwrap();
    let journal = Journal::open(journal::Settings::default()).unwrap();
    (State::start(engine, journal, Settings::default(), None, None).unwrap(), faults)
}

/// Types with a handler, and with a number of jobs that the store does not have.
async fn types(state: &State, texts: &[(&str, &str, u64)]) -> Vec<Type> {
    let mut types = Vec::new();
    for (client, jobtype, left) in texts {
        let (client, jobtype) = (Tenant::new(client).unwrap(), Name::new(jobtype).unwrap());
        let text: HandlerText = serde_json::from_str(r#"{"lang":"sh","body":"cat"}"#).unwrap();
        handlers::add(&state.engine, &client, &jobtype, "1", &text).await.unwrap();
        let version = handlers::newest(&state.engine, &client, &jobtype, None).await.unwrap();
        types.push(Type { client, jobtype, left: *left, version });
    }
    types
}

fn planned(round: &Round, types: &[Type]) -> Vec<String> {
    let order = |(place, order): (&usize, &Order)| {
        format!("{}: {} batches of {} jobs", types[*place].client, order.places.len(), order.jobs)
    };
    round.orders.iter().map(order).collect()
}

#[tokio::test]
async fn free_places_are_shared_fairly_within_one_round() {
    let (state, _) = world().await;
    let places = Places(Arc::new(Mutex::new(5)));
    let mut types = types(&state, &[("big", "t", 10_000), ("other", "t", 15), ("small", "t", 1)]).await;
    let round = Round::plan(&state, &places, &mut types);
    let expected = ["big: 2 batches of 20 jobs", "other: 2 batches of 15 jobs", "small: 1 batches of 1 jobs"];
    assert_eq!(planned(&round, &types), expected);
    assert_eq!(state.scheduler().running_of(&types[0].client), 20, "what is planned counts as started");
    assert_eq!(state.scheduler().places_of(&types[0].client, "places"), 2);
    let waiting: Vec<&str> = round.waiting.iter().map(|(client, _)| client.as_str()).collect();
    assert_eq!(waiting, ["big"], "the others have all they want");
    assert!(!Round::plan(&state, &places, &mut types).orders.contains_key(&1), "all its jobs are planned");
}

#[tokio::test]
async fn a_round_is_bounded_where_there_is_room_for_everything() {
    let (state, _) = world().await;
    let places = Places(Arc::new(Mutex::new(10_000)));
    let mut types = types(&state, &[("big", "t", 1_000_000)]).await;
    let round = Round::plan(&state, &places, &mut types);
    assert_eq!(planned(&round, &types), ["big: 64 batches of 640 jobs"]);
}

#[tokio::test]
async fn what_was_planned_and_not_started_counts_no_more() {
    let (state, faults) = world().await;
    let free = Arc::new(Mutex::new(5));
    let mut types = types(&state, &[("big", "t", 100), ("small", "t", 1)]).await;
    let plan = |types: &mut Vec<Type>| {
        types[0].left = 100;
        types[1].left = 1;
        let round = Round::plan(&state, &Places(Arc::clone(&free)), types);
        assert!(!round.is_empty() && !state.scheduler().is_idle() && *free.lock().unwrap() < 5);
        round
    };
    let is_as_before = || state.scheduler().is_idle() && *free.lock().unwrap() == 5;
    // Another server has claimed the jobs.
    let outcome = plan(&mut types).claim_and_start(&state, &types, 1_000).await.unwrap();
    assert_eq!(outcome.empty.len(), 2);
    assert!(is_as_before());
    // The store fails, first for the handlers and then for the claims.
    for call in [Call::Read, Call::Claim] {
        faults.fail_next_call(call, 1, Kind::BeforeDoing);
        assert!(plan(&mut types).claim_and_start(&state, &types, 1_000).await.is_err());
        assert!(is_as_before(), "{call:?}");
    }
    // The handler has changed.
    types[1].version = None;
    let outcome = plan(&mut types).claim_and_start(&state, &types, 1_000).await.unwrap();
    assert_eq!((outcome.changed.len(), outcome.empty.len()), (1, 1));
    assert!(is_as_before());
}
