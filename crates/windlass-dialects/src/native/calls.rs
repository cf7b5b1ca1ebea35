//! The calls: read what is asked, ask the engine, write the answer.

use super::errors::{ApiError, respond};
use super::wire::{self, CancelAsk, ClaimAsk, ExtendAsk, ExtendEntry, PatchAsk, RunAsk, SettleAsk};
use super::{commands, views};
use crate::auth::Role;
use crate::codec::{self, Encoding, Out};
use crate::journal::{self, JournalError, NewLine};
use crate::listener::Sealed;
use crate::query::Filter;
use crate::route::Call;
use ::http::{StatusCode, header};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use std::sync::Arc;
use windlass_core::event::CancelRunning;
use windlass_core::{Holder, Job, JobId, Tenant};
use windlass_engine::{
    Action, Claim, Delivery, EngineError, Extend, Extended, Push, Pushed, Report, VerbError, Waited,
};

pub type Answer = Result<Response, ApiError>;

/// Which encoding the caller wants to read: what `Accept` says, else what the body came in.
pub fn reply_encoding(call: &Call) -> Encoding {
    let accept = call.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    match (accept.contains("msgpack"), accept.contains("json")) {
        (true, _) => Encoding::Msgpack,
        (false, true) => Encoding::Json,
        (false, false) => body_encoding(call).ok().flatten().unwrap_or(Encoding::Json),
    }
}

/// `None`: the header is missing.
fn body_encoding(call: &Call) -> Result<Option<Encoding>, ApiError> {
    let Some(value) = call.headers().get(header::CONTENT_TYPE) else { return Ok(None) };
    let value = value.to_str().unwrap_or("?");
    let kind = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "application/json" => Ok(Some(Encoding::Json)),
        "application/msgpack" | "application/x-msgpack" | "application/vnd.msgpack" => {
            Ok(Some(Encoding::Msgpack))
        }
        _ => Err(wrong_type()),
    }
}

fn wrong_type() -> ApiError {
    let message = "send the header Content-Type: application/json (or application/msgpack)";
    ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type", message)
}

/// The body and the encoding it is in. Without a body the encoding does not matter.
pub(super) async fn body(call: &mut Call) -> Result<(Encoding, Bytes), ApiError> {
    let encoding = body_encoding(call)?;
    let body = call.read_body().await?;
    match encoding {
        Some(encoding) => Ok((encoding, body)),
        None if body.is_empty() => Ok((Encoding::Json, body)),
        None => Err(wrong_type()),
    }
}

pub(super) fn answer(status: StatusCode, out: Out) -> Response {
    let encoding = out.encoding();
    respond(status, encoding, out.into_bytes())
}

/// The query's parameters, of which only those in `known` may occur.
pub(super) fn params(call: &Call, known: &[&str]) -> Result<Vec<(String, String)>, ApiError> {
    let mut params = Vec::new();
    for (key, value) in call.query() {
        if !known.contains(&&*key) {
            let known = known.join(", ");
            return Err(ApiError::bad_request(format!("unknown parameter `{key}`; there are: {known}")));
        }
        params.push((key.into_owned(), value.into_owned()));
    }
    Ok(params)
}

pub(super) fn param<'a>(params: &'a [(String, String)], key: &str) -> Option<&'a str> {
    params.iter().find(|(name, value)| name == key && !value.is_empty()).map(|(_, value)| value.as_str())
}

pub(super) fn number_param<T: std::str::FromStr>(
    params: &[(String, String)],
    key: &str,
) -> Result<Option<T>, ApiError> {
    let parse = |text: &str| {
        text.parse()
            .map_err(|_| ApiError::bad_request(format!("the parameter `{key}` must be a whole number")))
    };
    param(params, key).map(parse).transpose()
}

/// The tenant from the query, for calls whose body has no place for it.
fn query_tenant(call: &Call) -> Result<Tenant, ApiError> {
    let params = params(call, &["tenant"])?;
    Ok(call.caller.tenant_for(param(&params, "tenant"))?)
}

