//! Name of this server on a store: a job under a lease that the server renews as long as it runs. The lease
//! reserves the name, and its expiry frees the name of a dead server.

use super::commands;
use crate::query::Filter;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use windlass_core::job::{Keep, KeepFor};
use windlass_core::lease::{LeasePolicy, OnLapse};
use windlass_core::retry::RetryPolicy;
use windlass_core::{
    Event, Extras, Holder, Job, JobId, Name, NameMatch, Outcome, Payload, Policy, Queue, StateName, Tenant,
    Token,
};
use windlass_engine::journal::ids;
use windlass_engine::{Claim, Engine, EngineError, Extend, JobEvent, Push, Pushed, Renew, RunAt};

/// Tenant of the reservations: no caller can belong to it, and no handler runs its queue.
pub const TENANT: &str = "queue.sysid";
/// Reservation of a server without heartbeat.
pub const RESERVED_MS: i64 = 30 * 60_000;
/// Heartbeat: many within the time above.
pub const RENEW_MS: i64 = 60_000;
/// Names tried before giving up. With 24 random bits one try is enough; this many collisions indicate a
/// fault.
const TRIES_MAX: usize = 20;
/// Most jobs per read or commit.
const PAGE: usize = 500;

#[derive(Debug, thiserror::Error)]
pub enum NoSysid {
    #[error("getSysid: too many tries")]
    TooManyTries,
    #[error(transparent)]
    Store(#[from] EngineError),
}

/// Reserved name.
#[derive(Clone, Debug)]
pub struct Reserved {
    pub sysid: Arc<str>,
    id: JobId,
    token: Token,
}

/// Returns a free name without reserving it: an idle server writes nothing.
pub async fn find_free(engine: &Engine, host: &str) -> Result<Arc<str>, NoSysid> {
    for _ in 0..TRIES_MAX {
        let sysid = ids::new_sysid(host, engine.random_u64());
        if engine.find_alias(&tenant(), &sysid).await?.is_none() {
            return Ok(sysid.into());
        }
    }
    Err(NoSysid::TooManyTries)
}

/// Ends the leases of dead servers on a store with a single server, and their reservations. Every reservation
/// found there belongs to an earlier process, so this must run before this server reserves its name. Returns
/// the number of jobs.
pub async fn end_leases_of_dead_servers(engine: &Engine) -> Result<usize, EngineError> {
    if engine.is_shared() {
        return Ok(0);
    }
    let names = running(engine, Some(tenant()), queue(), |_| true).await?;
    if names.is_empty() {
        return Ok(0);
    }
    let gone: HashSet<&str> = names.iter().filter_map(|row| row.spec.alias()).collect();
    let is_theirs = |job: &Job| {
        let lease = job.state().lease();
        lease.and_then(|lease| lease.worker.as_deref()).is_some_and(|worker| gone.contains(worker))
    };
    let jobs = running(engine, None, commands::queue(), is_theirs).await?;
    let count = jobs.len();
    end_leases(engine, &jobs).await?;
    // Last: after an interruption the next start finds the names again.
    end_leases(engine, &names).await?;
    engine.catch_up().await?;
    Ok(count)
}

async fn running(
    engine: &Engine,
    tenant: Option<Tenant>,
    queue: Queue,
    is_wanted: impl Fn(&Job) -> bool,
) -> Result<Vec<Arc<Job>>, EngineError> {
    let mut found = Vec::new();
    let mut pages = engine.pages(Filter {
        tenant,
        states: vec![StateName::Running],
        queue: Some(queue),
        limit: PAGE,
        ..Filter::default()
    });
    while let Some(jobs) = pages.next().await? {
        found.extend(jobs.into_iter().filter(|job| is_wanted(job)));
    }
    Ok(found)
}

/// Ends leases now; the jobs' lapse policies apply.
async fn end_leases(engine: &Engine, jobs: &[Arc<Job>]) -> Result<(), EngineError> {
    let mut by_tenant: BTreeMap<&Tenant, Vec<Renew>> = BTreeMap::new();
    for job in jobs {
        let Some(lease) = job.state().lease() else { continue };
        let ended = Renew { id: job.id, by: Holder::Token(lease.token), lease_ms: Some(0), worker: None };
        by_tenant.entry(&job.spec.tenant).or_default().push(ended);
    }
    for (tenant, leases) in by_tenant {
        for some in leases.chunks(PAGE) {
            // A refusal means that the lease has ended meanwhile.
            engine.renew(tenant, some.to_vec()).await?;
        }
    }
    Ok(())
}

/// Reserves a name. Tries `first` first: ids may contain it already.
pub async fn reserve(engine: &Engine, host: &str, first: &str) -> Result<Reserved, NoSysid> {
    let mut sysid = first.to_owned();
    for _ in 0..TRIES_MAX {
        let pushed = engine.push(&tenant(), vec![push(&sysid)]).await?.pop();
        if let Some(Pushed::New(id)) = pushed
            && let Some(token) = hold(engine, id, &sysid).await?
        {
            return Ok(Reserved { sysid: sysid.into(), id, token });
        }
        sysid = ids::new_sysid(host, engine.random_u64());
    }
    Err(NoSysid::TooManyTries)
}

async fn hold(engine: &Engine, id: JobId, sysid: &str) -> Result<Option<Token>, EngineError> {
    let claim = Claim {
        tenant: tenant(),
        queues: vec![queue()],
        names: NameMatch::Exact(sysid.into()),
        priority: None,
        limit: 1,
        wait_ms: 0,
        lease_ms: Some(RESERVED_MS),
        worker: Some(sysid.into()),
    };
    let jobs = engine.claim(claim).await?.accept();
    let ours = jobs.into_iter().find(|job| job.id == id);
    Ok(ours.and_then(|job| job.state().lease().map(|lease| lease.token)))
}

impl Reserved {
    /// Extends the reservation. Returns false if it is lost.
    pub async fn renew(&self, engine: &Engine) -> Result<bool, EngineError> {
        let extend = Extend { id: self.id, by: Holder::Token(self.token), lease_ms: Some(RESERVED_MS) };
        let answer = engine.extend(&tenant(), vec![extend]).await?.pop();
        Ok(matches!(answer, Some(Ok(_))))
    }

