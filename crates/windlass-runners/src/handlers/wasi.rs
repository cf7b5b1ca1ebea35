//! WASI handlers: the body is the blob address of a WebAssembly module, the payload of a job is its standard
//! input, and standard output is the result.
//!
//! The modules run in the same kind of guest process as other WASI jobs (see `crate::wasi`), except that a
//! process belongs to one client, like every context.

use super::outcome::{TOO_MUCH, Verdict};
use super::output::{Output, split_answer};
use super::run::{Drive, Interrupt};
use super::{BlobError, Inner};
use crate::wasi::child::{Child, GuestProgram, RunEnd};
use crate::wasi::job_source::FetchError;
use crate::wasi::message::{How, Limits};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::handler::Ended;

/// Owner of a guest process, and the time limit of its modules, which is fixed at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    client: String,
    time_limit: Duration,
}

/// Idle guest processes, longest idle first.
#[derive(Default)]
pub(super) struct Guests {
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    key: Key,
    child: Child,
    since: Instant,
}

impl Guests {
    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock()
    }

    fn take(&self, key: &Key) -> Option<Child> {
        let mut idle = self.idle();
        let at = idle.iter().rposition(|idle| idle.key == *key)?;
        Some(idle.remove(at).child)
    }

    /// Keeps an idle guest, at most as many as concurrent batches; dropping a guest kills it.
    fn keep(&self, inner: &Arc<Inner>, key: Key, child: Child) {
        let was_empty = {
            let mut idle = self.idle();
            let was_empty = idle.is_empty();
            if idle.len() >= inner.settings.wasi_batches_max && !was_empty {
                idle.remove(0);
            }
            idle.push(Idle { key, child, since: Instant::now() });
            was_empty
        };
        if was_empty {
            tokio::spawn(tidy_up(Arc::downgrade(inner)));
        }
    }

    pub(super) fn end(&self) {
        self.idle().clear();
    }
}

/// Task that kills expired idle guests; ends when none is idle.
async fn tidy_up(inner: Weak<Inner>) {
    loop {
        let Some(strong) = inner.upgrade() else { return };
        let idle_max = strong.settings.idle;
        let next = {
            let mut idle = strong.guests.idle();
            idle.retain(|idle| idle.since.elapsed() < idle_max);
            idle.first().map(|idle| idle.since + idle_max)
        };
        drop(strong);
        let Some(next) = next else { return };
        tokio::time::sleep_until(next).await;
    }
}

pub(super) async fn drive(drive: &mut Drive) {
    let key = Key { client: drive.batch.client.clone(), time_limit: drive.time_limit() };
    let inner = drive.inner.clone();
    let mut child = inner.guests.take(&key);
    let mut is_first = true;
    loop {
        let pending = drive.pending();
        if !std::mem::replace(&mut is_first, false) && drive.is_cut() {
            drive.tell_all_unrun(Interrupt::Cut.why());
            break;
        }
        // All pending jobs as a whole, or the first one.
        let turn = match drive.batch.handler.options.batch {
            true => pending.as_slice(),
            false => &pending[..pending.len().min(1)],
        };
        if turn.is_empty() {
            break;
        }
        let mut guest = match child.take() {
            Some(guest) => guest,
            None => match start_guest(&inner, &key).await {
                Ok(guest) => guest,
                Err(why) => return drive.tell_all(&Verdict::error("NO_CONTEXT", why)),
            },
        };
        match run_turn(drive, &mut guest, turn, key.time_limit).await {
            Turn::Usable if !guest.has_grown_too_big() => child = Some(guest),
            Turn::Usable | Turn::Broken => guest.kill().await,
            Turn::Interrupted(interrupt) => {
                guest.kill().await;
                match interrupt {
                    // The next call of `pending` reports stopped jobs.
                    Interrupt::Stopped | Interrupt::Cut => {}
                    Interrupt::Dropped | Interrupt::Stopping => return drive.tell_all_unrun(interrupt.why()),
                }
            }
        }
    }
    if let Some(child) = child {
        inner.guests.keep(&inner, key, child);
    }
}

async fn start_guest(inner: &Inner, key: &Key) -> Result<Child, String> {
    let settings = &inner.settings;
    let program = settings.wasi_guest.as_ref().ok_or("this server does not run wasi handlers")?;
    let program = GuestProgram { path: program.path.clone(), args: program.args.clone() };
    let limits = Limits {
        time_limit_ms: u64::try_from(key.time_limit.as_millis()).unwrap_or(u64::MAX),
        memory_bytes_max: settings.memory_bytes_max,
        output_bytes_max: settings.result_bytes_max as u64,
        ..Limits::default()
    };
    let child = Child::start(&program, limits)
        .await
        .map_err(|error| format!("cannot start a process for wasi handlers: {error}"))?;
    if settings.strict {
        child.check_strict()?;
    }
    Ok(child)
}

enum Turn {
    Usable,
    Broken,
    Interrupted(Interrupt),
}

async fn run_turn(drive: &mut Drive, guest: &mut Child, turn: &[usize], time_limit: Duration) -> Turn {
    let (inner, client) = (drive.inner.clone(), drive.batch.client.clone());
    let module = drive.batch.handler.body.trim().to_owned();
    let fetch = async {
        inner.world.blob(&client, &module).await.map_err(|error| match error {
            BlobError::Missing(why) => FetchError::Missing(why),
            BlobError::Trouble(why) => FetchError::Trouble(why),
        })
    };
    let running = (turn.len() == 1).then(|| turn[0]);
    let began = Instant::now();
    let input = drive.lines(turn);
    let end = tokio::select! {
        end = guest.run(&module, input, fetch) => end,
        interrupt = drive.interrupted(running) => return Turn::Interrupted(interrupt),
    };
    let took = began.elapsed();
    let usable = end.leaves_it_usable();
    let (verdict, stdout, stderr) = judge(end, took >= time_limit);
    match drive.batch.handler.options.batch {
        true => {
            let mut output = Output::with_statuses(drive.limits(), turn.len());
            output.stdout(&stdout);
            output.stderr(&stderr);
            for (index, outcome) in drive.status_outcomes(turn, &verdict, usable, output, took) {
                drive.tell(index, Ended::Done(outcome));
            }
        }
        false => {
            let (result, mut output) = split_answer(stdout, drive.limits());
            output.stderr(&stderr);
            let outcome = drive.outcome(verdict, result, output, took);
            drive.tell(turn[0], Ended::Done(outcome));
        }
    }
    if usable { Turn::Usable } else { Turn::Broken }
}

/// Verdict, stdout and stderr of a run.
fn judge(end: RunEnd, late: bool) -> (Verdict, Bytes, Bytes) {
    let without_output = |code: &str, why: String| (Verdict::error(code, why), Bytes::new(), Bytes::new());
    match end {
        RunEnd::Ended(ended) => {
            let verdict = match ended.how {
                How::Exit(code) => Verdict::exit(code),
                How::Failed(why) if late => Verdict::error("ETIMEDOUT", why),
                How::Failed(why) => Verdict::error("TRAP", why),
                How::TooMuchOutput(why) => Verdict::error(TOO_MUCH, why),
            };
            (verdict, ended.stdout.into(), ended.stderr.into())
        }
        RunEnd::NoModule(FetchError::Missing(why)) => {
            without_output("BAD_HANDLER", format!("the module is not available: {why}"))
        }
        RunEnd::NoModule(FetchError::Trouble(why)) => {
            without_output("NO_CONTEXT", format!("cannot fetch the module: {why}"))
        }
        RunEnd::Killed(why) | RunEnd::Lost(why) => without_output("SIGNAL", why),
    }
}