pub async fn push(mut call: Call) -> Answer {
    let reply = reply_encoding(&call);
    let (encoding, body) = body(&mut call).await?;
    let asked = wire::push(encoding, &body)?;
    let tenant = call.caller.tenant_for(asked.tenant.as_deref())?;
    let single = asked.single;
    let pushes = commands::pushes(&asked.jobs, single)?;
    drop(asked);
    if call.server.journal_native && !pushes.is_empty() && pushes.iter().all(journal::pushes::can_wait) {
        return journaled(&call, &tenant, &pushes, reply).await;
    }
    let answers = call.engine.push(&tenant, pushes).await?;
    if let ([Pushed::Refused(refused)], true) = (answers.as_slice(), single) {
        return Err((*refused).into());
    }
    let mut out = Out::new(reply, 64 + answers.len() * 8);
    views::pushed(&mut out, &answers);
    Ok(answer(StatusCode::CREATED, out))
}

/// Kept in the journal, whether or not the store can be reached; the jobs have their numbers once they are there.
async fn journaled(call: &Call, tenant: &Tenant, pushes: &[Push], reply: Encoding) -> Answer {
    let (engine, journal) = (&call.engine, &call.server.journal);
    let options = engine.options();
    if pushes.len() > options.batch_max {
        return Err(EngineError::TooMany { count: pushes.len(), max: options.batch_max }.into());
    }
    let sizes = pushes.iter().map(|push| push.payload.bytes.len());
    if let Some(bytes) = sizes.max().filter(|bytes| *bytes > options.payload_bytes_max) {
        return Err(EngineError::TooLarge { bytes, max: options.payload_bytes_max }.into());
    }
    engine.admit_jobs(tenant, pushes.iter().map(|push| (&push.queue, &push.name))).await?;
    let now = engine.now();
    let ids = journal.make_ids(pushes.len(), now);
    let payloads: Vec<Vec<u8>> =
        pushes.iter().zip(&ids).map(|(push, id)| journal::pushes::kept(tenant, push, id, now)).collect();
    let line = |(id, payload)| NewLine { id, kind: journal::pushes::KIND, payload };
    let texts = ids.iter().map(String::as_str);
    let lines: Vec<NewLine<'_>> = texts.zip(payloads.iter().map(Vec::as_slice)).map(line).collect();
    let kept = async { journal.wsync(journal.write(&lines)?).await };
    kept.await.map_err(|error| match error {
        JournalError::Unknown(_) => {
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "outcome_unknown", error.to_string())
        }
        _ => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "journal_unavailable", error.to_string()),
    })?;
    let alias = |push: &Push| push.extras.as_ref().and_then(|extras| extras.alias.clone());
    let mut out = Out::new(reply, 64 + ids.len() * 24);
    out.begin_map();
    out.key("aliases");
    out.begin_array();
    for (push, id) in pushes.iter().zip(&ids) {
        out.str(alias(push).as_deref().unwrap_or(id));
    }
    out.end_array();
    out.end_map();
    Ok(answer(StatusCode::ACCEPTED, out))
}

pub async fn claim(mut call: Call) -> Answer {
    let reply = reply_encoding(&call);
    let (encoding, body) = body(&mut call).await?;
    let ask: ClaimAsk<'_> = wire::optional(encoding, &body)?;
    let tenant = call.caller.tenant_for(ask.tenant.as_deref())?;
    let claim = commands::claim(&ask, tenant)?;
    let delivery = next_jobs(&call, claim).await?;
    let mut out = Out::new(reply, room_for(&delivery) + 16);
    out.begin_map();
    write_jobs(&mut out, &delivery);
    out.end_map();
    Ok(deliver(out, delivery))
}

pub async fn settle(mut call: Call) -> Answer {
    let reply = reply_encoding(&call);
    let (encoding, body) = body(&mut call).await?;
    let ask: SettleAsk<'_> = codec::read_map(encoding, &body)?;
    let tenant = call.caller.tenant_for(ask.tenant.as_deref())?;
    let settles = commands::settles(&ask.settle)?;
    if ask.claim.as_ref().is_some_and(|claim| claim.tenant.is_some()) {
        return Err(ApiError::bad_request("name the `tenant` beside `claim`, not in it"));
    }
    let claim = ask.claim.as_ref().map(|claim| commands::claim(claim, tenant.clone())).transpose()?;
    let ids: Vec<JobId> = settles.iter().map(|settle| settle.id).collect();
    let settling = call.engine.settle(&tenant, settles);
    // Both at once, so that one commit does for both.
    let (answers, delivery) = match claim {
        None => (settling.await, None),
        Some(claim) => {
            let (answers, delivery) = tokio::join!(settling, next_jobs(&call, claim));
            (answers, Some(delivery))
        }
    };
    let answers = answers?;
    // What was settled is settled: a claim that did not work out must not hide it.
    let delivery = delivery.map(Result::unwrap_or_default);
    let mut out = Out::new(reply, 16 + ids.len() * 48 + delivery.as_ref().map_or(0, room_for));
    out.begin_map();
    out.key("settled");
    out.begin_array();
    ids.into_iter().zip(&answers).for_each(|(id, answer)| views::settled(&mut out, id, answer));
    out.end_array();
    let Some(delivery) = delivery else {
        out.end_map();
        return Ok(answer(StatusCode::OK, out));
    };
    write_jobs(&mut out, &delivery);
    out.end_map();
    Ok(deliver(out, delivery))
}

