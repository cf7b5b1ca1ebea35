//! Wall clock against the engine's timeline: detects that the wall clock was set, and moves the jobs that
//! wait for a date. See `docs/adr/0009-time-goes-on-whatever-the-clock-says.md`.

use crate::engine::Inner;
use crate::error::EngineError;
use crate::time::clock::{Clock, StoreClock};
use crate::verbs::JobEvent;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use windlass_core::event::Patch;
use windlass_core::{Event, StateName, Timestamp};
use windlass_store::calendar::{CLOCK, Kept, WallStep};
use windlass_store::query::{PAGE_MAX, Pages};
use windlass_store::{Filter, SharedStore, Store};

/// Interval of comparing the two.
const LOOK_EVERY_MS: u64 = 500;
/// A reading that took longer is repeated: the thread was suspended in between.
const READING_MAX_MS: i64 = 50;
/// Part of the timeline that may occur twice after a crash with the clock set back.
const NOTE_EVERY_MS: i64 = 1_000;
/// On a shared store: after this time, writes that other servers had begun when the clock was set are
/// committed.
const WRITTEN_AFTER_MS: i64 = 30_000;

/// Offset of the wall clock, and its recorded steps.
pub(crate) struct Calendar {
    kept: Mutex<Kept>,
    /// Time at which the timeline was last written to the store; `MAX`: never, because the store has its own
    /// clock.
    noted_ms: AtomicI64,
    /// True if jobs were claimed since: a claim is a commit of the store that cannot carry a setting.
    claimed: AtomicBool,
    /// On a shared store: steps whose jobs are all moved.
    moved: Mutex<Vec<WallStep>>,
}

impl Calendar {
    /// Clock that continues the store's timeline, and the calendar.
    pub(crate) async fn open(
        store: &dyn Store,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<dyn Clock>, Calendar), EngineError> {
        if store.shared().is_some() {
            let calendar = Calendar {
                kept: Mutex::default(),
                noted_ms: AtomicI64::new(i64::MAX),
                claimed: AtomicBool::new(false),
                moved: Mutex::default(),
            };
            return Ok((clock, calendar));
        }
        let found = store.settings(CLOCK).await?.into_iter().find(|(key, _)| key == CLOCK);
        let kept = found.and_then(|(_, bytes)| serde_json::from_slice::<Kept>(&bytes).ok());
        let (now_ms, wall_ms) = read(&*clock);
        let kept = kept.unwrap_or(Kept { ahead_ms: 0, seen_ms: wall_ms, steps: Vec::new() });
        let resume_ms = kept.resume_ms(wall_ms);
        clock.show_ahead(kept.ahead_ms);
        let clock: Arc<dyn Clock> = match resume_ms - now_ms {
            0 => clock,
            ahead_ms => Arc::new(StoreClock::new(clock, Arc::new(AtomicI64::new(ahead_ms)))),
        };
        let calendar = Calendar {
            kept: Mutex::new(kept),
            noted_ms: AtomicI64::new(i64::MIN),
            claimed: AtomicBool::new(false),
            moved: Mutex::default(),
        };
        Ok((clock, calendar))
    }

    /// Setting with the current time, to be written with the next commit; `None` if the last one is recent.
    pub(crate) fn note_time(&self, now: Timestamp) -> Option<(String, Option<Vec<u8>>)> {
        let (now_ms, noted_ms) = (now.as_millis(), self.noted_ms.load(Ordering::Relaxed));
        if now_ms.saturating_sub(noted_ms) < NOTE_EVERY_MS {
            return None;
        }
        let is_ours = self.noted_ms.compare_exchange(noted_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed);
        is_ours.ok()?;
        Some((CLOCK.to_owned(), Some(self.change(|kept| kept.seen_ms = now_ms).bytes())))
    }

    pub(crate) fn note_claim(&self) {
        self.claimed.store(true, Ordering::Relaxed);
    }

    fn change(&self, change: impl FnOnce(&mut Kept)) -> Kept {
        let mut kept = self.kept.lock();
        change(&mut kept);
        kept.clone()
    }

    fn kept(&self) -> Kept {
        self.change(|_| {})
    }

    fn has_moved(&self, steps: &[WallStep]) -> bool {
        *self.moved.lock() == steps
    }

    fn note_moved(&self, steps: Vec<WallStep>) {
        *self.moved.lock() = steps;
    }
}

/// Timeline and wall clock at the same moment.
fn read(clock: &dyn Clock) -> (i64, i64) {
    loop {
        let (before, wall, after) = (clock.now(), clock.wall(), clock.now());
        if after.since_ms(before) <= READING_MAX_MS {
            return (before.as_millis(), wall.as_millis());
        }
    }
}

