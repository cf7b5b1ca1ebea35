//! HTTP handlers: a job is posted to a URL, and the response status becomes the status of the job.

use super::answers::{AnswerLimits, Growing, TooLarge};
use super::booking::{Hold, NoRoom};
use super::handler::Handler;
use super::outcome::{Ended, TOO_MUCH, Verdict};
use super::output::{Output, split_answer};
use super::run::{Drive, Interrupt};
use super::{Inner, World};
use bytes::Bytes;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use rustls::pki_types::ServerName;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

/// Concurrent connections per handler URL, as in miniq.
const CONNECTIONS_MAX: usize = 10;
/// Cached connection pools per client and URL; pools in use are never dropped.
const LINES_MAX: usize = 1_000;

/// Parsed URL of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub is_https: bool,
    host: String,
    port: u16,
    authority: HeaderValue,
    path: PathAndQuery,
}

impl Target {
    /// Parses a URL. The error is a message for the handler's author.
    pub(super) fn parse(url: &str) -> Result<Target, String> {
        let url = url.trim();
        let wrong = |what: &str| format!("the body of an http handler is a URL, and {url:?} {what}");
        let uri: Uri = url.parse().map_err(|_| wrong("is none"))?;
        let is_https = uri.scheme() == Some(&Scheme::HTTPS);
        if !is_https && uri.scheme() != Some(&Scheme::HTTP) {
            return Err(wrong("does not begin with http:// or https://"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("has no host"))?;
        let host = authority.host();
        if host.is_empty() || authority.as_str().contains('@') {
            return Err(wrong("must have a host, and no user or password"));
        }
        Ok(Target {
            is_https,
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(if is_https { 443 } else { 80 }),
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| wrong("has an odd host"))?,
            path: uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")),
        })
    }
}

/// Failed call, with the reason.
#[derive(Debug)]
struct NoAnswer(Verdict);

impl NoAnswer {
    fn new(code: &str, message: impl Into<String>) -> NoAnswer {
        NoAnswer(Verdict::error(code, message))
    }

    fn io(doing: &str, error: &io::Error) -> NoAnswer {
        NoAnswer::new(code_of(error), format!("{doing}: {error}"))
    }

    fn hyper(error: &hyper::Error) -> NoAnswer {
        let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
        match cause {
            Some(cause) => NoAnswer::new(code_of(cause), error.to_string()),
            None if error.is_incomplete_message() || error.is_closed() || error.is_canceled() => {
                NoAnswer::new("ECONNRESET", error.to_string())
            }
            None => NoAnswer::new("BATCH_ERROR", error.to_string()),
        }
    }
}

/// Error code of failures without a code of their own.
const UNNAMED: &str = "BATCH_ERROR";

/// Error code with the name known from errno.
fn code_of(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "ECONNREFUSED",
        io::ErrorKind::ConnectionReset => "ECONNRESET",
        io::ErrorKind::ConnectionAborted => "ECONNABORTED",
        io::ErrorKind::TimedOut => "ETIMEDOUT",
        io::ErrorKind::HostUnreachable => "EHOSTUNREACH",
        io::ErrorKind::NetworkUnreachable => "ENETUNREACH",
        io::ErrorKind::BrokenPipe => "EPIPE",
        _ => UNNAMED,
    }
}

/// Connection pools by client and URL.
#[derive(Default)]
pub(super) struct Lines(Mutex<HashMap<(String, String), Arc<Line>>>);

impl Lines {
    fn to(&self, client: &str, url: &str, target: Target) -> Arc<Line> {
        let mut lines = self.0.lock();
        if lines.len() >= LINES_MAX {
            lines.retain(|_, line| Arc::strong_count(line) > 1);
        }
        let line = lines.entry((client.to_owned(), url.to_owned())).or_insert_with(|| {
            let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
            Arc::new(Line { target, idle: Mutex::default(), connections })
        });
        Arc::clone(line)
    }

    /// Reserves connections for a batch, as many as are free up to the number of jobs. `None`: the URL is
    /// invalid, which is reported for each job.
    pub(super) fn reserve(
        &self,
        client: &str,
        handler: &Handler,
        jobs: usize,
    ) -> Result<Option<Reserved>, NoRoom> {
        let Ok(target) = Target::parse(&handler.body) else { return Ok(None) };
        let line = self.to(client, &handler.body, target);
        let wanted = if handler.options.batch { 1 } else { jobs };
        let take = |_| line.connections.clone().try_acquire_owned().ok();
        let connections: Vec<OwnedSemaphorePermit> = (0..wanted).map_while(take).collect();
        match connections.is_empty() {
            true => Err(NoRoom::OwnShare),
            false => Ok(Some(Reserved { line, connections })),
        }
    }

