//! Ingest: pushes the lines of the journal into the store, in bulk. A line is acknowledged once its job is in
//! the store; while the store is unavailable the lines wait. A line delivered twice finds its alias in use
//! and creates no second job.

pub mod pushes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use windlass_core::Tenant;
use windlass_engine::journal::{Journal, JournalError, Line, Token};
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
const FAREWELL: Duration = Duration::from_secs(2);

/// Decoder of some types of lines.
pub trait Reader: Send + Sync {
    /// `None`: a line of another type. `Err`: a line that can never be decoded.
    fn read(&self, line: &Line) -> Option<Result<(Tenant, Push), String>>;
}

pub struct Ingest {
    pub engine: Engine,
    pub journal: Journal,
    pub readers: Vec<Arc<dyn Reader>>,
}

impl Ingest {
    /// Runs until `stop`; then ingests the remaining lines, within `FAREWELL`.
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
                    tracing::warn!("jobs wait in the journal: {error}");
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        _ = stop.wait_for(|stop| *stop) => break,
                    }
                    wait = (wait * 2).min(WAIT_MAX);
                }
            }
        }
        let rest = async { while matches!(self.step().await, Ok(1..)) {} };
        let _ = tokio::time::timeout(FAREWELL, rest).await;
    }

    /// Ingests the next batch. Returns the number of its lines.
    pub async fn step(&self) -> Result<usize, Trouble> {
        let now = self.engine.now();
        let Some(token) = self.journal.reserve(LINES, now.plus_ms(PATIENCE_MS), now)? else { return Ok(0) };
        let lines = self.journal.read(token, now)?;
        let count = lines.len();
        match self.put_in(lines).await {
            Ok(()) => self.let_go(token).await,
            Err(error) => {
                // The lines are delivered again, also if the reservation has expired and this call fails.
                let _ = self.journal.cancel(token);
                return Err(error.into());
            }
        }
        Ok(count)
    }

    async fn let_go(&self, token: Token) {
        let (journal, now) = (self.journal.clone(), self.engine.now());
        // `rsync` waits for the disk.
        let told = tokio::task::spawn_blocking(move || journal.rsync(token, now)).await;
        if let Ok(Err(error)) = told {
            // The lines are delivered again, find their aliases in use, and are acknowledged then.
            tracing::warn!(%error, "lines of the journal stay though the store has them");
        }
    }

    async fn put_in(&self, lines: Vec<Line>) -> Result<(), EngineError> {
        let mut by_tenant: BTreeMap<Tenant, Vec<Push>> = BTreeMap::new();
        for line in lines {
            match self.readers.iter().find_map(|reader| reader.read(&line)) {
                Some(Ok((tenant, push))) => by_tenant.entry(tenant).or_default().push(push),
                Some(Err(why)) => {
                    tracing::error!("line {} of the journal is left out: {why}", line.id)
                }
                None => {
                    tracing::error!("line {} of the journal is left out: unknown type {}", line.id, line.kind)
                }
            }
        }
        // Concurrently, so that the tenants share the store's group commit.
        let mut under_way = JoinSet::new();
        let mut outcome = Ok(());
        for (tenant, pushes) in by_tenant {
            if under_way.len() >= TENANTS_AT_ONCE {
                outcome = outcome.and(joined(&mut under_way).await);
            }
            // Exempt from quotas: the jobs were admitted and acknowledged when the journal accepted them.
            under_way.spawn(push(self.engine.exempt(), tenant, pushes));
        }
        while !under_way.is_empty() {
            outcome = outcome.and(joined(&mut under_way).await);
        }
        outcome
    }
}

async fn joined(under_way: &mut JoinSet<Result<(), EngineError>>) -> Result<(), EngineError> {
    match under_way.join_next().await {
        Some(Ok(outcome)) => outcome,
        // The runtime is shutting down.
        Some(Err(_)) => Err(EngineError::ShuttingDown),
        None => Ok(()),
    }
}

async fn push(engine: Engine, tenant: Tenant, pushes: Vec<Push>) -> Result<(), EngineError> {
    let mut parts = vec![pushes];
    while let Some(part) = parts.pop() {
        match engine.push(&tenant, part.clone()).await {
            Ok(_) => {}
            Err(EngineError::TooMany { max, .. }) => {
                parts.extend(part.rchunks(max.max(1)).map(<[Push]>::to_vec));
            }
            Err(EngineError::TooLarge { max, .. }) => {
                let (fitting, large): (Vec<Push>, Vec<Push>) =
                    part.into_iter().partition(|push| push.payload.bytes.len() <= max);
                let count = large.len();
                tracing::error!("{count} jobs of {tenant} are left out: payloads larger than {max} bytes");
                parts.push(fitting);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error(transparent)]
    Store(#[from] EngineError),
    #[error(transparent)]
    Journal(#[from] JournalError),
}