/// `None` when the server wants to stop: the worker hears that there is nothing, and asks the next one.
async fn next_jobs(call: &Call, claim: Claim) -> Result<Option<Delivery>, ApiError> {
    tokio::select! {
        biased;
        delivery = call.engine.claim(claim) => Ok(Some(delivery?)),
        () = call.leave() => Ok(None),
    }
}

fn jobs_of(delivery: &Option<Delivery>) -> &[Arc<Job>] {
    delivery.as_ref().map_or(&[], |delivery| &delivery.jobs)
}

fn room_for(delivery: &Option<Delivery>) -> usize {
    jobs_of(delivery).iter().map(|job| job.spec.payload.bytes.len() + views::JOB_BYTES_GUESS).sum()
}

fn write_jobs(out: &mut Out, delivery: &Option<Delivery>) {
    out.key("jobs");
    out.begin_array();
    jobs_of(delivery).iter().for_each(|job| views::claimed(out, job));
    out.end_array();
}

/// The jobs belong to the worker once the answer is taken; if nobody takes it, they are given back.
fn deliver(out: Out, delivery: Option<Delivery>) -> Response {
    let reply = out.encoding();
    let bytes = Bytes::from(out.into_bytes());
    let body = Body::new(Sealed::new(bytes, delivery, |delivery: Option<Delivery>| {
        delivery.map(Delivery::accept);
    }));
    respond(StatusCode::OK, reply, body)
}

pub async fn extend(mut call: Call) -> Answer {
    let reply = reply_encoding(&call);
    let (encoding, body) = body(&mut call).await?;
    let ask: ExtendAsk<'_> = codec::read_map(encoding, &body)?;
    if ask.extend.len() > wire::BATCH_MAX {
        return Err(ApiError::batch_too_large(ask.extend.len()));
    }
    let tenant = call.caller.tenant_for(ask.tenant.as_deref())?;
    let answers = extend_and_report(&call, &tenant, &ask.extend).await?;
    let mut out = Out::new(reply, 16 + answers.len() * 64);
    out.begin_map();
    out.key("extended");
    out.begin_array();
    ask.extend.iter().zip(&answers).for_each(|(entry, answer)| views::extended(&mut out, entry.id, answer));
    out.end_array();
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

/// Every entry is a sign of life; those that carry progress report it, too.
async fn extend_and_report(
    call: &Call,
    tenant: &Tenant,
    entries: &[ExtendEntry<'_>],
) -> Result<Vec<Result<Extended, VerbError>>, ApiError> {
    let mut reports = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if entry.progress.is_some_and(|percent| percent > 100) {
            return Err(ApiError::bad_request(format!(
                "entry {index}: `progress` must be between 0 and 100"
            )));
        }
        if entry.note.as_ref().is_some_and(|note| note.len() > wire::MESSAGE_BYTES_MAX) {
            let max = wire::MESSAGE_BYTES_MAX;
            return Err(ApiError::bad_request(format!("entry {index}: `note` may have at most {max} bytes")));
        }
        if entry.progress.is_some() || entry.note.is_some() {
            reports.push(Report {
                id: entry.id,
                by: Holder::Token(entry.token),
                percent: entry.progress,
                note: entry.note.as_ref().map(|note| note.to_string()),
                payload: None,
            });
        }
    }
    let engine = &call.engine;
    if !reports.is_empty() {
        // Whether the lease still holds is said by the answer to the extension.
        engine.report(tenant, reports).await?;
    }
    let extend = |entry: &ExtendEntry<'_>| Extend {
        id: entry.id,
        by: Holder::Token(entry.token),
        lease_ms: entry.lease_ms.map(|lease| lease.0),
    };
    Ok(engine.extend(tenant, entries.iter().map(extend).collect()).await?)
}

