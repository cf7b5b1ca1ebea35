//! HTTP handlers: a job is posted to a URL, and the response status becomes the status of the job.

use super::World;
use super::answers::{AnswerLimits, ClientBudget, Growing, TooLarge};
use super::booking::Hold;
use super::handler::Handler;
use super::outcome::{TOO_MUCH, Verdict};
use super::output::{Output, split_answer};
use super::run::{Drive, Interrupt};
use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use windlass_core::handler::{BatchJob, Ended, NoRoom};
use windlass_http::{BadUrl, CallError, Pool, Slot, Target};

/// Concurrent connections per handler URL, as in miniq.
const CONNECTIONS_MAX: usize = 10;
/// Cached connection pools per client and URL; pools in use are never dropped.
const POOLS_MAX: usize = 1_000;

/// Parses the URL of a handler. The error is a message for the handler's author.
pub(super) fn parse_url(url: &str) -> Result<Target, String> {
    let url = url.trim();
    Target::parse(url).map_err(|why| {
        let what = match why {
            BadUrl::NotAUrl => "is not a URL",
            BadUrl::Scheme => "does not start with http:// or https://",
            BadUrl::NoHost | BadUrl::Credentials => "must have a host, and no user name or password",
            BadUrl::OddHost => "has an invalid host",
        };
        format!("the body of an http handler must be a URL, but {url:?} {what}")
    })
}

/// Failed call, with the reason.
#[derive(Debug)]
struct NoAnswer(Verdict);

impl NoAnswer {
    fn new(code: &str, message: impl Into<String>) -> NoAnswer {
        NoAnswer(Verdict::error(code, message))
    }
}

impl From<CallError> for NoAnswer {
    fn from(error: CallError) -> NoAnswer {
        let unnamed = match &error {
            CallError::NotAllowed { .. } => {
                return NoAnswer::new(
                    "BAD_HANDLER",
                    format!("{error}; add the address to miniq.handler_addresses"),
                );
            }
            CallError::NoTls(_) => "BAD_HANDLER",
            CallError::Tls { .. } => "ETLS",
            _ => "BATCH_ERROR",
        };
        NoAnswer::new(error.code().unwrap_or(unnamed), error.to_string())
    }
}

/// Connection pools by client and URL.
#[derive(Default)]
pub(super) struct Pools(Mutex<HashMap<(String, String), Arc<Pool>>>);

impl Pools {
    fn to(&self, world: &Arc<dyn World>, client: &str, url: &str, target: Target) -> Arc<Pool> {
        let mut pools = self.0.lock();
        if pools.len() >= POOLS_MAX {
            pools.retain(|_, pool| Arc::strong_count(pool) > 1);
        }
        let pool = pools.entry((client.to_owned(), url.to_owned())).or_insert_with(|| {
            let pool = Pool::new(target, CONNECTIONS_MAX, world.addresses());
            let world = Arc::clone(world);
            Arc::new(pool.signed(world.signer().as_ref(), client).with_tls(move || world.tls()))
        });
        Arc::clone(pool)
    }

    /// Reserves connections for a batch, as many as are free up to the number of jobs. `None`: the URL is
    /// invalid, which is reported for each job.
    pub(super) fn reserve(
        &self,
        world: &Arc<dyn World>,
        client: &str,
        handler: &Handler,
        jobs: usize,
    ) -> Result<Option<Reserved>, NoRoom> {
        let Ok(target) = parse_url(&handler.body) else { return Ok(None) };
        let pool = self.to(world, client, &handler.body, target);
        let wanted = if handler.options.batch { 1 } else { jobs };
        let slots: Vec<Slot> = (0..wanted).map_while(|_| pool.try_slot()).collect();
        match slots.is_empty() {
            true => Err(NoRoom::OwnShare),
            false => Ok(Some(Reserved { pool, slots })),
        }
    }

    pub(super) fn close(&self) {
        self.0.lock().clear();
    }
}

/// Connections reserved for one batch.
pub(super) struct Reserved {
    pool: Arc<Pool>,
    slots: Vec<Slot>,
}

impl Reserved {
    /// Number of jobs that can be sent at once.
    pub(super) fn jobs_max(&self, handler: &Handler) -> usize {
        if handler.options.batch { usize::MAX } else { self.slots.len() }
    }
}

struct Answer {
    status: u16,
    body: Bytes,
}

/// Limits of a call.
struct CallLimits {
    time: Duration,
    answer: AnswerLimits,
    /// Memory for the answer.
    budget: Arc<ClientBudget>,
}

