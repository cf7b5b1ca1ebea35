//! Loop that starts batches: finds the types with waiting jobs, and starts as many batches as there are free
//! slots. `run` waits, `step` works; `round.rs` holds one round.

use super::round::{Round, Type};
use super::sysid::{self, NoSysid, Reserved};
use super::{Leaving, State, SysidState, commands, handlers};
use crate::runners::Runners;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::{Name, Tenant, Timestamp};
use windlass_engine::EngineError;

/// Rounds before types that turned out to be empty are tried again.
const ROUNDS_MAX: usize = 16;
/// Backoff after an error of the store.
const WAIT_FIRST: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(2);

pub(super) async fn run(state: Arc<State>, runners: Arc<dyn Runners>) {
    let news = state.engine.subscribe_ready(&commands::queue());
    let mut stop = state.stop.subscribe();
    let mut started = state.is_started.subscribe();
    let mut wait = WAIT_FIRST;
    let mut known = HandlerCache::new();
    loop {
        // Subscribed before the check, so that a slot freed after it is noticed.
        let room = runners.room();
        let is_started = *started.borrow_and_update();
        let looked = if is_started { step(&state, &runners, &mut known).await } else { Ok(StepResult::DONE) };
        let (wants_room, look_again, pause) = match looked {
            Ok(StepResult::More) => continue,
            Ok(StepResult::Rest { wants_room, look_again }) => {
                wait = WAIT_FIRST;
                (wants_room, look_again, None)
            }
            Err(error) => {
                tracing::warn!("cannot start jobs; retrying: {error}");
                let pause = Some(wait);
                wait = (wait * 2).min(WAIT_MAX);
                (false, None, pause)
            }
        };
        let later = state.engine.sleep_until(look_again.unwrap_or_else(|| state.engine.now()));
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = news.notified() => {}
            () = state.again.notified() => {}
            () = room, if wants_room => {}
            () = later, if look_again.is_some() => {}
            _ = started.changed() => {}
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepResult {
    /// Nothing is left to start now. Jobs may wait for a slot. `look_again`: time at which batches of other clients
    /// may be cut, or a client may have run time again.
    Rest { wants_room: bool, look_again: Option<Timestamp> },
    /// There may be more to start.
    More,
}

impl StepResult {
    const DONE: StepResult = StepResult::Rest { wants_room: false, look_again: None };
}

/// Handlers as last read: sufficient to book slots.
type HandlerCache = HashMap<(Tenant, Name), Option<handlers::Version>>;

/// Starts batches, round by round. Each round reads the waiting types anew, so that a client with a single
/// job does not wait behind the backlog of others.
async fn step(
    state: &Arc<State>,
    runners: &Arc<dyn Runners>,
    known: &mut HandlerCache,
) -> Result<StepResult, EngineError> {
    // The store may count jobs as ready that it does not hand out.
    let mut empty = HashSet::new();
    for _ in 0..ROUNDS_MAX {
        let mut types = look(state, known).await?;
        types.retain(|one| !empty.contains(&(one.client.clone(), one.jobtype.clone())));
        let run_time_at = hold_back(&mut types, |client| state.engine.runs_wait_until(client));
        if types.is_empty() {
            return Ok(StepResult::Rest { wants_room: false, look_again: run_time_at });
        }
        wait_until_reserved(state).await;
        if *state.stop.borrow() || !*state.is_started.borrow() {
            return Ok(StepResult::DONE);
        }
        let round = Round::plan(state, &**runners, &mut types);
        let now = state.engine.now();
        let cut_at = state.scheduler().cut_for(&round.waiting, now).map(|ms| now.plus_ms(ms));
        if round.is_empty() {
            let look_again = cut_at.filter(|_| round.lacks_room).into_iter().chain(run_time_at).min();
            return Ok(StepResult::Rest { wants_room: round.lacks_room, look_again });
        }
        let outcome = round.claim_and_start(state, &types, state.settings.lock_ms).await?;
        empty.extend(outcome.empty);
        known.extend(outcome.changed);
    }
    Ok(StepResult::More)
}

/// Removes the types of clients without run time, whose jobs wait, and returns the time of the next check. Jobs
/// without a handler need no run time.
fn hold_back(types: &mut Vec<Type>, waits_until: impl Fn(&Tenant) -> Option<Timestamp>) -> Option<Timestamp> {
    let mut clients: HashMap<Tenant, Option<Timestamp>> = HashMap::new();
    types.retain(|one| {
        one.version.is_none()
            || clients.entry(one.client.clone()).or_insert_with(|| waits_until(&one.client)).is_none()
    });
    clients.into_values().flatten().min()
}

/// Types with waiting jobs.
async fn look(state: &State, known: &mut HandlerCache) -> Result<Vec<Type>, EngineError> {
    let mut types = Vec::new();
    let mut still_known = HandlerCache::new();
    for waiting in state.engine.waiting(&commands::queue()).await? {
        let address = (waiting.tenant.clone(), waiting.name.clone());
        let version = match known.remove(&address) {
            Some(version) => version,
            None => handlers::newest(&state.engine, &waiting.tenant, &waiting.name, None).await?,
        };
        still_known.insert(address, version.clone());
        types.push(Type { client: waiting.tenant, jobtype: waiting.name, left: waiting.ready, version });
    }
    *known = still_known;
    Ok(types)
}

/// Waits until this server's name is reserved.
async fn wait_until_reserved(state: &State) {
    let mut known = state.sysid_state.subscribe();
    state.sysid_wanted.notify_one();
    let mut stop = state.stop.subscribe();
    tokio::select! {
        // The sender lives as long as the state.
        _ = known.wait_for(|known| *known == SysidState::Reserved) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// Reserves the name on first use, renews it, and releases it when no lease holds it any more.
pub(super) async fn keep_sysid(state: Arc<State>) {
    let mut leave = state.leave.subscribe();
    tokio::select! {
        () = state.sysid_wanted.notified() => {}
        _ = leave.wait_for(Option::is_some) => return,
    }
    let mut reserved: Option<Reserved> = None;
    loop {
        // Before the call: the interval does not grow by the time the store takes.
        let next = state.engine.now().plus_ms(sysid::RENEW_MS);
        reserved = match renew_or_reserve(&state, reserved.clone()).await {
            Ok(reserved) => Some(reserved),
            Err(NoSysid::TooManyTries) => {
                let why = NoSysid::TooManyTries.to_string();
                tracing::error!("{why}: this server starts no jobs until it has a system id");
                state.sysid_state.send_replace(SysidState::Refused(why));
                None
            }
            Err(NoSysid::Store(error)) => {
                tracing::warn!("cannot reserve the system id of this server; retrying: {error}");
                tokio::select! {
                    () = tokio::time::sleep(WAIT_MAX) => {}
                    _ = leave.wait_for(Option::is_some) => return,
                }
                continue;
            }
        };
        let leaving = tokio::select! {
            () = state.engine.sleep_until(next) => None,
            leaving = leave.wait_for(Option::is_some) => leaving.map_or(Some(Leaving::Abandoned), |leaving| *leaving),
        };
        match (leaving, &reserved) {
            (None, _) => {}
            (Some(Leaving::Over), Some(held)) => {
                if let Err(error) = held.release(&state.engine).await {
                    tracing::debug!(%error, "cannot release the system id of this server; the reservation expires");
                }
                return;
            }
            (Some(_), _) => return,
        }
    }
}

/// Renews the reserved name, or reserves a new one. The caller retries after an error of the store.
async fn renew_or_reserve(state: &State, reserved: Option<Reserved>) -> Result<Reserved, NoSysid> {
    if let Some(reserved) = reserved
        && reserved.renew(&state.engine).await?
    {
        return Ok(reserved);
    }
    let reserved = sysid::reserve(&state.engine, &state.settings.host, &state.sysid()).await?;
    state.journal.rename(Arc::clone(&reserved.sysid));
    state.sysid_state.send_replace(SysidState::Reserved);
    Ok(reserved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_without_run_time_are_left_out_until_one_of_them_has_some() {
        let handler = Arc::new(serde_json::from_str(r#"{"lang":"sh","body":"true"}"#).unwrap());
        let one = |client: &str, has_handler: bool| Type {
            client: Tenant::new(client).unwrap(),
            jobtype: Name::new("t").unwrap(),
            left: 1,
            version: has_handler
                .then(|| handlers::Version { id: "1".to_owned(), handler: Arc::clone(&handler) }),
        };
        let waits_until = |client: &Tenant| match &**client {
            "late" => Some(Timestamp::from_millis(900)),
            "later" => Some(Timestamp::from_millis(950)),
            _ => None,
        };
        let check = |clients: &[(&str, bool)], left: &[&str], again: Option<i64>| {
            let mut types: Vec<Type> = clients.iter().map(|(client, has)| one(client, *has)).collect();
            let at = hold_back(&mut types, waits_until);
            let names: Vec<&str> = types.iter().map(|one| &*one.client).collect();
            assert_eq!((names, at.map(Timestamp::as_millis)), (left.to_vec(), again), "{clients:?}");
        };
        check(&[], &[], None);
        check(&[("a", true), ("b", false)], &["a", "b"], None);
        check(&[("late", true), ("a", true)], &["a"], Some(900));
        check(&[("later", true), ("late", true)], &[], Some(900));
        check(&[("late", false), ("later", true)], &["late"], Some(950));
    }
}
