//! Calls on jobs: parse the body, run the transaction, write the response.

use super::errors::{Problem, json};
use super::family::{find, with_descendants};
use super::log::{self, PortEvents};
use super::ports::{self, At, Operation, Writing};
use super::runs;
use super::state_of;
use super::tx::{self, Op, Reply, Stop, Tx};
use super::views::{self, OWN_KEYS};
use super::wire::{self, Ask, Context, OF_ANY_CALL, OF_JOB_CALLS, OF_RUN, RunWish};
use crate::codec::{Encoding, Out};
use crate::route::Call;
use ::http::StatusCode;
use axum::response::Response;
use std::collections::BTreeMap;
use windlass_core::ports::RawJson;
use windlass_core::{JobId, Tenant};
use windlass_engine::Transaction;

pub(super) type Answer = Result<Response, Problem>;

/// Log entries in one response, unless the client asks for fewer.
const ENTRIES_MAX: usize = 10_000;

/// Members that any call on a job may carry.
#[derive(Clone, Debug, Default)]
pub(super) struct CommonFields {
    pub context: Context,
    run: Option<RunWish>,
}

impl CommonFields {
    pub(super) fn of(ask: &Ask<'_>) -> Result<CommonFields, Problem> {
        let wish = |wish: Ask<'_>| {
            wish.only(OF_RUN, &[])?;
            wish.run_wish()
        };
        Ok(CommonFields { context: ask.context()?, run: ask.object("run")?.map(wish).transpose()? })
    }

    /// Parses the common members of a call; any member besides these and `own` is refused.
    pub(super) fn beside(own: &[&str], ask: &Ask<'_>) -> Result<CommonFields, Problem> {
        ask.only(own, OF_JOB_CALLS)?;
        CommonFields::of(ask)
    }

    /// Logs the call as made by the run of job `id`.
    pub(super) fn in_run_of(&mut self, id: JobId) {
        self.context.retain(|(key, _)| key != "job");
        self.context.insert(0, ("job".to_owned(), id.to_string()));
    }

    /// Applies the run that the call asks for, after its other changes.
    pub(super) fn then_run(&mut self, tx: &mut Tx<'_, '_>, id: JobId, reply: Reply) -> Result<Reply, Stop> {
        let Some(wish) = self.run else { return Ok(reply) };
        let ran = runs::apply_run_request(tx, id, wish)?;
        Ok(reply.with_error(ran.trouble))
    }

    /// Applies the run of a call whose changes are committed already, and responds with `text`.
    pub(super) async fn run_at_last(
        mut self,
        call: &Call,
        tenant: &Tenant,
        id: JobId,
        text: String,
    ) -> Answer {
        if self.run.is_none() {
            return Ok(json(text));
        }
        let op: Op = Box::new(move |tx| self.then_run(tx, id, Reply::new(text.clone())));
        run_op(call, tenant, id, op).await
    }
}

pub(super) fn ask_of(body: &[u8]) -> Result<Ask<'_>, Problem> {
    Ok(Ask::read(body)?)
}

/// Refuses callers that may not see payloads: ports, state and log contain the data of jobs.
fn check_sees_payloads(call: &Call) -> Result<(), Problem> {
    if call.hides_payloads() {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "viewers cannot read state, arguments and ports on this server (auth.viewer_payloads is hide)",
        ));
    }
    Ok(())
}

pub(super) fn job_id(call: &Call) -> Result<JobId, Problem> {
    let text = call.param(0);
    wire::job_id(text).ok_or_else(|| Problem::no_job(text.chars().take(100).collect::<String>()))
}

pub(super) async fn run_op(call: &Call, tenant: &Tenant, id: JobId, op: Op) -> Answer {
    run_with_others(call, tenant, id, Vec::new(), op).await
}

/// Runs a call that also names other jobs.
pub(super) async fn run_with_others(
    call: &Call,
    tenant: &Tenant,
    id: JobId,
    others: Vec<JobId>,
    op: Op,
) -> Answer {
    answered(tx::run(call, tenant, id, others, op).await?)
}