pub async fn list(call: Call) -> Answer {
    let reply = reply_encoding(&call);
    let known = ["search", "state", "queue", "name", "tenant", "tag", "q", "limit", "cursor"];
    let params = params(&call, &known)?;
    let mut search =
        super::bulk::search(&call, param(&params, "search").unwrap_or_default(), param(&params, "tenant"))?;
    let filter = &mut search.filter;
    filter.states.extend(super::queries::states(param(&params, "state"))?);
    if let Some(queue) = param(&params, "queue") {
        filter.queue = Some(windlass_core::Queue::new(queue)?);
    }
    if let Some(name) = param(&params, "name") {
        filter.names = windlass_core::NameMatch::glob(name);
    }
    if let Some(tag) = param(&params, "tag") {
        filter.tag = Some(tag.into());
    }
    if let Some(text) = param(&params, "q") {
        // Not to be looked at in pieces, whatever it looks like.
        search.add_text(text);
        super::bulk::may_search(&call, &search)?;
    }
    let page = search.page(&call.engine, cursor(&params)?, page_limit(&params)?).await?;
    let mut out = Out::new(reply, 32 + page.jobs.len() * 2 * views::JOB_BYTES_GUESS);
    out.begin_map();
    out.key("jobs");
    out.begin_array();
    page.jobs.iter().for_each(|job| views::job(&mut out, job, None, call.hides_payloads()));
    out.end_array();
    write_next(&mut out, page.next);
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

pub(super) fn cursor(params: &[(String, String)]) -> Result<Option<JobId>, ApiError> {
    Ok(number_param::<u64>(params, "cursor")?.and_then(JobId::new))
}

pub(super) fn page_limit(params: &[(String, String)]) -> Result<usize, ApiError> {
    Ok(number_param::<usize>(params, "limit")?.unwrap_or(50).clamp(1, wire::PAGE_MAX))
}

pub(super) fn write_next(out: &mut Out, next: Option<JobId>) {
    out.key("next");
    match next {
        Some(next) => out.str(&next.to_string()),
        None => out.null(),
    }
}

/// The job named in the path, and whose it is. An admin who names no tenant may look at any job by its number.
pub(super) async fn find(call: &Call, asked: Option<&str>) -> Result<(Tenant, Arc<Job>), ApiError> {
    let id = call.param(0).parse().ok().and_then(JobId::new).ok_or_else(ApiError::no_such_job)?;
    find_id(call, id, asked).await?.ok_or_else(ApiError::no_such_job)
}

pub(super) async fn find_id(
    call: &Call,
    id: JobId,
    asked: Option<&str>,
) -> Result<Option<(Tenant, Arc<Job>)>, ApiError> {
    let engine = &call.engine;
    let tenant = call.caller.tenant_for(asked)?;
    if let Some(job) = engine.get(&tenant, vec![id]).await?.pop().flatten() {
        return Ok(Some((tenant, job)));
    }
    let next = id.get().checked_add(1).and_then(JobId::new);
    if call.caller.role == Role::Admin && asked.is_none() && next.is_some() {
        let page = engine.list(Filter { before: next, limit: 1, ..Filter::default() }).await?;
        if let Some(job) = page.jobs.into_iter().next().filter(|job| job.id == id) {
            return Ok(Some((job.spec.tenant.clone(), job)));
        }
    }
    Ok(None)
}

pub async fn get(call: Call) -> Answer {
    let params = params(&call, &["tenant"])?;
    let (tenant, job) = find(&call, param(&params, "tenant")).await?;
    show(&call, &tenant, &job).await
}

pub async fn get_by_alias(call: Call) -> Answer {
    let tenant = query_tenant(&call)?;
    let engine = &call.engine;
    let id = engine.find_alias(&tenant, call.param(0)).await?.ok_or_else(ApiError::no_such_job)?;
    let job = engine.get(&tenant, vec![id]).await?.pop().flatten().ok_or_else(ApiError::no_such_job)?;
    show(&call, &tenant, &job).await
}

async fn show(call: &Call, tenant: &Tenant, job: &Job) -> Answer {
    let around = super::queries::surroundings(&call.engine, tenant, job).await?;
    let mut out = Out::new(reply_encoding(call), 1_024);
    out.begin_map();
    views::job_fields(&mut out, job, Some(&around), call.hides_payloads());
    super::watch::next_runs(&mut out, job, around.now);
    super::trail::write(&mut out, job, call.hides_payloads());
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

pub async fn children(call: Call) -> Answer {
    let params = params(&call, &["tenant"])?;
    let (tenant, job) = find(&call, param(&params, "tenant")).await?;
    let jobs = call.engine.children(&tenant, job.id).await?;
    let mut out = Out::new(reply_encoding(&call), 1_024);
    out.begin_map();
    out.key("jobs");
    out.begin_array();
    let hidden = call.hides_payloads();
    jobs.iter().take(wire::PAGE_MAX).for_each(|job| views::job(&mut out, job, None, hidden));
    out.end_array();
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

pub async fn result(call: Call) -> Answer {
    let params = params(&call, &["tenant", "wait_ms"])?;
    let wait_ms = number_param::<u64>(&params, "wait_ms")?.unwrap_or(0).min(wire::WAIT_MS_MAX);
    let (tenant, job) = find(&call, param(&params, "tenant")).await?;
    let waited = tokio::select! {
        biased;
        waited = call.engine.wait_settled(&tenant, job.id, wait_ms) => waited?,
        () = call.leave() => Waited::NotYet(job),
    };
    let (status, job) = match waited {
        Waited::Settled(job) => (StatusCode::OK, job),
        Waited::NotYet(job) => (StatusCode::ACCEPTED, job),
        Waited::Unknown => return Err(ApiError::no_such_job()),
    };
    let mut out = Out::new(reply_encoding(&call), 256);
    views::result(&mut out, &job, call.hides_payloads());
    Ok(answer(status, out))
}

/// Does it to the job in the path, and shows what it is afterwards.
async fn act(call: &Call, action: Action) -> Answer {
    let params = params(call, &["tenant"])?;
    let (tenant, job) = find(call, param(&params, "tenant")).await?;
    act_on(call, &tenant, &job, action).await
}

async fn act_on(call: &Call, tenant: &Tenant, job: &Job, action: Action) -> Answer {
    let engine = call.engine.on_behalf_of(&call.caller.who);
    let mut answers = engine.act(tenant, vec![job.id], action).await?;
    let after = answers.pop().unwrap_or(Err(VerbError::NotFound))?;
    let mut out = Out::new(reply_encoding(call), 512);
    match after {
        Some(job) => views::job(&mut out, &job, None, call.hides_payloads()),
        None => {
            out.begin_map();
            out.key("id");
            out.uint(job.id.get());
            out.key("state");
            out.str("gone");
            out.end_map();
        }
    }
    Ok(answer(StatusCode::OK, out))
}

pub async fn cancel(mut call: Call) -> Answer {
    let (encoding, body) = body(&mut call).await?;
    let ask: CancelAsk = wire::optional(encoding, &body)?;
    let running = if ask.now { CancelRunning::Now } else { CancelRunning::Ask };
    act(&call, Action::Cancel { running, failed_too: false }).await
}

pub async fn retry(mut call: Call) -> Answer {
    let (encoding, body) = body(&mut call).await?;
    let ask: RunAsk = wire::optional(encoding, &body)?;
    act(&call, Action::Requeue { at: ask.at()?, even_running: ask.force }).await
}

pub async fn run(mut call: Call) -> Answer {
    let (encoding, body) = body(&mut call).await?;
    let ask: RunAsk = wire::optional(encoding, &body)?;
    act(&call, Action::Run { at: ask.at()?, force: ask.force }).await
}

pub async fn delete(call: Call) -> Answer {
    act(&call, Action::Delete).await
}

pub async fn patch(mut call: Call) -> Answer {
    let (encoding, body) = body(&mut call).await?;
    let ask: PatchAsk<'_> = codec::read_map(encoding, &body)?;
    let params = params(&call, &["tenant"])?;
    let (tenant, job) = find(&call, param(&params, "tenant")).await?;
    let now = call.engine.now();
    let patch = commands::patch(&ask, job.spec.extras.as_deref(), now).map_err(ApiError::bad_request)?;
    act_on(&call, &tenant, &job, Action::Update(patch)).await
}
