//! Takes jobs and has them run: looks which types have jobs waiting, lets the scheduler choose, claims a batch and starts
//! it. `run` waits, `step` works.

use super::running::Runners;
use super::schedule::Candidate;
use super::sysid::{self, NoSysid, Reserved};
use super::{State, SysidState, commands, drive, handlers};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::{Name, Tenant};
use windlass_engine::EngineError;

/// Jobs without a handler that are put off at once.
const ORPHANS_MAX: usize = 500;
/// Waits after trouble with the store.
const WAIT_FIRST: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(2);

pub async fn run(state: Arc<State>, runners: Arc<dyn Runners>) {
    let news = state.engine.ready_news(&commands::queue());
    let mut stop = state.stop.subscribe();
    let mut started = state.is_started.subscribe();
    let mut wait = WAIT_FIRST;
    let mut known = Known::new();
    loop {
        // In line before looking: room that appears after the look is heard of.
        let room = runners.room();
        let is_started = *started.borrow_and_update();
        let looked = if is_started { step(&state, &runners, &mut known).await } else { Ok(Looked::Done) };
        let (wants_room, pause) = match looked {
            Ok(looked) => {
                wait = WAIT_FIRST;
                (looked == Looked::NoRoom, None)
            }
            Err(error) => {
                tracing::warn!("no jobs are started: {error}");
                let pause = Some(wait);
                wait = (wait * 2).min(WAIT_MAX);
                (false, pause)
            }
        };
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = news.notified() => {}
            () = state.again.notified() => {}
            () = room, if wants_room => {}
            _ = started.changed() => {}
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// Nothing is left that could be started.
    Done,
    /// Jobs wait for room.
    NoRoom,
}

/// A type with jobs waiting, as one look found it.
struct Type {
    client: Tenant,
    jobtype: Name,
    left: u64,
    version: Option<handlers::Version>,
}

/// Handlers as they were when they were last looked at: good enough to say where there is room.
type Known = HashMap<(Tenant, Name), Option<handlers::Version>>;

async fn step(
    state: &Arc<State>,
    runners: &Arc<dyn Runners>,
    known: &mut Known,
) -> Result<Looked, EngineError> {
    let mut types = Vec::new();
    let mut still_known = Known::new();
    for waiting in state.engine.waiting(&commands::queue()).await? {
        let address = (waiting.tenant.clone(), waiting.name.clone());
        let version = match known.remove(&address) {
            Some(version) => version,
            None => handlers::newest(&state.engine, &waiting.tenant, &waiting.name).await?,
        };
        still_known.insert(address, version.clone());
        types.push(Type { client: waiting.tenant, jobtype: waiting.name, left: waiting.ready, version });
    }
    *known = still_known;
    if types.is_empty() {
        return Ok(Looked::Done);
    }
    reserved(state).await;
    while !*state.stop.borrow() && *state.is_started.borrow() {
        let place = match choose(state, runners, &types) {
            Choice::Nothing => return Ok(Looked::Done),
            Choice::NoRoom => return Ok(Looked::NoRoom),
            Choice::Type(place) => place,
        };
        let chosen = &mut types[place];
        // The one that runs is the newest, whoever has set it.
        let version = handlers::newest(&state.engine, &chosen.client, &chosen.jobtype).await?;
        if version != chosen.version {
            known.insert((chosen.client.clone(), chosen.jobtype.clone()), version.clone());
            chosen.version = version;
            continue;
        }
        let size = chosen.version.as_ref().map_or(ORPHANS_MAX, |one| runners.batch_size(&one.handler)).max(1);
        let claim =
            commands::claim(&chosen.client, &chosen.jobtype, size, &state.sysid(), state.settings.lock_ms);
        let jobs = state.engine.claim(claim).await?.accept();
        // Another server may have been quicker.
        chosen.left = if jobs.len() < size { 0 } else { chosen.left.saturating_sub(size as u64) };
        if !jobs.is_empty() {
            let version = chosen.version.clone();
            drive::start(state, runners, chosen.client.clone(), chosen.jobtype.clone(), version, jobs);
        }
    }
    Ok(Looked::Done)
}

enum Choice {
    Type(usize),
    NoRoom,
    Nothing,
}

fn choose(state: &State, runners: &Arc<dyn Runners>, types: &[Type]) -> Choice {
    let warm = runners.warm();
    let has_room = |one: &Type| {
        one.version
            .as_ref()
            .is_none_or(|version| runners.has_room(&one.client, &one.jobtype, &version.handler))
    };
    let waiting: Vec<usize> = (0..types.len()).filter(|place| types[*place].left > 0).collect();
    let places: Vec<usize> = waiting.iter().copied().filter(|place| has_room(&types[*place])).collect();
    let candidate = |place: &usize| {
        let one = &types[*place];
        let is_warm = warm.iter().any(|(client, jobtype)| *client == *one.client && *jobtype == *one.jobtype);
        Candidate { client: one.client.clone(), jobtype: one.jobtype.clone(), is_warm }
    };
    let candidates: Vec<Candidate> = places.iter().map(candidate).collect();
    let chances = [state.engine.chance(), state.engine.chance(), state.engine.chance()];
    match state.scheduler().select_jobtype_to_run(&candidates, chances) {
        Some(place) => Choice::Type(places[place]),
        None if waiting.is_empty() => Choice::Nothing,
        None => Choice::NoRoom,
    }
}

/// Until this server has a name that is its own.
async fn reserved(state: &State) {
    let mut known = state.sysid_state.subscribe();
    state.sysid_wanted.notify_one();
    let mut stop = state.stop.subscribe();
    tokio::select! {
        // The sender lives as long as we do.
        _ = known.wait_for(|known| *known != SysidState::Unreserved) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// Reserves the name when somebody needs it, renews it, and releases it at the end.
pub async fn keep_sysid(state: Arc<State>) {
    let mut stop = state.stop.subscribe();
    tokio::select! {
        () = state.sysid_wanted.notified() => {}
        _ = stop.wait_for(|stop| *stop) => return,
    }
    let mut reserved: Option<Reserved> = None;
    loop {
        reserved = match kept(&state, reserved.clone()).await {
            Ok(reserved) => Some(reserved),
            Err(NoSysid::TooManyTries) => {
                let why = NoSysid::TooManyTries.to_string();
                tracing::error!("{why}: no jobs are taken by this server");
                state.sysid_state.send_replace(SysidState::Refused(why));
                return;
            }
            Err(NoSysid::Store(error)) => {
                tracing::warn!("the name of this server is not reserved: {error}");
                tokio::select! {
                    () = tokio::time::sleep(WAIT_MAX) => {}
                    _ = stop.wait_for(|stop| *stop) => return,
                }
                continue;
            }
        };
        let Some(held) = &reserved else { continue };
        let is_over = tokio::select! {
            () = state.engine.sleep_until(state.engine.now().plus_ms(sysid::RENEW_MS)) => false,
            _ = stop.wait_for(|stop| *stop) => true,
        };
        if is_over {
            if let Err(error) = held.release(&state.engine).await {
                tracing::debug!(%error, "the name of this server is released when its time is over");
            }
            return;
        }
    }
}

/// The name that is ours, or a new one. Trouble with the store loses nothing: it is tried again.
async fn kept(state: &State, reserved: Option<Reserved>) -> Result<Reserved, NoSysid> {
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
