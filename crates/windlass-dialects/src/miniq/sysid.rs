//! The name of this server among those on one store: a job that it holds as long as it lives, so that the store keeps the
//! name for it and lets go of it when the server does not come back.

use crate::journal::ids;
use std::sync::Arc;
use windlass_core::job::{Keep, KeepFor};
use windlass_core::lease::{LeasePolicy, OnLapse};
use windlass_core::retry::RetryPolicy;
use windlass_core::{Extras, Holder, JobId, Name, NameMatch, Outcome, Payload, Policy, Queue, Tenant, Token};
use windlass_engine::{Claim, Engine, EngineError, Extend, How, Push, Pushed, RunAt, Settle, VerbError};

/// Its rows belong to nobody who can call, and are in no queue that is run.
pub const TENANT: &str = "queue.sysid";
/// How long a name is kept for a server that gives no sign of life.
pub const RESERVED_MS: i64 = 30 * 60_000;
/// Signs of life: many within the time above.
pub const RENEW_MS: i64 = 60_000;
/// Names tried before giving up. With 24 bits of chance one is enough; so many in a row mean that something is wrong.
const TRIES_MAX: usize = 20;

#[derive(Debug, thiserror::Error)]
pub enum NoSysid {
    #[error("getSysid: too many tries")]
    TooManyTries,
    #[error(transparent)]
    Store(#[from] EngineError),
}

/// A name that is ours.
#[derive(Clone, Debug)]
pub struct Reserved {
    pub sysid: Arc<str>,
    id: JobId,
    token: Token,
}

/// A name that nobody has. It is not reserved by that: a server that is never asked for anything writes nothing.
pub async fn find_free(engine: &Engine, host: &str) -> Result<Arc<str>, NoSysid> {
    for _ in 0..TRIES_MAX {
        let sysid = ids::new_sysid(host, engine.roll());
        if engine.find_alias(&tenant(), &sysid).await?.is_none() {
            return Ok(sysid.into());
        }
    }
    Err(NoSysid::TooManyTries)
}

/// `first` is tried first: ids may have been made with it already.
pub async fn reserve(engine: &Engine, host: &str, first: &str) -> Result<Reserved, NoSysid> {
    let mut sysid = first.to_owned();
    for _ in 0..TRIES_MAX {
        let pushed = engine.push(&tenant(), vec![push(&sysid)]).await?.pop();
        if let Some(Pushed::New(id)) = pushed
            && let Some(token) = hold(engine, id, &sysid).await?
        {
            return Ok(Reserved { sysid: sysid.into(), id, token });
        }
        sysid = ids::new_sysid(host, engine.roll());
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
    /// `false`: the name is not ours any more.
    pub async fn renew(&self, engine: &Engine) -> Result<bool, EngineError> {
        let extend = Extend { id: self.id, by: Holder::Token(self.token), lease_ms: Some(RESERVED_MS) };
        let answer = engine.extend(&tenant(), vec![extend]).await?.pop();
        Ok(!matches!(answer, None | Some(Err(VerbError::NotFound | VerbError::Refused(_)))))
    }

    /// The name is free again.
    pub async fn release(&self, engine: &Engine) -> Result<(), EngineError> {
        let how = How::Finish { outcome: Outcome::default(), payload: None, ignore_repeat: true };
        let settle = Settle { id: self.id, by: Holder::Token(self.token), how };
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
        // Of letters, digits and a dash.
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
