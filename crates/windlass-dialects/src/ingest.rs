//! Ingest: pushes the lines of the journal into the store, in bulk. A line is acknowledged once its job is in
//! the store; while the store is unavailable the lines wait.
//!
//! The jobs of a tenant and the position of the last of their lines are one commit, and the commits of a tenant
//! follow each other in the order of the lines. So a position says that every line of the tenant up to it is in
//! the store, and a line that is delivered again is skipped, also if its job is finished and deleted by then.
//! See `docs/adr/0015`.

mod positions;
pub mod pushes;

use positions::Positions;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use windlass_core::Tenant;
use windlass_engine::journal::{Journal, JournalError, Line, Place, Position, Token};
use windlass_engine::{Engine, EngineError, Push};

/// Most lines of a batch: one commit per tenant in it.
const LINES: usize = 5_000;
/// Tenants whose pushes are in flight at once.
const TENANTS_AT_ONCE: usize = 64;
/// Reservation of a batch; after it the lines are delivered again. Longer than any commit, also of a busy
/// database.
const PATIENCE_MS: i64 = 60_000;
/// Backoff after an error of the store: short at first, bounded for a long outage.
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Time a shutdown waits for the remaining lines; after it they are left for the next start.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);

/// Decoder of some types of lines.
pub trait Reader: Send + Sync {
    /// `None`: a line of another type. `Err`: a line that can never be decoded.
    fn read(&self, line: &Line) -> Option<Result<(Tenant, Push), String>>;
}

pub struct Ingest {
    engine: Engine,
    journal: Journal,
    readers: Vec<Arc<dyn Reader>>,
    /// Locked during a step: two steps at once could commit the lines of a tenant out of order.
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// `None`: to be read from the store. So it is at the start, and after an error, when the last commit may
    /// have happened all the same.
    positions: Option<Positions>,
    /// Reservation of a step under way, or of a step that was dropped.
    reserved: Option<Token>,
    /// Last line of each tenant whose quota reservation is converted; kept after an error. `None` until the
    /// positions were read once: lines that are in the store by then were not reserved by this process.
    converted: Option<Places>,
}

type Places = BTreeMap<Tenant, Place>;

/// Line with the push it stands for.
#[derive(Clone)]
struct Entry {
    position: Position,
    push: Push,
}

impl Ingest {
    pub fn new(engine: Engine, journal: Journal, readers: Vec<Arc<dyn Reader>>) -> Ingest {
        Ingest { engine, journal, readers, progress: Mutex::default() }
    }