pub(super) fn answered(reply: Reply) -> Answer {
    match reply.trouble {
        Some(problem) => Err(problem),
        None => Ok(json(reply.text)),
    }
}

/// Handles a call that changes one job: parses the body, applies the operation, then the requested run.
async fn job_call(
    mut call: Call,
    read: impl FnOnce(&Ask<'_>, JobId, Context) -> Result<Op, Problem>,
) -> Answer {
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    let mut also = CommonFields::of(&ask)?;
    let mut op = read(&ask, id, also.context.clone())?;
    // Among the calls handled here, only `connect` names other jobs.
    let others = if call.param(3) == "connect" { ask.jobs_named_in("to") } else { Vec::new() };
    let with_run: Op = Box::new(move |tx| {
        let reply = op(tx)?;
        also.then_run(tx, id, reply)
    });
    run_with_others(&call, &tenant, id, others, with_run).await
}

pub(super) async fn version(_: Call) -> Answer {
    Ok(json("{\"version\":\"1.0\"}"))
}

pub(super) async fn get(call: Call) -> Answer {
    check_sees_payloads(&call)?;
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let job = find(&call.engine, &tenant, id).await?;
    let children = call.engine.children(&tenant, id).await?;
    Ok(json(views::job(&job, &children)))
}

pub(super) async fn run(mut call: Call) -> Answer {
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    let mut also = CommonFields::beside(OF_RUN, &ask)?;
    let wish = ask.run_wish()?;
    let op: Op = Box::new(move |tx| {
        tx.job(id)?;
        let ran = runs::apply_run_request(tx, id, wish)?;
        let who = ran.job.map_or_else(|| "null".to_owned(), |job| job.to_string());
        let reply = Reply::new(format!("{{\"run\":{who}}}")).with_error(ran.trouble);
        also.then_run(tx, id, reply)
    });
    run_op(&call, &tenant, id, op).await
}

pub(super) async fn terminate(mut call: Call) -> Answer {
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    let mut also = CommonFields::beside(&["recursive"], &ask)?;
    let is_recursive = ask.flag("recursive")?;
    let op: Op = Box::new(move |tx| {
        let reply = runs::terminate(tx, id)?;
        also.then_run(tx, id, reply)
    });
    let first = tx::run(&call, &tenant, id, Vec::new(), op).await?;
    let mut trouble = None;
    if is_recursive {
        let engine = &call.engine;
        let below = |tx: &mut Transaction<'_>| {
            let job = tx.job(id)?.ok_or_else(|| Problem::no_job(id))?;
            let all = with_descendants(tx, job)?;
            Ok::<_, Stop>(all.iter().skip(1).map(|job| job.id).collect::<Vec<_>>())
        };
        for below in engine.transact(&tenant, vec![id], below).await? {
            let op: Op = Box::new(move |tx| runs::terminate(tx, below));
            match tx::run(&call, &tenant, below, Vec::new(), op).await {
                Ok(reply) => trouble = trouble.or(reply.trouble),
                // Deleted in the meantime.
                Err(problem) if problem.status == StatusCode::NOT_FOUND => {}
                Err(problem) => return Err(problem),
            }
        }
    }
    answered(first.with_error(trouble))
}

pub(super) async fn set_status(call: Call) -> Answer {
    job_call(call, |ask, id, _| {
        ask.only(&["status"], OF_JOB_CALLS)?;
        let name = ask.text("status")?.ok_or_else(|| Problem::refused("Missing status"))?;
        Ok(Box::new(move |tx| runs::set_status(tx, id, &name)))
    })
    .await
}

// --- state ---------------------------------------------------------------------------------------------

pub(super) async fn get_state(call: Call) -> Answer {
    check_sees_payloads(&call)?;
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let job = find(&call.engine, &tenant, id).await?;
    let mut out = Out::new(Encoding::Json, 256);
    views::state(&mut out, &job);
    Ok(json(views::text(out)))
}

