//! The process that runs statements as the server sees it: started, given one statement after the other, killed when one
//! takes too long or too much memory.

use super::message::{Found, Limits, Order, Reply, Run, length_of};
use super::sandbox::{Trouble, Wants};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::{sleep, timeout};

/// From its start to its first reply; the machine may be busy.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// How often the memory of a running statement is looked at.
const WATCH: Duration = Duration::from_millis(50);
/// Bytes of one reply: an answer, and the new values of the jobs that an UPDATE changes.
const REPLY_BYTES_MAX: usize = 512 << 20;
/// A process that has kept more than this after a statement is not used for another one.
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
    pub(super) async fn start(program: &Program, limits: Limits) -> io::Result<Child> {
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
                tracing::debug!(confined = %confined.join(", "), "a process for queries runs");
                Ok(child)
            }
            Ok(Ok(_)) => Err(out_of_turn()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// What the statement would read and write.
    pub(super) async fn look(&mut self, run: Run) -> io::Result<Result<Wants, Trouble>> {
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

    /// What it found among the rows it was sent.
    pub(super) async fn run(&mut self) -> io::Result<Result<Found, Trouble>> {
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
        // Memory is taken as bytes arrive, not for a number.
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

    /// Whether it may run another statement: it has given back what the last one took.
    pub(super) fn is_fit(&self) -> bool {
        self.pid().and_then(resident_bytes).is_none_or(|bytes| bytes <= IDLE_BYTES_MAX)
    }

    /// Returns when it is gone.
    pub(super) async fn kill(mut self) {
        if let Err(error) = self.process.kill().await {
            tracing::debug!(%error, "a process for queries could not be killed; it is gone already");
        }
    }
}

/// Until the process uses more than `bytes_max`: never, where the system does not tell.
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
    io::Error::new(io::ErrorKind::InvalidData, "a process for queries replied out of turn")
}