    /// Runs until `stop`; then ingests the remaining lines, within `SHUTDOWN_WAIT`.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut wait = WAIT_FIRST;
        loop {
            let arrival = self.journal.arrival();
            match self.step().await {
                Ok(0) => tokio::select! {
                    () = arrival => {}
                    _ = stop.wait_for(|stop| *stop) => break,
                },
                Ok(_) => wait = WAIT_FIRST,
                Err(error) => {
                    tracing::warn!("cannot move jobs from the journal to the store; retrying: {error}");
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        _ = stop.wait_for(|stop| *stop) => break,
                    }
                    wait = (wait * 2).min(WAIT_MAX);
                }
            }
        }
        let rest = async {
            while matches!(self.step().await, Ok(1..)) {}
            self.tidy().await;
        };
        let _ = tokio::time::timeout(SHUTDOWN_WAIT, rest).await;
    }

    /// Ingests the next batch. Returns the number of its lines.
    pub async fn step(&self) -> Result<usize, IngestError> {
        let mut progress = self.progress.lock().await;
        if let Some(dropped) = progress.reserved.take() {
            // Before any later line. Fails if the reservation has expired: then they are back already.
            let _ = self.journal.cancel(dropped);
        }
        let now = self.engine.now();
        let Some(token) = self.journal.reserve(LINES, now.plus_ms(PATIENCE_MS), now)? else { return Ok(0) };
        progress.reserved = Some(token);
        // Taken out, so that a step that fails or is dropped leaves none.
        let positions = progress.positions.take();
        let ingested = self.ingest(token, positions, &mut progress.converted).await;
        progress.reserved = None;
        match ingested {
            Ok((count, positions)) => {
                progress.positions = Some(positions);
                self.acknowledge(token).await;
                Ok(count)
            }
            Err(error) => {
                // The lines are delivered again, also if the reservation has expired and this call fails.
                let _ = self.journal.cancel(token);
                Err(error)
            }
        }
    }

    async fn ingest(
        &self,
        token: Token,
        positions: Option<Positions>,
        converted: &mut Option<Places>,
    ) -> Result<(usize, Positions), IngestError> {
        let lines = self.journal.read(token, self.engine.now())?;
        let mut positions = match positions {
            Some(positions) => positions,
            None => Positions::load(&self.engine, &self.journal).await?,
        };
        let converted = converted.get_or_insert_with(|| positions.places().clone());
        let count = lines.len();
        self.push_lines(lines, &mut positions, converted).await?;
        Ok((count, positions))
    }

    /// Deletes the positions that are of no use any more, at a clean stop usually all.
    async fn tidy(&self) {
        let mut progress = self.progress.lock().await;
        if progress.positions.take().is_some_and(|positions| !positions.is_empty())
            && let Err(error) = Positions::load(&self.engine, &self.journal).await
        {
            tracing::debug!(%error, "cannot delete old journal positions from the store");
        }
    }

    async fn acknowledge(&self, token: Token) {
        let (journal, now) = (self.journal.clone(), self.engine.now());
        // `rsync` waits for the disk.
        let told = tokio::task::spawn_blocking(move || journal.rsync(token, now)).await;
        if let Ok(Err(error)) = told {
            // The lines are delivered again, skipped by their position, and acknowledged then.
            tracing::warn!(%error, "cannot acknowledge journal lines that are in the store; they are read again");
        }
    }

    async fn push_lines(
        &self,
        lines: Vec<(Place, Line)>,
        positions: &mut Positions,
        converted: &mut Places,
    ) -> Result<(), EngineError> {
        // Concurrently, so that the tenants share the store's group commit.
        let mut under_way = JoinSet::new();
        let mut outcome = Ok(());
        for (tenant, entries) in self.decode(lines, positions, converted) {
            if under_way.len() >= TENANTS_AT_ONCE {
                outcome = outcome.and(joined(&mut under_way, positions, converted).await);
            }
            // Exempt from quotas: the jobs were admitted and acknowledged when the journal accepted them.
            under_way.spawn(push(self.engine.exempt(), positions.key(&tenant), tenant, entries));
        }
        while !under_way.is_empty() {
            outcome = outcome.and(joined(&mut under_way, positions, converted).await);
        }
        outcome
    }

    /// Entries of each tenant in order, without the lines that are in the store already. Converts the quota
    /// reservations of the latter, if the answer to their commit was lost.
    fn decode(
        &self,
        lines: Vec<(Place, Line)>,
        positions: &Positions,
        converted: &mut Places,
    ) -> BTreeMap<Tenant, Vec<Entry>> {
        let mut by_tenant: BTreeMap<Tenant, Vec<Entry>> = BTreeMap::new();
        for (place, line) in lines {
            match self.readers.iter().find_map(|reader| reader.read(&line)) {
                Some(Ok((tenant, push))) if positions.covers(&tenant, place) => {
                    if converted.get(&tenant).is_none_or(|last| place > *last) {
                        self.engine.convert_reservations(&tenant, 1, push.payload.bytes.len() as u64);
                        converted.insert(tenant, place);
                    }
                }
                Some(Ok((tenant, push))) => {
                    let position = Position { place, line: line.id };
                    by_tenant.entry(tenant).or_default().push(Entry { position, push });
                }
                Some(Err(why)) => {
                    tracing::error!("journal line {} is skipped: {why}", line.id)
                }
                None => {
                    tracing::error!("journal line {} is skipped: unknown type {}", line.id, line.kind)
                }
            }
        }
        by_tenant
    }
}

/// Tenant, place of its last line that was pushed, also before an error, and the result.
type Arrived = (Tenant, Option<Place>, Result<(), EngineError>);

async fn joined(
    under_way: &mut JoinSet<Arrived>,
    positions: &mut Positions,
    converted: &mut Places,
) -> Result<(), EngineError> {
    match under_way.join_next().await {
        Some(Ok((tenant, last, outcome))) => {
            if let Some(place) = last {
                converted.insert(tenant.clone(), place);
                positions.advance(tenant, place);
            }
            outcome
        }
        // The runtime is shutting down.
        Some(Err(_)) => Err(EngineError::ShuttingDown),
        None => Ok(()),
    }
}

/// Pushes the entries of one tenant in order, in one commit or several. After an error nothing that follows is
/// tried: it comes again with the line that failed.
async fn push(engine: Engine, key: String, tenant: Tenant, entries: Vec<Entry>) -> Arrived {
    let mut last = None;
    let mut parts = vec![entries];
    while let Some(part) = parts.pop() {
        let Some(end) = part.last().map(|entry| entry.position.clone()) else { continue };
        let pushes = part.iter().map(|entry| entry.push.clone()).collect();
        match engine.push_with_note(&tenant, pushes, (&key, end.encode())).await {
            Ok(_) => last = Some(end.place),
            Err(EngineError::TooMany { max, .. }) => {
                parts.extend(part.rchunks(max.max(1)).map(<[Entry]>::to_vec));
            }
            Err(EngineError::TooLarge { max, .. }) => {
                let (fitting, large): (Vec<Entry>, Vec<Entry>) =
                    part.into_iter().partition(|entry| entry.push.payload.bytes.len() <= max);
                let count = large.len();
                tracing::error!(
                    "{count} jobs of tenant {tenant} are skipped: their payloads are larger than {max} \
                 bytes"
                );
                parts.push(fitting);
            }
            Err(error) => return (tenant, last, Err(error)),
        }
    }
    (tenant, last, Ok(()))
}

#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    #[error(transparent)]
    Store(#[from] EngineError),
    #[error(transparent)]
    Journal(#[from] JournalError),
}
