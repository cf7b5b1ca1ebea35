//! Workers that a dialect knows of although they may hold no job: those that have registered to be given some.

use std::pin::Pin;
use std::sync::Arc;
use windlass_core::{Tenant, Timestamp};

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The dialect it speaks.
    pub dialect: &'static str,
    pub tenant: Tenant,
    /// What its jobs name as their holder.
    pub id: Arc<str>,
    /// Where it is reached.
    pub address: Option<String>,
    /// Jobs it takes at once.
    pub slots: u32,
    pub running: u32,
    /// It is given no more jobs; what it has goes on.
    pub is_quiet: bool,
    /// Its last sign of life beside its jobs, where its protocol has such a thing.
    pub last_sign: Option<Timestamp>,
    /// Comes back by itself if it is let go: it stands in the configuration.
    pub is_fixed: bool,
}

pub type Dismissing<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// Who has registered with one dialect, and what may be done about it.
pub trait Staff: Send + Sync {
    fn members(&self) -> Vec<Member>;
    /// No more jobs for it, or jobs again. `false`: there is no such worker.
    fn set_quiet(&self, tenant: &Tenant, id: &str, quiet: bool) -> bool;
    /// Lets it go: the jobs it has count as failed. `false`: there is no such worker.
    fn dismiss<'a>(&'a self, tenant: &'a Tenant, id: &'a str, who: &'a str) -> Dismissing<'a>;
}
