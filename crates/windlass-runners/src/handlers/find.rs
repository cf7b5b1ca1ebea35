//! Allocation of a context for a batch: an idle one, or a new one when there is room.

use super::Inner;
use super::context::{Context, NotStarted, Start};
use super::interpreter::Launch;
use super::pool::{Found, Key, Seat};
use super::run::{Drive, Interrupt};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) enum NoContext {
    NotStarted(String),
    Interrupted(Interrupt),
}

pub(super) async fn find_context(drive: &mut Drive, launch: &Launch) -> Result<(Context, Seat), NoContext> {
    let inner = drive.inner.clone();
    let key = inner.key(&drive.batch.client, &drive.batch.jobtype, &drive.batch.handler);
    loop {
        let room = inner.room.notified();
        tokio::pin!(room);
        room.as_mut().enable();
        let found = inner.pool.take(&inner, &key, &drive.batch, &mut drive.hold);
        let (seat, replaced) = match found {
            Found::Warm(context, seat) => return Ok((context, seat)),
            Found::Cold(seat, replaced) => (seat, replaced),
            Found::Full => {
                tokio::select! {
                    () = room => continue,
                    interrupt = drive.interrupted(None) => return Err(NoContext::Interrupted(interrupt)),
                }
            }
        };
        if let Some(mut replaced) = replaced {
            replaced.kill().await;
        }
        let started = tokio::select! {
            started = start_context(drive.inner.clone(), &key, &seat, launch) => started,
            interrupt = drive.interrupted(None) => return Err(NoContext::Interrupted(interrupt)),
        };
        return started.map(|context| (context, seat)).map_err(|NotStarted(why)| NoContext::NotStarted(why));
    }
}

async fn start_context(
    inner: Arc<Inner>,
    key: &Key,
    seat: &Seat,
    launch: &Launch,
) -> Result<Context, NotStarted> {
    let slot = u32::try_from(seat.slot()).unwrap_or(u32::MAX);
    let start = Start {
        settings: &inner.settings,
        launch,
        number: inner.contexts_made.fetch_add(1, Ordering::Relaxed),
        uid: inner.settings.uid_base.map(|base| base.saturating_add(slot)),
        network: key.network,
        client: &key.client,
        census: inner.census.clone(),
        is_apart: inner.isolation.is_apart(),
        cgroups: inner.cgroups.as_ref(),
    };
    let context = Context::start(start).await?;
    if !inner.told_confinement.swap(true, Ordering::Relaxed) {
        tracing::info!("handler processes are isolated by: {}", context.holds);
    }
    Ok(context)
}