    pub(super) fn hang_up(&self) {
        self.0.lock().clear();
    }
}

type Sender = SendRequest<Full<Bytes>>;

struct Line {
    target: Target,
    idle: Mutex<Vec<Sender>>,
    connections: Arc<Semaphore>,
}

/// Connections reserved for one batch.
pub(super) struct Reserved {
    line: Arc<Line>,
    connections: Vec<OwnedSemaphorePermit>,
}

impl Reserved {
    /// Number of jobs that can be sent at once.
    pub(super) fn jobs_max(&self, handler: &Handler) -> usize {
        if handler.options.batch { usize::MAX } else { self.connections.len() }
    }
}

struct Answer {
    status: u16,
    body: Bytes,
}

/// Limits of a call.
#[derive(Clone, Copy)]
struct CallLimits {
    time: Duration,
    answer: AnswerLimits,
}

impl CallLimits {
    fn late(&self) -> NoAnswer {
        NoAnswer::new("ETIMEDOUT", format!("no answer within {} s", self.time.as_secs_f64()))
    }
}

impl Line {
    /// Waits for a free connection slot. The waiting time does not count towards the job's time limit.
    async fn connection(&self, kept: Option<OwnedSemaphorePermit>) -> Result<OwnedSemaphorePermit, NoAnswer> {
        let closed = |_| NoAnswer::new("BATCH_ERROR", "the runner is closing");
        match kept {
            Some(kept) => Ok(kept),
            None => self.connections.clone().acquire_owned().await.map_err(closed),
        }
    }

    async fn post(
        &self,
        request: Request<Full<Bytes>>,
        inner: &Inner,
        limits: CallLimits,
    ) -> Result<Answer, NoAnswer> {
        let mut deadline = Instant::now() + limits.time;
        let sent = timeout_at(deadline, self.send(request, inner)).await;
        let (sender, response) = sent.map_err(|_| limits.late())??;
        let status = response.status().as_u16();
        let body = read_answer(response.into_body(), inner, limits, &mut deadline).await?;
        self.idle().push(sender);
        Ok(Answer { status, body })
    }

    async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        inner: &Inner,
    ) -> Result<(Sender, Response<Incoming>), NoAnswer> {
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from(self.target.path.clone());
        request.headers_mut().insert(header::HOST, self.target.authority.clone());
        // An idle connection may have been closed: a request that was not sent is retried on the next one.
        while let Some(mut kept) = self.take_idle() {
            if kept.ready().await.is_err() {
                continue;
            }
            match kept.try_send_request(request).await {
                Ok(response) => return Ok((kept, response)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(NoAnswer::hyper(&error.into_error())),
                },
            }
        }
        let mut fresh = self.connect(&*inner.world).await?;
        let response = fresh.send_request(request).await.map_err(|error| NoAnswer::hyper(&error))?;
        Ok((fresh, response))
    }

    async fn connect(&self, world: &dyn World) -> Result<Sender, NoAnswer> {
        let Target { host, port, .. } = &self.target;
        let found = tokio::net::lookup_host((host.as_str(), *port)).await;
        let found =
            found.map_err(|error| NoAnswer::new("ENOTFOUND", format!("looking up {host}: {error}")))?;
        // Checks the resolved addresses at each connect: DNS may have changed since the handler was created.
        let usable: Vec<SocketAddr> = found.filter(|address| world.may_call(address.ip())).collect();
        if usable.is_empty() {
            let why = format!(
                "{host} is not among the addresses this server may call; list it in miniq.handler_addresses"
            );
            return Err(NoAnswer::new("BAD_HANDLER", why));
        }
        let stream = TcpStream::connect(usable.as_slice()).await;
        let stream = stream.map_err(|error| NoAnswer::io("connecting", &error))?;
        let _ = stream.set_nodelay(true);
        if !self.target.is_https {
            return speak(stream).await;
        }
        let config = world.tls().map_err(|why| NoAnswer::new("BAD_HANDLER", why))?;
        let name = ServerName::try_from(host.clone())
            .map_err(|_| NoAnswer::new("BAD_HANDLER", format!("{host} is no name that a certificate has")))?;
        match TlsConnector::from(config).connect(name, stream).await {
            Ok(stream) => speak(stream).await,
            Err(error) => {
                let code = Some(code_of(&error)).filter(|code| *code != UNNAMED).unwrap_or("ETLS");
                Err(NoAnswer::new(code, format!("TLS with {host}: {error}")))
            }
        }
    }

    fn take_idle(&self) -> Option<Sender> {
        self.idle().pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Sender>> {
        self.idle.lock()
    }
}

