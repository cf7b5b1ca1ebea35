//! Server side of the process that runs statements: starts it, sends it one statement after the other, and
//! kills it when a statement takes too much time or memory.

use super::message::{Found, Order, QueryLimits, Reply, Run, length_of};
use super::sandbox::{Accesses, QueryError};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::{sleep, timeout};

/// Time from the start to the first reply, on a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// Interval of memory checks while a statement runs.
const WATCH: Duration = Duration::from_millis(50);
/// Largest reply: output, plus the new values of the jobs that an UPDATE changes.
const REPLY_BYTES_MAX: usize = 512 << 20;
/// A process that holds more memory than this after a statement is not reused.
const IDLE_BYTES_MAX: u64 = 96 << 20;

type Starting = Pin<Box<dyn Future<Output = io::Result<tokio::process::Child>> + Send>>;

/// Starts a process that runs [`serve`](super::serve) on its standard input and output, which are pipes.
#[derive(Clone)]
pub struct Program(Arc<dyn Fn() -> Starting + Send + Sync>);

impl Program {
    pub fn new<S>(start: impl Fn() -> S + Send + Sync + 'static) -> Program
    where
        S: Future<Output = io::Result<tokio::process::Child>> + Send + 'static,
    {
        Program(Arc::new(move || Box::pin(start())))
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Program")
    }
}

#[derive(Debug)]
pub(super) struct Child {
    process: tokio::process::Child,
    orders: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Child {
    pub(super) async fn start(program: &Program, limits: QueryLimits) -> io::Result<Child> {
        let mut process = (program.0)().await?;
        let (orders, replies) = (process.stdin.take(), process.stdout.take());
        let (Some(orders), Some(replies)) = (orders, replies) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let mut child = Child { process, orders, replies: BufReader::with_capacity(64 * 1024, replies) };
        let begun = async {
            child.order(&Order::Begin(limits)).await?;
            child.reply().await
        };
        match timeout(START_PATIENCE, begun).await {
            Ok(Ok(Reply::Ready(confined))) => {
                tracing::debug!(confined = %confined.join(", "), "query process started");
                Ok(child)
            }
            Ok(Ok(_)) => Err(out_of_turn()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Returns the columns that the statement would read and write.
    pub(super) async fn look(&mut self, run: Run) -> io::Result<Result<Accesses, QueryError>> {
        self.order(&Order::Run(run)).await?;
        match self.reply().await? {
            Reply::Wants(wants) => Ok(Ok(wants)),
            Reply::Trouble(trouble) => Ok(Err(trouble)),
            _ => Err(out_of_turn()),
        }
    }

    pub(super) async fn order(&mut self, order: &Order) -> io::Result<()> {
        self.orders.write_all(&order.encode()?).await?;
        self.orders.flush().await
    }

    /// Runs the statement on the rows sent before.
    pub(super) async fn run(&mut self) -> io::Result<Result<Found, QueryError>> {
        self.order(&Order::Go).await?;
        match self.reply().await? {
            Reply::Found(found) => Ok(Ok(found)),
            Reply::Trouble(trouble) => Ok(Err(trouble)),
            _ => Err(out_of_turn()),
        }
    }

    async fn reply(&mut self) -> io::Result<Reply> {
        let mut head = [0; 5];
        self.replies.read_exact(&mut head).await?;
        let length = length_of(&head, REPLY_BYTES_MAX)?;
        // Allocates as bytes arrive, not by the announced length.
        let mut body = Vec::with_capacity(length.min(64 * 1024));
        (&mut self.replies).take(length as u64).read_to_end(&mut body).await?;
        if body.len() < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Reply::decode(head[4], body)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    /// True if the process may run another statement: it has released the memory of the last one.
    pub(super) fn is_fit(&self) -> bool {
        self.pid().and_then(resident_bytes).is_none_or(|bytes| bytes <= IDLE_BYTES_MAX)
    }

    /// Kills the process and waits for its end.
    pub(super) async fn kill(mut self) {
        if let Err(error) = self.process.kill().await {
            tracing::debug!(%error, "cannot kill a query process; it has already exited");
        }
    }
}

/// Completes when the process uses more than `bytes_max`; never, where `/proc` is not available.
pub(super) async fn grown_beyond(pid: Option<u32>, bytes_max: u64) {
    loop {
        sleep(WATCH).await;
        if pid.and_then(resident_bytes).is_some_and(|bytes| bytes > bytes_max) {
            return;
        }
    }
}

fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn out_of_turn() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "unexpected reply of a query process")
}