/// Compares repeatedly, until the engine is dropped.
pub(crate) async fn watch(clock: Arc<dyn Clock>, engine: Weak<Inner>) {
    loop {
        {
            let Some(engine) = engine.upgrade() else { return };
            let Ok(in_flight) = engine.enter() else { return };
            let followed = match in_flight.store.shared() {
                Some(shared) => match shared.calendar() {
                    Some(kept) => in_flight.follow_store(shared, kept).await,
                    None => return,
                },
                None => in_flight.follow_wall().await,
            };
            if let Err(error) = followed {
                tracing::warn!(%error, "cannot reschedule jobs after a change of the clock; retrying");
            }
        }
        clock.sleep_ms(LOOK_EVERY_MS).await;
    }
}

impl Inner {
    /// Writes the current time to the store, if due; also called before the store is closed.
    pub(crate) async fn note_time(&self) {
        if let Some((key, value)) = self.calendar.note_time(self.now())
            && let Err(error) = self.store.put_setting(&key, value).await
        {
            tracing::debug!(%error, "cannot store the current time");
        }
    }

    async fn follow_wall(self: &Arc<Self>) -> Result<(), EngineError> {
        if self.calendar.claimed.swap(false, Ordering::Relaxed) {
            self.note_time().await;
        }
        let (now_ms, wall_ms) = read(&*self.clock);
        if let Some(step) = self.calendar.kept().step(now_ms, wall_ms) {
            let way = if step.by_ms > 0 { "forward" } else { "back" };
            let seconds = step.by_ms.unsigned_abs() as f64 / 1_000.0;
            tracing::warn!(
                "the clock was set {way} by {seconds:.1} s; leases, delays and retries are not \
                 affected, jobs scheduled for a date follow the new time"
            );
            let kept = self.calendar.change(|kept| {
                kept.take(step);
                kept.seen_ms = kept.seen_ms.max(now_ms);
            });
            self.clock.show_ahead(kept.ahead_ms);
            self.store.put_setting(CLOCK, Some(kept.bytes())).await?;
        }
        let kept = self.calendar.kept();
        if kept.steps.is_empty() {
            return Ok(());
        }
        self.move_appointments(&kept).await?;
        let done = kept.steps;
        let kept = self.calendar.change(|kept| kept.steps.retain(|step| !done.contains(step)));
        Ok(self.store.put_setting(CLOCK, Some(kept.bytes())).await?)
    }

    /// On a shared store, whose clock all servers use: every server moves the jobs that are left. Once no
    /// earlier write can be outstanding, the first server to notice deletes the steps, so that servers
    /// started later need not scan the jobs.
    async fn follow_store(self: &Arc<Self>, shared: &dyn SharedStore, kept: Kept) -> Result<(), EngineError> {
        let known = self.calendar.kept();
        self.clock.show_ahead(kept.ahead_ms);
        if kept.steps.is_empty() || self.calendar.has_moved(&kept.steps) {
            self.calendar.change(|known| *known = kept);
            return Ok(());
        }
        let now_ms = self.now().as_millis();
        let is_written = kept.steps.iter().all(|step| now_ms.saturating_sub(step.at_ms) >= WRITTEN_AFTER_MS);
        if is_written || kept.steps != known.steps {
            self.move_appointments(&kept).await?;
        }
        self.calendar.change(|known| *known = kept.clone());
        if is_written {
            let rest = Kept { steps: Vec::new(), ..kept.clone() };
            // Refused if another server was first, or has recorded another step, which is processed next.
            shared.swap_setting(CLOCK, Some(kept.bytes()), rest.bytes()).await?;
            self.calendar.note_moved(kept.steps);
        }
        Ok(())
    }

    /// Moves jobs that were written before the clock was set and wait for a date, so that they wait for the
    /// same date by the new time. The move writes the job, so none is moved twice.
    async fn move_appointments(self: &Arc<Self>, kept: &Kept) -> Result<(), EngineError> {
        let states = vec![StateName::Ready, StateName::Waiting];
        let mut pages = Pages::new(Filter { states, limit: PAGE_MAX, ..Filter::default() });
        while let Some(jobs) = pages.next(&*self.store).await? {
            let (mut asks, mut known) = (Vec::new(), Vec::new());
            for job in jobs {
                let Some(run_at) = kept.moved(&job) else { continue };
                let if_version = Some(job.version);
                let patch = Patch { run_at: Some(run_at), if_version, ..Patch::default() };
                asks.push(JobEvent { id: job.id, event: Event::Update(Box::new(patch)) });
                known.push(job);
            }
            if !asks.is_empty() {
                // A refused job was deleted, or written since, with the step applied.
                self.change(None, asks, known).await?;
            }
        }
        Ok(())
    }
}
