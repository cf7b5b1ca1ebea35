//! Connection: requests in, replies out, in order.
//!
//! Pipelined requests are answered together: replies collect in a buffer that is written when no further
//! request is at hand, and independent requests of one kind share a commit. A claimed job belongs to the
//! worker once it has read the reply; a connection that breaks before releases it. While a worker waits for
//! jobs, the socket is watched, and the wait ends when the worker disconnects.

use super::commands::{Command, CommandOutcome, Commands, Reach, Shared, patience_ms};
use super::deferred::Deferred;
use super::errors::{self, StatusLine};
use super::params;
use super::wire::{Broken, Parser, Reply, Request, RequestLimits as WireLimits};
use crate::arrivals::Arrival;
use crate::auth::{Caller, Role};
use crate::budget::Share;
use crate::listener::Phase;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use unread::{Unread, has_ended};
use windlass_engine::Delivery;

mod batching;
mod reading;
mod unread;

pub use reading::UNKNOWN_BYTES_MAX;

/// Time limit of a command without a `timeout` header.
const TIMEOUT_MS_DEFAULT: i64 = 110_000;
/// Replies are buffered up to this size before they are written.
const OUT_BYTES_MAX: usize = 256 * 1024;
/// Bytes of further requests read while a worker waits; more remain in the socket buffer.
const READ_AHEAD_MAX: usize = 1 << 20;
/// Bytes per read of the socket.
const READ_BYTES: usize = 16 * 1024;

/// After an unparsable request and its reply, the rest of the client's input is read until it ends, for at
/// most this long in total, and at most this long without a byte.
const HEAR_OUT_MAX: Duration = Duration::from_secs(30);
const HEAR_OUT_QUIET: Duration = Duration::from_secs(5);

/// Limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    pub wire: WireLimits,
    /// Time until a client is admitted: by a valid token where tokens are required, elsewhere by any command.
    pub unknown: Duration,
    /// Between two requests. Workers keep their connection open while they work, and a job may take hours;
    /// TCP keepalive detects a vanished peer long before.
    pub idle: Duration,
    /// Between two pieces of one request. People type requests by hand. The limit for a whole request is in
    /// [`crate::pace::time_for`].
    pub stall: Duration,
    /// Time to write replies that the client does not read.
    pub write: Duration,
}

/// Stream over TCP.
pub trait Link: AsyncRead + AsyncWrite + Unpin + Send {
    fn tcp(&self) -> &TcpStream;
}

impl Link for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Link for tokio_rustls::server::TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// Decision to continue or close a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Go,
    Close,
}

pub struct Session<L> {
    link: L,
    shared: Arc<Shared>,
    deferred: Deferred,
    limits: SessionLimits,
    phase: watch::Receiver<Phase>,
    /// The client is on this machine.
    is_local: bool,
    parser: Parser,
    /// Parser result that follows the requests being answered.
    ahead: Option<Result<Request, Broken>>,
    out: Vec<u8>,
    /// Jobs whose replies are in `out`.
    undelivered: Vec<Delivery>,
    unread: Unread,
    /// The client has closed its sending side.
    ended: bool,
    /// Time of the last bytes received.
    heard: Instant,
    arrival: Arc<Arrival>,
    /// The connection quota of the tenant is exhausted: the connection closes after the pending replies.
    is_refused: bool,
    /// Start of the wait for a client that is not admitted: the start of the connection, or the last reply.
    waited_since: Instant,
    /// Start of the request being read, or the earliest time it could have begun.
    begun: Instant,
    /// Memory reserved for a large request.
    share: Share,
}