/// Sets all members of the body as state, except the common members.
pub(super) async fn set_state(call: Call) -> Answer {
    job_call(call, |ask, id, _| {
        let mut values = BTreeMap::new();
        for (key, written) in ask.fields().filter(|(key, _)| !OF_JOB_CALLS.contains(key)) {
            if OWN_KEYS.contains(&key) {
                let message = format!("Job {id}: {key} is managed by the server and cannot be set as state");
                return Err(Problem::refused(message));
            }
            // Of duplicate keys, the last wins.
            values.insert(key.to_owned(), RawJson::new(written).map_err(wire::BadCall::from)?);
        }
        Ok(Box::new(move |tx| {
            tx.job(id)?;
            if !values.is_empty() {
                tx.with_ports(id, |ports| ports.set_state(values.clone()))?;
            }
            Ok(Reply::null())
        }))
    })
    .await
}

pub(super) async fn unset(call: Call) -> Answer {
    job_call(call, |ask, id, _| {
        ask.only(&["keys"], OF_JOB_CALLS)?;
        let keys = ask.texts("keys")?.ok_or_else(|| Problem::refused("Missing keys"))?;
        Ok(Box::new(move |tx| {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            tx.with_ports(id, |ports| {
                ports.unset_state(&keys);
                Ok(())
            })?;
            Ok(Reply::null())
        }))
    })
    .await
}

// --- ports ---------------------------------------------------------------------------------------------

pub(super) async fn set_ports(call: Call) -> Answer {
    job_call(call, |ask, id, _| {
        ask.only(&["inports", "outports"], OF_JOB_CALLS)?;
        let (inports, outports) = (ask.declared("inports")?, ask.declared("outports")?);
        Ok(Box::new(move |tx| ports::set(tx, id, inports.clone(), outports.clone())))
    })
    .await
}

fn port_at(call: &Call, id: JobId) -> Result<At, Problem> {
    let Some(side) = wire::side(call.param(1)) else {
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown port list; use inports or outports"));
    };
    Ok(At { job: id, side, port: call.param(2).to_owned() })
}

pub(super) async fn get_port(call: Call) -> Answer {
    check_sees_payloads(&call)?;
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let at = port_at(&call, id)?;
    let job = find(&call.engine, &tenant, id).await?;
    let ports = job.ports().cloned().unwrap_or_default();
    let port = ports.port((at.side, &at.port)).map_err(|error| Problem::port(id, &error))?;
    // A port that would be created on demand is shown as empty.
    let mut out = Out::new(Encoding::Json, 64);
    ports::write_port(&mut out, port);
    Ok(json(views::text(out)))
}

/// Applies the port operation named by the last segment of the path.
pub(super) async fn port(call: Call) -> Answer {
    let at = port_at(&call, job_id(&call)?)?;
    let what = call.param(3).to_owned();
    job_call(call, |ask, _, context| port_op(&what, ask, at, context)).await
}

fn port_op(what: &str, ask: &Ask<'_>, at: At, context: Context) -> Result<Op, Problem> {
    let members: &[&str] = match what {
        "write" => &["data", "list", "set_default"],
        "default" => &["default"],
        "connect" => &["to"],
        _ => &[],
    };
    ask.only(members, OF_JOB_CALLS)?;
    Ok(match what {
        "read" => Box::new(move |tx| {
            let mut events = PortEvents::default();
            let reply = ports::read(tx, &at, &mut events)?;
            tx.log_ports(&events, &context);
            Ok(reply)
        }),
        "entries" => Box::new(move |tx| {
            let mut events = PortEvents::default();
            let reply = ports::entries(tx, &at, &mut events)?;
            tx.log_ports(&events, &context);
            Ok(reply)
        }),
        "write" => {
            // As in the original SideJob, a missing value is null.
            let values = match ask.values()? {
                Some(values) => values,
                None => vec![RawJson::new("null").map_err(wire::BadCall::from)?],
            };
            let writing = if ask.flag("set_default")? { Writing::Default } else { Writing::Queue };
            Box::new(move |tx| {
                let mut events = PortEvents::default();
                let ran = ports::write(tx, &at, &values, writing, &mut events)?;
                tx.log_ports(&events, &context);
                Ok(Reply::null().with_error(ran.trouble))
            })
        }
        "default" => {
            let default = ask.value("default")?;
            Box::new(move |tx| ports::set_default(tx, &at, default.clone()))
        }
        "connect" => {
            let to = ask.objects("to")?.iter().map(Ask::port_alone).collect::<Result<Vec<_>, _>>()?;
            Box::new(move |tx| ports::connect(tx, &at, &to, &context))
        }
        other => {
            let message = format!("Unknown port operation: {}", other.chars().take(100).collect::<String>());
            return Err(Problem::refused(message));
        }
    })
}

