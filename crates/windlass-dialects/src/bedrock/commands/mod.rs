//! Commands, translated into engine calls.
//!
//! | file | commands |
//! |---|---|
//! | `create.rs`, `unique.rs` | CreateJob, CreateJobs |
//! | `get.rs` | GetJob, GetJobs |
//! | `settle.rs` | FinishJob, RetryJob, FailJob |
//! | `change.rs` | QueryJob, UpdateJob, CancelJob, DeleteJob, RequeueJobs |
//! | `server.rs` | Ping, Status, the status GETs, CrashBedrockJob, ClearCrashedBedrockJobs, Query |

mod change;
mod create;
mod get;
mod server;
mod settle;
mod unique;

pub use create::policy;
pub use get::patience_ms;

use super::commits::Commits;
use super::errors::{self, StatusLine};
use super::profile::Profile;
use super::query::Queries;
use super::wire::{Reply, Request};
use crate::auth::{Caller, Role, Tokens};
use crate::budget::Budget;
use crate::guard::Hosts;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_core::matching::Glob;
use windlass_core::{Job, JobId, Tenant};
use windlass_engine::{Delivery, Engine};

/// Commands of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    CreateJob,
    CreateJobs,
    GetJob,
    GetJobs,
    QueryJob,
    UpdateJob,
    FinishJob,
    RetryJob,
    CancelJob,
    FailJob,
    DeleteJob,
    RequeueJobs,
    CrashBedrockJob,
    ClearCrashedBedrockJobs,
    Query,
    Ping,
    Status,
    IsFollower,
    HandlingCommands,
}

/// Depth of a command in the server; it selects the headers of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// No access to jobs.
    Server,
    Read,
    Write,
}

/// Verb, command, reach, required role. `None`: no token needed.
const COMMANDS: &[(&str, Command, Reach, Option<Role>)] = &[
    ("CreateJob", Command::CreateJob, Reach::Write, Some(Role::Worker)),
    ("CreateJobs", Command::CreateJobs, Reach::Write, Some(Role::Worker)),
    ("GetJob", Command::GetJob, Reach::Write, Some(Role::Worker)),
    ("GetJobs", Command::GetJobs, Reach::Write, Some(Role::Worker)),
    ("QueryJob", Command::QueryJob, Reach::Read, Some(Role::Viewer)),
    ("UpdateJob", Command::UpdateJob, Reach::Write, Some(Role::Worker)),
    ("FinishJob", Command::FinishJob, Reach::Write, Some(Role::Worker)),
    ("RetryJob", Command::RetryJob, Reach::Write, Some(Role::Worker)),
    ("CancelJob", Command::CancelJob, Reach::Write, Some(Role::Worker)),
    ("FailJob", Command::FailJob, Reach::Write, Some(Role::Worker)),
    ("DeleteJob", Command::DeleteJob, Reach::Write, Some(Role::Operator)),
    ("RequeueJobs", Command::RequeueJobs, Reach::Write, Some(Role::Operator)),
    ("CrashBedrockJob", Command::CrashBedrockJob, Reach::Server, Some(Role::Operator)),
    ("ClearCrashedBedrockJobs", Command::ClearCrashedBedrockJobs, Reach::Server, Some(Role::Operator)),
    ("Query", Command::Query, Reach::Read, Some(Role::Viewer)),
    ("Query:", Command::Query, Reach::Read, Some(Role::Viewer)),
    ("Ping", Command::Ping, Reach::Server, None),
    ("Status", Command::Status, Reach::Server, Some(Role::Viewer)),
];

/// Verbs of all commands.
pub fn verbs() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(verb, ..)| *verb)
}

impl Command {
    /// Returns the command of a request; `None`: unknown verb.
    pub fn of(request: &Request) -> Option<(Command, Reach, Option<Role>)> {
        match request.line.strip_prefix("GET /status/") {
            Some("isFollower HTTP/1.1") => return Some((Command::IsFollower, Reach::Server, None)),
            Some("handlingCommands HTTP/1.1") => {
                return Some((Command::HandlingCommands, Reach::Server, None));
            }
            _ => {}
        }
        let found = COMMANDS.iter().find(|(verb, ..)| verb.eq_ignore_ascii_case(request.verb()));
        found.map(|(_, command, reach, role)| (*command, *reach, *role))
    }

    /// True for commands that claim jobs, which must be released if the reply is not delivered.
    pub fn hands_out(self) -> bool {
        matches!(self, Command::GetJob | Command::GetJobs)
    }
}

/// State shared by all connections.
pub struct Shared {
    pub engine: Engine,
    pub profile: Profile,
    pub tokens: Arc<Tokens>,
    pub hide_payloads: bool,
    pub version: &'static str,
    pub queries: Queries,
    /// Host names accepted by a server without tokens.
    pub hosts: Hosts,
    pub budget: Budget,
    /// Patterns of job names that fail instead of being claimed, by tenant.
    pub crashed: RwLock<HashMap<Tenant, Vec<Glob>>>,
    pub commits: Commits,
    pub answered: CommandCounts,
}

/// Number of commands answered, by tenant.
#[derive(Default)]
pub struct CommandCounts(RwLock<HashMap<Tenant, AtomicU64>>);