impl<L: Link> Session<L> {
    pub fn new(
        link: L,
        shared: Arc<Shared>,
        deferred: Deferred,
        limits: SessionLimits,
        (phase, arrival): (watch::Receiver<Phase>, Arc<Arrival>),
    ) -> Session<L> {
        let is_local = link.tcp().peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback());
        let head_bytes_max = match shared.tokens.is_open() {
            true => limits.wire.head_bytes_max,
            false => limits.wire.head_bytes_max.min(UNKNOWN_BYTES_MAX),
        };
        let parser = Parser::new(WireLimits { head_bytes_max, ..limits.wire });
        Session {
            link,
            shared,
            deferred,
            limits,
            phase,
            is_local,
            parser,
            ahead: None,
            out: Vec::new(),
            undelivered: Vec::new(),
            unread: Unread::default(),
            ended: false,
            heard: Instant::now(),
            arrival,
            is_refused: false,
            waited_since: Instant::now(),
            begun: Instant::now(),
            share: Share::default(),
        }
    }

    pub async fn run(mut self) {
        // A broken connection is no error: undelivered jobs are released when the session ends.
        let served = self.serve().await;
        if self.left_unread(&served).await {
            self.unread.give_back();
        }
        if let Err(error) = served {
            tracing::debug!(%error, "a Bedrock connection failed");
        }
        let _ = timeout(Duration::from_secs(1), self.link.shutdown()).await;
    }

    async fn serve(&mut self) -> io::Result<()> {
        loop {
            match self.next() {
                Ok(Some(request)) => {
                    if self.answer(request).await? == Flow::Close {
                        return self.flush().await;
                    }
                    self.begun = Instant::now();
                    if self.out.len() > OUT_BYTES_MAX {
                        self.flush().await?;
                    }
                }
                Ok(None) => {
                    self.flush().await?;
                    if self.ended || !self.read().await? {
                        return Ok(());
                    }
                    if self.cover().await.is_err() {
                        Reply::from(errors::BUSY).write(&mut self.out);
                        self.flush().await?;
                        return self.drain_input().await;
                    }
                }
                Err(Broken::HeadTooLarge) if self.admit_by_partial_head() => {}
                Err(broken) => {
                    match broken {
                        // Closed without a reply, as the protocol does.
                        Broken::BadLength => {}
                        Broken::HeadTooLarge if self.arrival.is_admitted() => {
                            Reply::new("413 Request too large").write(&mut self.out);
                        }
                        Broken::HeadTooLarge => Reply::from(errors::TOO_LARGE_UNKNOWN).write(&mut self.out),
                        Broken::TooManyHeaders => Reply::new("431 Too many headers").write(&mut self.out),
                    }
                    self.flush().await?;
                    return self.drain_input().await;
                }
            }
        }
    }

    /// Closes the sending side and drains the client's input: an immediate close would reset the connection,
    /// and the last reply could be lost.
    async fn drain_input(&mut self) -> io::Result<()> {
        self.link.shutdown().await?;
        let mut heard = vec![0; READ_BYTES];
        let listening = async {
            while let Ok(read) = timeout(HEAR_OUT_QUIET, self.link.read(&mut heard)).await {
                if read? == 0 {
                    break;
                }
            }
            Ok(())
        };
        tokio::select! {
            heard = timeout(HEAR_OUT_MAX, listening) => heard.unwrap_or(Ok(())),
            _ = self.phase.wait_for(|phase| *phase >= Phase::Draining) => Ok(()),
        }
    }

    fn next(&mut self) -> Result<Option<Request>, Broken> {
        match self.ahead.take() {
            Some(taken) => taken.map(Some),
            None => self.parser.take(),
        }
    }

    /// Answers a request, and the pipelined requests that can share its commit. The replies are in the buffer
    /// afterwards.
    async fn answer(&mut self, request: Request) -> io::Result<Flow> {
        let hosts = Some(&self.shared.hosts).filter(|_| self.shared.tokens.is_open());
        if let Some(status) = super::browser::refusal(&request, hosts) {
            self.put(status.into(), Reach::Server, &request, Duration::ZERO);
            return Ok(Flow::Close);
        }
        self.admit_if_authorized(&request);
        let Some((command, reach, role)) = Command::of(&request) else {
            return Ok(self.put(errors::UNRECOGNIZED.into(), Reach::Read, &request, Duration::ZERO));
        };
        let run = self.gather(request, command);
        if let [request] = run.as_slice()
            && let Some(flow) = self.answer_deferred_or_waiting(command, request, role).await?
        {
            return Ok(flow);
        }
        let began = Instant::now();
        let shared = Arc::clone(&self.shared);
        let asked: Vec<_> = run
            .iter()
            .map(|request| (self.caller_of(request, role), self.time_left(command, reach, request)))
            .collect();
        let is_local = self.is_local;
        let each = |(request, asked)| run_command(&shared, command, reach, request, is_local, asked);
        let all = futures_util::future::join_all(run.iter().zip(asked).map(each));
        let work = async {
            if command.hands_out() {
                catch_up(&shared).await;
            }
            all.await
        };
        let outcomes = if command.hands_out() { self.while_listening(work).await? } else { work.await };
        let mut flow = Flow::Go;
        for ((outcome, reach), request) in outcomes.into_iter().zip(&run) {
            self.undelivered.extend(outcome.delivery);
            flow = self.put(outcome.reply, reach, request, began.elapsed());
        }
        Ok(flow)
    }

    /// Handles deferred commands and waiting workers. `None`: the request is neither.
    async fn answer_deferred_or_waiting(
        &mut self,
        command: Command,
        request: &Request,
        role: Option<Role>,
    ) -> io::Result<Option<Flow>> {
        let put_off = self.put_off(request);
        let waits = command.hands_out() && patience_ms(request, self.shared.profile.waits()) > 0;
        if put_off.is_none() && !waits {
            return Ok(None);
        }
        let caller = match self.caller_of(request, role) {
            Ok(caller) => caller,
            Err(status) => return Ok(Some(self.put(status.into(), Reach::Server, request, Duration::ZERO))),
        };
        if let Some(reply) = put_off {
            let request = request.clone();
            let work = super::deferred::Work { command, request, caller, is_local: self.is_local };
            return Ok(Some(self.queue(work, reply)));
        }
        let began = Instant::now();
        self.flush().await?;
        let Some(outcome) = self.wait_for_jobs(command, request, &caller).await? else {
            return Ok(Some(Flow::Close));
        };
        self.undelivered.extend(outcome.delivery);
        Ok(Some(self.put(outcome.reply, Reach::Write, request, began.elapsed())))
    }

    /// Remaining time of the command; `None`: it is over. A waiting worker is not subject to it.
    fn time_left(&self, command: Command, reach: Reach, request: &Request) -> Option<Duration> {
        let number = |name: &str| request.given(name).map(params::leading_number);
        if command.hands_out() && is_waiting_claim(request, self.shared.profile.waits()) {
            return Some(Duration::MAX);
        }
        let total = number("timeout").unwrap_or(TIMEOUT_MS_DEFAULT).max(0).unsigned_abs();
        let left = Duration::from_millis(total).checked_sub(self.heard.elapsed())?;
        let stage = number("processtimeout").filter(|_| reach == Reach::Write).filter(|ms| *ms > 0);
        let left = stage.map_or(left, |ms| left.min(Duration::from_millis(ms.unsigned_abs())));
        (!left.is_zero()).then_some(left)
    }

    /// Runs `work` that claims jobs, while watching the connection for its end.
    async fn while_listening<T>(&mut self, work: impl Future<Output = T>) -> io::Result<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let reads = !self.ended && self.parser.pending() < READ_AHEAD_MAX;
            let room = self.parser.room(READ_BYTES);
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                read = self.link.read_buf(room), if reads => match read? {
                    0 => self.ended = true,
                    _ => self.unread.accept(),
                },
            }
        }
    }

    /// Waits for jobs; `None`: the worker disconnected.
    async fn wait_for_jobs(
        &mut self,
        command: Command,
        request: &Request,
        caller: &Caller,
    ) -> io::Result<Option<CommandOutcome>> {
        let shared = Arc::clone(&self.shared);
        let engine = caller.engine(&shared.engine);
        let commands = Commands::new(&shared, &engine, caller, self.is_local);
        let mut work = std::pin::pin!(commands.answer(command, request));
        loop {
            let reads = !self.ended && self.parser.pending() < READ_AHEAD_MAX;
            let room = self.parser.room(READ_BYTES);
            tokio::select! {
                biased;
                outcome = &mut work => return Ok(Some(outcome)),
                read = self.link.read_buf(room), if reads => match read? {
                    0 => return Ok(None),
                    _ => self.unread.accept(),
                },
                _ = self.phase.wait_for(|phase| *phase >= Phase::Draining) => {
                    return Ok(Some(Reply::from(errors::NO_JOB_FOUND).into()));
                }
                () = shared.tokens.wait_until_refused(caller, &shared.engine) => {
                    return Ok(Some(Reply::from(errors::TOKEN_NEEDED).into()));
                }
            }
        }
    }

    /// Reply to a deferred command: `Connection: forget`, or a later execution time. `None`: the command runs
    /// now.
    fn put_off(&self, request: &Request) -> Option<Reply> {
        let is_forgotten = is_connection(request, "forget");
        let later = super::deferred::execute_at(request).is_some_and(|at| at > self.shared.engine.now());
        (is_forgotten || later).then(|| {
            let reply = Reply::from(errors::QUEUED).with_header("nodeName", NODE);
            if is_forgotten { reply.with_header("Connection", "close") } else { reply }
        })
    }

    fn queue(&mut self, work: super::deferred::Work, reply: Reply) -> Flow {
        let closes = is_connection(&work.request, "forget") || is_connection(&work.request, "close");
        let reply = match self.deferred.add(work) {
            Ok(()) => reply,
            Err(status) => Reply::from(status),
        };
        reply.write(&mut self.out);
        if closes { Flow::Close } else { Flow::Go }
    }

    /// Adds the standard headers and writes the reply to the buffer.
    fn put(&mut self, reply: Reply, reach: Reach, request: &Request, took: Duration) -> Flow {
        let closes = is_connection(request, "close") || self.is_refused;
        let mut reply = with_standard_headers(reply, reach, &self.shared, took, self.heard.elapsed());
        if closes {
            reply = reply.with_header("Connection", "close");
        }
        reply.write(&mut self.out);
        if closes { Flow::Close } else { Flow::Go }
    }

    /// Writes the buffer. Jobs in it then belong to the client, unless it turns out to have disconnected.
    async fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let hands_out = self.undelivered.iter().any(|delivery| !delivery.jobs.is_empty());
        let may_be_gone = hands_out && (self.ended || has_ended(self.link.tcp()));
        let writing = async {
            self.link.write_all(&self.out).await?;
            self.link.flush().await
        };
        let wrote = timeout(self.limits.write, writing).await;
        self.out.clear();
        self.out.shrink_to(OUT_BYTES_MAX);
        wrote.map_err(|_| {
            io::Error::new(io::ErrorKind::TimedOut, "timed out: the client does not read its responses")
        })??;
        if may_be_gone && self.is_gone().await {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        self.unread.0.append(&mut self.undelivered);
        Ok(())
    }
}