/// Applies several port operations, on any jobs, in one transaction.
pub(super) async fn group(mut call: Call) -> Answer {
    let tenant = call.tenant()?;
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    ask.only(&["operations"], OF_ANY_CALL)?;
    let context = ask.context()?;
    let operations: Vec<Operation> =
        ask.objects("operations")?.iter().map(operation).collect::<Result<_, _>>()?;
    let jobs: Vec<JobId> = operations.iter().map(Operation::job).collect();
    let Some(first) = jobs.first().copied() else { return Ok(json("{\"results\":[]}")) };
    let op: Op = Box::new(move |tx| ports::group(tx, &operations, &context));
    run_with_others(&call, &tenant, first, jobs, op).await
}

fn operation(ask: &Ask<'_>) -> Result<Operation, Problem> {
    let place = ask.port_with(&["read", "entries", "write", "list"])?;
    let job = place.job.ok_or_else(|| Problem::refused("an operation of a group requires a job"))?;
    let at = At::of(&place, job);
    match (ask.flag("read")?, ask.flag("entries")?, ask.value("write")?, ask.list("list")?) {
        (true, false, None, None) => Ok(Operation::Read(at)),
        (false, true, None, None) => Ok(Operation::Entries(at)),
        (false, false, Some(value), None) => Ok(Operation::Write(at, vec![value])),
        (false, false, None, Some(values)) => Ok(Operation::Write(at, values)),
        _ => Err(Problem::refused("unknown operation; use read, entries, write or list")),
    }
}

// --- log -----------------------------------------------------------------------------------------------

pub(super) async fn logs(call: Call) -> Answer {
    check_sees_payloads(&call)?;
    call.engine.check_all()?;
    let tenant = call.tenant()?;
    let number = |key: &str| -> Result<Option<usize>, Problem> {
        let not_a_number = |_| Problem::refused(format!("{key} must be a whole number"));
        call.query_value(key).map(|text| text.parse().map_err(not_a_number)).transpose()
    };
    if call.query().any(|(key, value)| key == "clear" && value != "false") {
        return Err(Problem::refused(
            "GET does not clear the log; DELETE returns the entries and clears them",
        ));
    }
    let (skip, limit) = (number("after")?.unwrap_or(0), number("limit")?.unwrap_or(ENTRIES_MAX));
    let entries = state_of(&call.server).log.read(&call.engine, &tenant).await?;
    Ok(json(listed(entries.into_iter().skip(skip).take(limit.min(ENTRIES_MAX)))))
}

pub(super) async fn take_logs(call: Call) -> Answer {
    call.engine.check_all()?;
    let tenant = call.tenant()?;
    let entries = state_of(&call.server).log.take(&call.engine, &tenant).await?;
    Ok(json(listed(entries.into_iter())))
}

/// Appends an entry and responds with the number of entries.
pub(super) async fn add_log(mut call: Call) -> Answer {
    let tenant = call.tenant()?;
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    let context = ask.context()?;
    let enclosed = ask.entry()?;
    let said = enclosed.as_ref().unwrap_or(&ask);
    let own: Vec<(&str, &str)> =
        said.fields().filter(|(key, _)| enclosed.is_some() || !OF_ANY_CALL.contains(key)).collect();
    let entry = log::entry(&context, call.engine.now(), &own);
    let (engine, log) = (&call.engine, &state_of(&call.server).log);
    log.append(engine, &tenant, &[entry]).await?;
    Ok(json(log.read(engine, &tenant).await?.len().to_string()))
}

fn listed(entries: impl Iterator<Item = String>) -> String {
    format!("[{}]", entries.collect::<Vec<_>>().join(","))
}
