//! Ping, Status, Query, and the list of job names that crash their workers.

use super::{Answered, Commands};
use crate::auth::Role;
use crate::bedrock::errors::{self, StatusLine};
use crate::bedrock::json::{Writer, quoted};
use crate::bedrock::params;
use crate::bedrock::query::{Ask, parameters};
use crate::bedrock::row;
use crate::bedrock::wire::{Reply, Request};
use std::time::Duration;
use windlass_core::matching::Glob;

/// Patterns per tenant; each is matched against every claimed job.
const CRASHED_MAX: usize = 1_000;
/// Time limit of a query without a `timeout` header.
const QUERY_MS_DEFAULT: i64 = 110_000;

impl Commands<'_> {
    /// Accepted from this machine only, and for jobs of the caller's tenant.
    pub(super) fn crash_jobs(&self, request: &Request) -> Answered {
        if !self.is_local {
            return Err(errors::UNAUTHORIZED);
        }
        self.engine.check_queue(&row::queue())?;
        let names = request.given("names").ok_or(StatusLine("402 Missing names".into()))?;
        let globs = names.split(',').map(|name| name.trim_matches(' ')).filter(|name| !name.is_empty());
        let mut crashed = self.shared.crashed.write();
        let crashed = crashed.entry(self.tenant.clone()).or_default();
        for glob in globs.map(Glob::new) {
            if crashed.len() == CRASHED_MAX {
                return Err(StatusLine(format!("402 Too many names; at most {CRASHED_MAX}").into()));
            }
            if !crashed.contains(&glob) {
                crashed.push(glob);
            }
        }
        Ok(Reply::ok().into())
    }

    pub(super) fn clear_crashed_jobs(&self) -> Answered {
        if !self.is_local {
            return Err(errors::UNAUTHORIZED);
        }
        self.engine.check_queue(&row::queue())?;
        self.shared.crashed.write().remove(self.tenant);
        Ok(Reply::ok().into())
    }

    pub(super) fn status(&self) -> Reply {
        let crashed = self.shared.crashed.read();
        let may_know = self.engine.check_queue(&row::queue()).is_ok();
        let crashed = crashed.get(self.tenant).filter(|_| may_know).into_iter().flatten();
        let crashed: Vec<String> = crashed.map(|glob| quoted(glob.pattern())).collect();
        let jobs = Writer::new()
            .put("crashedJobs", &format!("[{}]", crashed.join(",")))
            .put("name", "\"Jobs\"")
            .finish();
        // Only an admin sees the count of all tenants.
        let whose = (self.role < Role::Admin).then_some(self.tenant);
        let body = Writer::new()
            .put("commandCount", &self.shared.answered.of(whose).to_string())
            .put("CommitCount", &self.shared.commits.latest(self.engine.now()).to_string())
            .put("host", "\"windlass\"")
            .put("isDetached", "false")
            .put("isLeader", "true")
            .put("peerList", "[]")
            .put("plugins", &format!("[{{\"name\":\"DB\"}},{jobs}]"))
            .put("priority", "100")
            .put("state", "\"LEADING\"")
            .put("version", &quoted(self.shared.version))
            .finish();
        Reply::ok().with_body(body)
    }

    pub(super) async fn query(&self, request: &Request) -> Answered {
        let is_line = request.verb().eq_ignore_ascii_case("query:");
        let sql = if is_line { request.tail() } else { request.get("query").unwrap_or_default() };
        let value_of = |name: &str| request.get(&format!("sql-param-{name}"));
        let sql = match parameters::expand(sql, value_of) {
            Ok(sql) => sql,
            Err(why) => return Ok(Reply::new("402 Bad query").with_header("error", why).into()),
        };
        let patience = request.given("timeout").map_or(QUERY_MS_DEFAULT, params::leading_number).max(0);
        let ask = Ask {
            tenant: self.tenant.clone(),
            sql,
            format: request.get("format").map(str::to_owned),
            flags: request.given("readdbflags").or_else(|| request.get("sqliteargs")).map(str::to_owned),
            nowhere: request.get("nowhere").is_some_and(|text| text.eq_ignore_ascii_case("true")),
            may_write: self.role >= Role::Admin,
            sees_payloads: self.sees_payloads(),
            profile: self.shared.profile,
            patience: Duration::from_millis(patience.unsigned_abs()),
        };
        let is_json = ask.format.as_deref().is_some_and(|format| format.eq_ignore_ascii_case("json"));
        let answer = self.shared.queries.answer(self.engine, ask).await;
        let mut reply = Reply { status: answer.status.into(), headers: answer.headers, body: answer.body };
        if reply.is_ok() && !is_json && request.get("suppressresult").is_some() {
            reply.body.clear();
        }
        Ok(reply.into())
    }
}