/// Expires leases whose time is over, so that their jobs are due now. Done once for a batch of requests,
/// before the first: awaiting it in each request would change their order.
async fn catch_up(shared: &Shared) {
    if let Err(error) = shared.engine.catch_up().await {
        tracing::debug!(%error, "cannot expire leases before a claim");
    }
}

/// Runs one command, and returns how far into the server it went.
async fn run_command(
    shared: &Shared,
    command: Command,
    reach: Reach,
    request: &Request,
    is_local: bool,
    (caller, left): (Result<Caller, StatusLine>, Option<Duration>),
) -> (CommandOutcome, Reach) {
    let caller = match caller {
        Ok(caller) => caller,
        Err(status) => return (Reply::from(status).into(), Reach::Server),
    };
    let Some(left) = left else { return (Reply::from(errors::TIMEOUT).into(), reach) };
    let engine = caller.engine(&shared.engine);
    let commands = Commands::new(shared, &engine, &caller, is_local);
    // On a timeout the work continues in the engine; only its result is dropped.
    let answered = timeout(left, commands.answer(command, request)).await;
    let outcome = answered.unwrap_or_else(|_| {
        let late = if command.hands_out() { errors::TIMEOUT.into() } else { timed_out(reach) };
        CommandOutcome::from(late)
    });
    (outcome, reach)
}