async fn read_answer(
    mut body: Incoming,
    inner: &Inner,
    limits: CallLimits,
    deadline: &mut Instant,
) -> Result<Bytes, NoAnswer> {
    let too_large = |TooLarge(what)| NoAnswer::new(TOO_MUCH, format!("it printed too much: {what}"));
    let expected = body.size_hint().lower();
    let mut answer = Growing::new(&inner.answers, limits.answer, expected).map_err(too_large)?;
    while let Some(frame) = timeout_at(*deadline, body.frame()).await.map_err(|_| limits.late())? {
        let frame = frame.map_err(|error| NoAnswer::hyper(&error))?;
        if let Some(piece) = frame.data_ref() {
            answer.add(piece, deadline).await.map_err(too_large)?;
        }
    }
    Ok(answer.finish())
}

/// Performs the HTTP/1 handshake on a connection.
async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Sender, NoAnswer> {
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(|error| NoAnswer::hyper(&error))?;
    // Ends when the server closes the connection, or the sender is dropped with its pool.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a handler ended");
        }
    });
    Ok(sender)
}

pub(super) async fn drive(drive: &mut Drive) {
    let handler = drive.batch.handler.clone();
    let target = match Target::parse(&handler.body) {
        Ok(target) => target,
        Err(why) => return drive.tell_all(&Verdict::error("BAD_HANDLER", why)),
    };
    let reserved = match &mut drive.hold {
        Some(Hold::Line { reserved, .. }) => {
            let connections = std::mem::take(&mut reserved.connections);
            Reserved { line: Arc::clone(&reserved.line), connections }
        }
        _ => {
            let line = drive.inner.lines.to(&drive.batch.client, &handler.body, target);
            Reserved { line, connections: Vec::new() }
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
    CallLimits { time, answer: AnswerLimits { bytes_max, result_bytes_max } }
}

fn request(drive: &Drive, body: Bytes) -> Request<Full<Bytes>> {
    let signature = drive.inner.world.sign(&drive.batch.client, &body);
    let mut request = Request::new(Full::new(body));
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    if let Ok(jobtype) = HeaderValue::from_str(&drive.batch.jobtype) {
        headers.insert("windlass-jobtype", jobtype);
    }
    if let Some((name, Ok(value))) = signature.map(|(name, value)| (name, HeaderValue::from_str(&value))) {
        headers.insert(name, value);
    }
    request
}

/// Sends one request per job, limited by the number of connections.
async fn post_each(drive: &mut Drive, reserved: Reserved) {
    let Reserved { line, mut connections } = reserved;
    let pending = drive.pending();
    if connections.len() > pending.len() {
        connections.truncate(pending.len());
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
            let call = calls.spawn(post_one(drive, index, line.clone(), connections.pop()));
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
    line: Arc<Line>,
    kept: Option<OwnedSemaphorePermit>,
) -> impl Future<Output = Posted> + Send + 'static {
    let mut request = request(drive, drive.lines(&[index]).into());
    let job = &drive.batch.jobs[index];
    if let Ok(id) = HeaderValue::from_str(&job.id) {
        request.headers_mut().insert("windlass-job-id", id);
    }
    request.headers_mut().insert("windlass-attempt", HeaderValue::from(job.attempt));
    let (inner, limits) = (drive.inner.clone(), call_limits(drive, drive.time_limit()));
    async move {
        let connection = line.connection(kept).await;
        let began = Instant::now();
        let answer = match &connection {
            Ok(_) => line.post(request, &inner, limits).await,
            Err(NoAnswer(verdict)) => Err(NoAnswer(verdict.clone())),
        };
        drop(connection);
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
    let request = request(drive, drive.lines(&pending).into());
    let (inner, line, kept) = (drive.inner.clone(), reserved.line, reserved.connections.pop());
    let mut began = Instant::now();
    let post = async {
        let _connection = line.connection(kept).await?;
        began = Instant::now();
        line.post(request, &inner, limits).await
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
        let target = Target::parse("http://localhost:8080/run?x=1").unwrap();
        assert_eq!(
            (target.host.as_str(), target.port, target.path.as_str()),
            ("localhost", 8080, "/run?x=1")
        );
        let target = Target::parse(" http://[::1] ").unwrap();
        assert_eq!((target.host.as_str(), target.port, target.path.as_str()), ("::1", 80, "/"));
        let target = Target::parse("https://hooks.example.org").unwrap();
        assert_eq!((target.is_https, target.port), (true, 443));
        for (url, word) in [
            ("", "none"),
            ("/path", "http://"),
            ("ftp://host/", "http://"),
            ("http://user:word@host/", "password"),
            ("not a url", "none"),
        ] {
            assert!(Target::parse(url).unwrap_err().contains(word), "{url:?}: {:?}", Target::parse(url));
        }
    }
}