    /// Frees the name.
    pub async fn release(&self, engine: &Engine) -> Result<(), EngineError> {
        let event = Event::finish(Holder::Token(self.token), Outcome::default());
        let settle = JobEvent { id: self.id, event };
        engine.settle(&tenant(), vec![settle]).await.map(drop)
    }
}

#[expect(clippy::expect_used, reason = "a constant that is a tenant")]
pub fn tenant() -> Tenant {
    Tenant::new(TENANT).expect("a tenant")
}

#[expect(clippy::expect_used, reason = "a constant that is a queue")]
pub fn queue() -> Queue {
    Queue::new(TENANT).expect("a queue")
}

fn push(sysid: &str) -> Push {
    let gone = Keep { completed: KeepFor::Drop, failed: KeepFor::Drop, cancelled: KeepFor::Drop };
    let policy = Policy {
        lease: LeasePolicy {
            length_ms: Some(RESERVED_MS),
            on_lapse: OnLapse::GiveUp,
            lapse_attempts: 0,
            accept_late: false,
        },
        retry: RetryPolicy::ONCE,
        keep: gone,
        ..Policy::default()
    };
    let extras = Extras { origin: Some("miniq".into()), alias: Some(sysid.into()), ..Extras::default() };
    Push {
        queue: queue(),
        // Consists of letters, digits and a dash.
        name: Name::new(sysid).unwrap_or_else(|_| sysid_name()),
        payload: Payload::default(),
        priority: 0,
        run_at: RunAt::Now,
        policy: Arc::new(policy),
        extras: Some(Box::new(extras)),
        body: None,
    }
}

#[expect(clippy::expect_used, reason = "a constant that is a name")]
fn sysid_name() -> Name {
    Name::new("sysid").expect("a name")
}