impl CommandCounts {
    pub fn count(&self, tenant: &Tenant) {
        if let Some(count) = self.0.read().get(tenant) {
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut counts = self.0.write();
        counts.entry(tenant.clone()).or_default().fetch_add(1, Ordering::Relaxed);
    }

    /// Count of one tenant; `None`: of all tenants.
    pub fn of(&self, tenant: Option<&Tenant>) -> u64 {
        let counts = self.0.read();
        let asked = counts.iter().filter(|(own, _)| tenant.is_none_or(|tenant| tenant == *own));
        asked.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }
}

/// Reply, and the jobs in it; they are released if the reply cannot be delivered.
#[derive(Debug)]
pub struct CommandOutcome {
    pub reply: Reply,
    pub delivery: Option<Delivery>,
}

impl From<Reply> for CommandOutcome {
    fn from(reply: Reply) -> CommandOutcome {
        CommandOutcome { reply, delivery: None }
    }
}

type Answered = Result<CommandOutcome, StatusLine>;

/// Commands on behalf of one caller.
#[derive(Clone, Copy)]
pub struct Commands<'a> {
    pub shared: &'a Shared,
    /// Engine, restricted to the jobs in the caller's scope.
    pub engine: &'a Engine,
    pub tenant: &'a Tenant,
    pub role: Role,
    /// The caller is on this machine.
    pub is_local: bool,
}

/// Authenticates the caller, or returns the refusal.
pub fn caller(shared: &Shared, request: &Request, needed: Option<Role>) -> Result<Caller, StatusLine> {
    let Some(needed) = needed else { return Ok(Caller::unnamed(Role::Viewer)) };
    if shared.tokens.is_open() {
        return Ok(Caller::unnamed(Role::Admin));
    }
    let bearer = || request.get("authorization").map(|text| text.strip_prefix("Bearer ").unwrap_or(text));
    let token = request.given("token").or_else(bearer).unwrap_or_default();
    let caller = shared.tokens.check(token, shared.engine.now()).ok_or(errors::TOKEN_NEEDED)?;
    if caller.role < needed {
        return Err(StatusLine(
            format!("403 Forbidden: this command requires a token with the role {needed}").into(),
        ));
    }
    shared.engine.count_request(&caller.tenant)?;
    Ok(caller)
}

impl<'a> Commands<'a> {
    pub fn new(shared: &'a Shared, engine: &'a Engine, caller: &'a Caller, is_local: bool) -> Commands<'a> {
        Commands { shared, engine, tenant: &caller.tenant, role: caller.role, is_local }
    }

    /// Runs a command. If the future is dropped while it waits, claimed jobs are released.
    pub async fn answer(&self, command: Command, request: &Request) -> CommandOutcome {
        self.shared.answered.count(self.tenant);
        let answered = match self.refused_for_its_bytes(command, request) {
            Some(status) => Err(status),
            None => self.dispatch(command, request).await,
        };
        answered.unwrap_or_else(|status| Reply::from(status).into())
    }

    async fn dispatch(&self, command: Command, request: &Request) -> Answered {
        match command {
            Command::CreateJob => self.create_job(request).await,
            Command::CreateJobs => self.create_jobs(request).await,
            Command::GetJob => self.get_job(request).await,
            Command::GetJobs => self.get_jobs(request).await,
            Command::QueryJob => self.query_job(request).await,
            Command::UpdateJob => self.update_job(request).await,
            Command::FinishJob => self.finish_job(request).await,
            Command::RetryJob => self.retry_job(request).await,
            Command::CancelJob => self.cancel_job(request).await,
            Command::FailJob => self.fail_job(request).await,
            Command::DeleteJob => self.delete_job(request).await,
            Command::RequeueJobs => self.requeue_jobs(request).await,
            Command::CrashBedrockJob => self.crash_jobs(request),
            Command::ClearCrashedBedrockJobs => self.clear_crashed_jobs(),
            Command::Query => self.query(request).await,
            Command::Ping => Ok(Reply::ok().into()),
            Command::Status => Ok(self.status().into()),
            Command::IsFollower => Ok(Reply::new("HTTP/1.1 500 Not Following. State=LEADING").into()),
            Command::HandlingCommands => Ok(Reply::new("HTTP/1.1 200 LEADING").into()),
        }
    }

    /// Refuses values that are not UTF-8: they can be neither a name nor JSON.
    fn refused_for_its_bytes(&self, command: Command, request: &Request) -> Option<StatusLine> {
        const READ: [&str; 7] = ["name", "data", "jobs", "firstrun", "nextrun", "repeat", "retryafter"];
        let is_sql = |name: &str| name == "query" || name.starts_with("sql-param-");
        let garbled = request.garbled().find(|name| READ.contains(name) || is_sql(name))?;
        Some(match (command, garbled) {
            (_, "data") => errors::NOT_AN_OBJECT,
            (_, "jobs") => errors::INVALID_JSON,
            (_, "name") => errors::MALFORMED_NAME,
            (_, garbled) => StatusLine(format!("402 Malformed {garbled}").into()),
        })
    }

    fn sees_payloads(&self) -> bool {
        self.role.sees_payloads(self.shared.hide_payloads)
    }

    /// Loads a job of the caller's tenant.
    async fn load(&self, id: JobId) -> Result<Arc<Job>, StatusLine> {
        self.find(id).await?.ok_or(errors::NO_SUCH_JOB)
    }

    async fn find(&self, id: JobId) -> Result<Option<Arc<Job>>, StatusLine> {
        Ok(self.engine.get_one(self.tenant, id).await?)
    }
}
