//! State shared by the worker's tasks: registration and running jobs.

use super::client::Client;
use super::error::Error;
use super::handler::Handler;
use super::wire::NewWorker;
use super::worker::Summary;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// Interval of heartbeats. The server removes a worker after ten seconds of silence, so one heartbeat may be
/// lost and another late.
const PING_EVERY: Duration = Duration::from_secs(4);
/// Timeout of a heartbeat.
const PING_WITHIN: Duration = Duration::from_secs(3);
/// Pause between attempts while the server is unavailable.
const PAUSE: Duration = Duration::from_millis(500);
/// Time to drop the remaining jobs after the grace time. A handler that never reaches an `.await` cannot be
/// dropped.
const DROP_WITHIN: Duration = Duration::from_secs(1);

/// State shared by the worker's tasks.
pub(super) struct Shared {
    pub client: Client,
    pub handlers: HashMap<String, Handler>,
    /// Slots for running handlers.
    pub places: Arc<Semaphore>,
    pub registration: watch::Sender<Registration>,
    pub counts: Counts,
    pub is_leaving: AtomicBool,
    /// Accepted jobs whose result is not reported yet.
    pub active: watch::Sender<usize>,
    pub name: String,
    pub max_jobs: u32,
    pub url: Option<String>,
    pub port: u16,
}

/// Registration at the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Registration {
    /// `None`: not registered at present.
    pub id: Option<Arc<str>>,
    pub accepts: bool,
}

#[derive(Default)]
pub(super) struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

impl Counts {
    pub(super) fn summary(&self) -> Summary {
        Summary {
            done: self.done.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }

    pub(super) fn done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Accepted job; counted until its result is reported or given up.
pub(super) struct Active(Arc<Shared>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.send_modify(|active| *active -= 1);
    }
}

impl Shared {
    pub(super) fn begin(self: &Arc<Self>) -> Active {
        self.active.send_modify(|active| *active += 1);
        Active(Arc::clone(self))
    }

    /// Waits until this worker is no longer registered under this id.
    pub(super) async fn lost(&self, id: &str) {
        let mut registration = self.registration.subscribe();
        // Cannot fail: `self` holds the sender.
        let _ = registration.wait_for(|registration| registration.id.as_deref() != Some(id)).await;
    }

    /// Registers, repeatedly until it succeeds or `until` has passed.
    pub(super) async fn register(&self, until: Option<Instant>) -> Result<(), Error> {
        let port = self.url.is_none().then_some(self.port);
        let asked = NewWorker { name: &self.name, max_jobs: self.max_jobs, url: self.url.as_deref(), port };
        loop {
            // No job is accepted before the first heartbeat: from then on the server notices if this process
            // dies.
            let registered = match self.client.register(&asked).await {
                Ok(id) => self.client.ping(&id, PING_WITHIN).await.map(|()| id),
                Err(error) => Err(error),
            };
            match registered {
                Ok(id) => {
                    tracing::info!(worker = %id, "registered as {id}");
                    self.registration.send_replace(Registration { id: Some(id.into()), accepts: true });
                    return Ok(());
                }
                Err(error)
                    if error.is_retryable() && until.is_none_or(|until| Instant::now() + PAUSE < until) =>
                {
                    tracing::warn!(%error, "cannot register yet; retrying");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks the server to send no more jobs. Returns true if the server has confirmed.
    pub(super) async fn drain(&self, until: Instant) -> bool {
        let id = self.registration.borrow().id.clone();
        let told = loop {
            let Some(id) = &id else { break false };
            match self.client.drain(id).await {
                Ok(()) => break true,
                Err(error) if error.is_retryable() && Instant::now() + PAUSE < until => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot tell the server that this worker is shutting down");
                    break false;
                }
            }
        };
        self.registration.send_modify(|registration| registration.accepts = false);
        told
    }

    /// Drops the running jobs and deregisters.
    pub(super) async fn abort_running(&self) {
        let id = self.registration.send_replace(Registration::default()).id;
        let mut active = self.active.subscribe();
        let _ = tokio::time::timeout(DROP_WITHIN, active.wait_for(|active| *active == 0)).await;
        if let Some(id) = id
            && let Err(error) = self.client.leave(&id).await
            && !error.is_not_found()
        {
            tracing::warn!(%error, "cannot unregister this worker; the server removes it after a timeout");
        }
    }
}

/// Sends heartbeats. Registers again if the server no longer knows this worker.
pub(super) async fn keep_alive(shared: Arc<Shared>) {
    let mut is_away = false;
    loop {
        let Some(id) = shared.registration.borrow().id.clone() else { return };
        let pause = match shared.client.ping(&id, PING_WITHIN).await {
            Ok(()) => {
                if is_away {
                    tracing::info!("the server is reachable again");
                }
                is_away = false;
                PING_EVERY
            }
            Err(error) if error.is_not_found() => {
                if shared.is_leaving.load(Ordering::SeqCst) {
                    return;
                }
                tracing::warn!(worker = %id, "the server has removed this worker; registering again");
                shared.registration.send_replace(Registration::default());
                while let Err(error) = shared.register(None).await {
                    tracing::error!(%error, "cannot register again; retrying");
                    tokio::time::sleep(PING_EVERY).await;
                }
                continue;
            }
            Err(error) => {
                if !is_away {
                    tracing::warn!(%error, "the server does not respond; running jobs continue");
                }
                is_away = true;
                PAUSE
            }
        };
        tokio::time::sleep(pause).await;
    }
}