/// Node name in replies; there is only one node.
pub const NODE: &str = "windlass";

/// True for a waiting worker, whose `timeout` limits the wait for a job and ends without a 555.
fn is_waiting_claim(request: &Request, waits: bool) -> bool {
    waits && is_connection(request, "wait")
}

fn is_connection(request: &Request, word: &str) -> bool {
    request.get("connection").is_some_and(|text| text.eq_ignore_ascii_case(word))
}

fn timed_out(reach: Reach) -> Reply {
    match reach {
        Reach::Server => errors::TIMEOUT,
        Reach::Read => errors::TIMEOUT_PEEKING,
        Reach::Write => errors::TIMEOUT_PROCESSING,
    }
    .into()
}

fn with_standard_headers(
    reply: Reply,
    reach: Reach,
    shared: &Shared,
    took: Duration,
    total: Duration,
) -> Reply {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let (took_us, total_us) = (micros(took), micros(total.max(took)));
    let mut reply = reply.with_header("nodeName", NODE);
    let (wrote, now) = (reach == Reach::Write && reply.is_ok(), shared.engine.now());
    if reach != Reach::Server {
        let count = if wrote { shared.commits.count(now) } else { shared.commits.latest(now) };
        reply = reply.with_header("commitCount", count.to_string());
    }
    if wrote {
        reply = reply.with_header("processTime", took_us.max(1).to_string());
    } else if took_us > 0 && reach != Reach::Server {
        reply = reply.with_header("peekTime", took_us.to_string());
    }
    reply
        .with_header("totalTime", total_us.to_string())
        .with_header("unaccountedTime", (total_us - took_us).to_string())
}