impl CallLimits {
    fn late(&self) -> NoAnswer {
        NoAnswer::new("ETIMEDOUT", format!("no response within {} s", self.time.as_secs_f64()))
    }
}

/// Uses the reserved slot, or waits for one. The waiting time does not count towards the job's time limit.
async fn slot(pool: &Pool, reserved: Option<Slot>) -> Slot {
    match reserved {
        Some(slot) => slot,
        None => pool.slot().await,
    }
}

async fn post(pool: &Pool, request: Request<Full<Bytes>>, limits: CallLimits) -> Result<Answer, NoAnswer> {
    let mut deadline = Instant::now() + limits.time;
    let mut call = timeout_at(deadline, pool.send(request)).await.map_err(|_| limits.late())??;
    let status = call.status();
    let body = read_answer(call.body(), limits, &mut deadline).await?;
    call.keep();
    Ok(Answer { status, body })
}

async fn read_answer(
    body: &mut Incoming,
    limits: CallLimits,
    deadline: &mut Instant,
) -> Result<Bytes, NoAnswer> {
    let too_large = |TooLarge(what)| NoAnswer::new(TOO_MUCH, format!("too much output: {what}"));
    let expected = body.size_hint().lower();
    let mut answer = Growing::new(Arc::clone(&limits.budget), limits.answer, expected).map_err(too_large)?;
    while let Some(frame) = timeout_at(*deadline, body.frame()).await.map_err(|_| limits.late())? {
        let frame = frame.map_err(CallError::Http)?;
        if let Some(piece) = frame.data_ref() {
            answer.add(piece, deadline).await.map_err(too_large)?;
        }
    }
    Ok(answer.finish())
}

pub(super) async fn drive(drive: &mut Drive) {
    let handler = drive.batch.handler.clone();
    let target = match parse_url(&handler.body) {
        Ok(target) => target,
        Err(why) => return drive.tell_all(&Verdict::error("BAD_HANDLER", why)),
    };
    let reserved = match &mut drive.hold {
        Some(Hold::Connections { reserved, .. }) => {
            Reserved { pool: Arc::clone(&reserved.pool), slots: std::mem::take(&mut reserved.slots) }
        }
        _ => {
            let inner = &drive.inner;
            let pool = inner.http_pools.to(&inner.world, &drive.batch.client, &handler.body, target);
            Reserved { pool, slots: Vec::new() }
        }
    };
    match handler.options.batch {
        true => post_whole(drive, reserved).await,
        false => post_each(drive, reserved).await,
    }
}

fn call_limits(drive: &Drive, time: Duration) -> CallLimits {
    let settings = &drive.inner.settings;
    let bytes_max = settings.result_bytes_max.saturating_add(settings.new_jobs_bytes_max);
    let result_bytes_max = (!drive.batch.handler.options.batch).then_some(settings.result_bytes_max);
    let budget = drive.inner.answers.of(&drive.batch.client);
    CallLimits { time, answer: AnswerLimits { bytes_max, result_bytes_max }, budget }
}

fn request(drive: &Drive, pool: &Pool, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = pool.request(body, "text/plain");
    if let Ok(jobtype) = HeaderValue::from_str(&drive.batch.jobtype) {
        request.headers_mut().insert("windlass-jobtype", jobtype);
    }
    request
}

/// Adds the trace context of a run.
fn add_trace(request: &mut Request<Full<Bytes>>, job: &BatchJob) {
    let value = job.trace.and_then(|context| HeaderValue::from_str(&context.to_string()).ok());
    if let Some(value) = value {
        request.headers_mut().insert("traceparent", value);
    }
}

/// Sends one request per job, limited by the number of connections.
async fn post_each(drive: &mut Drive, reserved: Reserved) {
    let Reserved { pool, mut slots } = reserved;
    let pending = drive.pending();
    if slots.len() > pending.len() {
        slots.truncate(pending.len());
        drive.inner.room.notify_waiters();
    }
    let mut waiting = pending.into_iter();
    let mut calls = JoinSet::new();
    let mut running = HashMap::new();
    loop {
        while calls.len() < CONNECTIONS_MAX
            && let Some(index) = waiting.next()
        {
            if drive.is_stopped(index) {
                continue;
            }
            let call = calls.spawn(post_one(drive, index, pool.clone(), slots.pop()));
            running.insert(index, call);
        }
        let interrupt = tokio::select! {
            ended = calls.join_next() => match ended {
                None => break,
                Some(Ok((index, answer, took))) => {
                    running.remove(&index);
                    tell_answer(drive, index, answer, took);
                    continue;
                }
                // The job was stopped.
                Some(Err(_)) => continue,
            },
            interrupt = drive.interrupted_any() => interrupt,
        };
        match interrupt {
            // Requests in flight continue; the other jobs are reported below.
            Interrupt::Cut => waiting = Vec::new().into_iter(),
            Interrupt::Stopped => {
                for (_, call) in running.extract_if(|index, _| drive.is_stopped(*index)) {
                    call.abort();
                }
            }
            Interrupt::Dropped | Interrupt::Stopping => return drive.tell_all_unrun(interrupt.why()),
        }
    }
    // Jobs that were stopped.
    drive.tell_all_unrun(Interrupt::Stopped.why());
}

type Posted = (usize, Result<Answer, NoAnswer>, Duration);

fn post_one(
    drive: &Drive,
    index: usize,
    pool: Arc<Pool>,
    reserved: Option<Slot>,
) -> impl Future<Output = Posted> + Send + 'static {
    let mut request = request(drive, &pool, drive.lines(&[index]).into());
    let job = &drive.batch.jobs[index];
    if let Ok(id) = HeaderValue::from_str(&job.id) {
        request.headers_mut().insert("windlass-job-id", id);
    }
    request.headers_mut().insert("windlass-attempt", HeaderValue::from(job.attempt));
    add_trace(&mut request, job);
    let (inner, limits) = (drive.inner.clone(), call_limits(drive, drive.time_limit()));
    async move {
        let slot = slot(&pool, reserved).await;
        let began = Instant::now();
        let answer = post(&pool, request, limits).await;
        drop(slot);
        // Another batch may use the connection while this one continues.
        inner.room.notify_waiters();
        (index, answer, began.elapsed())
    }
}

fn tell_answer(drive: &mut Drive, index: usize, answer: Result<Answer, NoAnswer>, took: Duration) {
    let outcome = match answer {
        Err(NoAnswer(verdict)) => drive.outcome(verdict, Bytes::new(), Output::new(drive.limits()), took),
        Ok(answer) => {
            let (rest, output) = split_answer(answer.body, drive.limits());
            drive.outcome(Verdict::status(answer.status), rest, output, took)
        }
    };
    drive.tell(index, Ended::Done(outcome));
}

/// Sends one request for the whole batch; the response has a line per job.
async fn post_whole(drive: &mut Drive, mut reserved: Reserved) {
    let pending = drive.pending();
    if pending.is_empty() {
        return;
    }
    let limits = call_limits(drive, drive.whole_time_limit(pending.len()));
    let (pool, kept) = (reserved.pool, reserved.slots.pop());
    let mut request = request(drive, &pool, drive.lines(&pending).into());
    // A request has one context: that of its job if it is alone.
    if let [only] = pending[..] {
        add_trace(&mut request, &drive.batch.jobs[only]);
    }
    let mut began = Instant::now();
    let post = async {
        let _slot = slot(&pool, kept).await;
        began = Instant::now();
        post(&pool, request, limits).await
    };
    let answer = tokio::select! {
        answer = post => answer,
        interrupt = drive.interrupted(None) => return drive.tell_all_unrun(interrupt.why()),
    };
    let mut output = Output::with_statuses(drive.limits(), pending.len());
    let verdict = match answer {
        Ok(answer) => {
            output.stdout(&answer.body);
            // Each line has a status of its own; the status of the response is ignored.
            Verdict::status(200)
        }
        Err(NoAnswer(verdict)) => verdict,
    };
    for (index, outcome) in drive.status_outcomes(&pending, &verdict, true, output, began.elapsed()) {
        drive.tell(index, Ended::Done(outcome));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_or_refused_with_a_reason() {
        let target = parse_url("http://localhost:8080/run?x=1").unwrap();
        assert_eq!((target.to_string().as_str(), target.path().as_str()), ("localhost:8080", "/run?x=1"));
        let target = parse_url(" http://[::1] ").unwrap();
        assert_eq!((target.to_string().as_str(), target.path().as_str()), ("::1:80", "/"));
        assert!(parse_url("https://hooks.example.org").unwrap().is_https());
        for (url, word) in [
            ("", "not a URL"),
            ("/path", "http://"),
            ("ftp://host/", "http://"),
            ("http://user:word@host/", "password"),
            ("not a url", "not a URL"),
        ] {
            assert!(parse_url(url).unwrap_err().contains(word), "{url:?}: {:?}", parse_url(url));
        }
    }
}
