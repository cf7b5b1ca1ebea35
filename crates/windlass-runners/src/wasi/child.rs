//! Guest process as seen by its runner: start, runs one after the other, kill.

pub use crate::spawn::GuestProgram;

use super::job_source::FetchError;
use super::message::{self, FRAME_EXTRA_BYTES, GuestEnd, Limits, Order, Reply};
use crate::handlers::resident_bytes;
use crate::spawn;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::io::BufReader;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep_until, timeout};

/// Time from the start to the first reply: the compiler must be set up, and the machine may be busy.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// Time to accept an order; an idle process has nothing else to do.
const ORDER_PATIENCE: Duration = Duration::from_secs(30);
/// Time to compile a module: a hundred megabytes take well under a minute.
const COMPILE_PATIENCE: Duration = Duration::from_secs(120);
/// Time beyond the time limit of the guest, which the process enforces itself.
const GRACE: Duration = Duration::from_secs(5);
/// Interval between checks of the memory during a run.
const WATCH: Duration = Duration::from_millis(500);
/// Memory besides that of the guest: compiled modules, the compiler, buffered input and output.
const PROCESS_BYTES: u64 = 1 << 30;
/// Runs between two memory checks of an idle process.
const RUNS_BETWEEN_LOOKS: u64 = 64;

pub struct Child {
    process: tokio::process::Child,
    orders: ChildStdin,
    replies: BufReader<ChildStdout>,
    limits: Limits,
    runs: u64,
    /// Confinement mechanisms in force besides the WebAssembly sandbox.
    pub confined: Vec<String>,
}

/// Future of a module's bytes, awaited only when needed.
pub trait Fetch: Future<Output = Result<Vec<u8>, FetchError>> + Send {}
impl<F: Future<Output = Result<Vec<u8>, FetchError>> + Send> Fetch for F {}

/// End of a run as seen by the runner.
#[derive(Debug)]
pub enum RunEnd {
    Ended(GuestEnd),
    /// The module could not be loaded; the process is still usable.
    NoModule(FetchError),
    /// The process was killed through the fault of the module.
    Killed(String),
    /// The process ended for another reason.
    Lost(String),
}

impl RunEnd {
    /// True if the process can take another run.
    pub fn leaves_it_usable(&self) -> bool {
        matches!(self, RunEnd::Ended(_) | RunEnd::NoModule(_))
    }
}

impl Child {
    pub async fn start(program: &GuestProgram, limits: Limits) -> io::Result<Child> {
        let mut process = spawn::start(program, Vec::new()).await?;
        let (orders, replies) = (process.stdin.take(), process.stdout.take());
        let (Some(orders), Some(replies)) = (orders, replies) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let replies = BufReader::new(replies);
        let mut child = Child { process, orders, replies, limits, runs: 0, confined: Vec::new() };
        let begun = async {
            message::write(&mut child.orders, &Order::Begin(limits)).await?;
            message::read::<Reply>(&mut child.replies, FRAME_EXTRA_BYTES).await
        };
        match timeout(START_PATIENCE, begun).await {
            Ok(Ok(Reply::Ready { confined })) => child.confined = confined,
            Ok(Ok(other)) => return Err(io::Error::other(format!("unexpected first reply {other:?}"))),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
        Ok(child)
    }

    /// Fails if a mechanism is missing, for use with `runners.isolation = strict`.
    pub fn check_strict(&self) -> Result<(), String> {
        let missing = crate::confine::missing(&self.confined).join(", ");
        if missing.is_empty() {
            return Ok(());
        }
        Err(format!("runners.isolation is strict, and this machine lacks {missing}"))
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    /// Runs a module to its end; awaits `fetch` if the module is not cached. Not cancel-safe: after dropping
    /// the future, kill the process.
    pub async fn run(&mut self, module: &str, input: Vec<u8>, fetch: impl Fetch) -> RunEnd {
        self.runs += 1;
        match self.converse(module, input, fetch).await {
            Ok(end) => end,
            Err(error) => self.post_mortem(&error).await,
        }
    }

    async fn converse(&mut self, module: &str, input: Vec<u8>, fetch: impl Fetch) -> io::Result<RunEnd> {
        let run_patience = Duration::from_millis(self.limits.time_limit_ms).saturating_add(GRACE);
        self.order(&Order::Run { module: module.to_owned(), input }).await?;
        let mut fetch = Some(fetch);
        let mut no_module = None;
        let mut patience = run_patience;
        loop {
            match self.reply(patience).await? {
                Heard::Reply(Reply::NeedModule) => {
                    let Some(fetch) = fetch.take() else {
                        return Err(io::Error::other("unexpected second request for a module"));
                    };
                    match fetch.await {
                        Ok(bytes) => self.order(&Order::Module { bytes }).await?,
                        Err(error) => {
                            no_module = Some(error);
                            self.order(&Order::GiveUp).await?;
                        }
                    }
                    patience = COMPILE_PATIENCE;
                }
                Heard::Reply(Reply::Started) => patience = run_patience,
                Heard::Reply(Reply::Ended(ended)) => {
                    return Ok(no_module.map_or(RunEnd::Ended(ended), RunEnd::NoModule));
                }
                Heard::Reply(Reply::Ready { .. }) => return Err(io::Error::other("unexpected second start")),
                Heard::Killed(why) => return Ok(RunEnd::Killed(why)),
            }
        }
    }

    async fn order(&mut self, order: &Order) -> io::Result<()> {
        timeout(ORDER_PATIENCE, message::write(&mut self.orders, order)).await?
    }

    async fn reply(&mut self, patience: Duration) -> io::Result<Heard> {
        let deadline = Instant::now() + patience;
        let pid = self.process.id();
        let memory_max = self.memory_max();
        let outputs = usize::try_from(self.limits.output_bytes_max.saturating_mul(2)).unwrap_or(usize::MAX);
        let reply = message::read(&mut self.replies, outputs.saturating_add(FRAME_EXTRA_BYTES));
        let too_much = async {
            loop {
                sleep_until(deadline.min(Instant::now() + WATCH)).await;
                if Instant::now() >= deadline {
                    return format!("the module did not end within {} s and was killed", patience.as_secs());
                }
                let memory = pid.and_then(resident_bytes).unwrap_or(0);
                if memory > memory_max {
                    return format!(
                        "the process used {memory} bytes of memory; the maximum is {memory_max}; it was \
                     killed"
                    );
                }
            }
        };
        let why = tokio::select! {
            biased;
            reply = reply => return Ok(Heard::Reply(reply?)),
            why = too_much => why,
        };
        self.kill().await;
        Ok(Heard::Killed(why))
    }

    fn memory_max(&self) -> u64 {
        self.limits.memory_bytes_max.saturating_add(PROCESS_BYTES)
    }

    /// True if the idle process uses too much memory and should be replaced.
    pub fn has_grown_too_big(&self) -> bool {
        self.runs.is_multiple_of(RUNS_BETWEEN_LOOKS)
            && self.process.id().and_then(resident_bytes).unwrap_or(0) > self.memory_max()
    }

    pub async fn kill(&mut self) {
        if let Err(error) = self.process.kill().await {
            tracing::debug!(%error, "cannot kill a WASI process; it has already exited");
        }
    }

    /// Decides whose fault a broken pipe is. Crash signals are caused by the process itself; SIGKILL and
    /// SIGTERM come from outside (an operator, the OOM killer).
    async fn post_mortem(&mut self, error: &io::Error) -> RunEnd {
        let Ok(Ok(status)) = timeout(GRACE, self.process.wait()).await else {
            self.kill().await;
            return RunEnd::Lost(format!("the process does not respond: {error}"));
        };
        if is_its_own_fault(status) {
            return RunEnd::Killed(format!("the module crashed its process ({status})"));
        }
        RunEnd::Lost(format!("the process was killed ({status})"))
    }
}

enum Heard {
    Reply(Reply),
    Killed(String),
}

fn is_its_own_fault(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    const OWN: [i32; 8] = [
        libc::SIGABRT,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGSEGV,
        libc::SIGSYS,
        libc::SIGTRAP,
        libc::SIGXFSZ,
    ];
    status.signal().is_some_and(|signal| OWN.contains(&signal)) || status.code().is_some_and(|code| code != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wasi::message::write_blocking;

    /// Uses a process that reports only one mechanism, as on another operating system.
    #[tokio::test]
    async fn a_guest_that_is_not_held_is_not_used_where_isolation_is_strict() {
        let folder = tempfile::TempDir::new().unwrap();
        let reply = folder.path().join("reply");
        let confined = vec!["limits".to_owned()];
        write_blocking(&mut std::fs::File::create(&reply).unwrap(), &Reply::Ready { confined }).unwrap();
        let script = format!("cat '{}'; cat > /dev/null", reply.display());
        let program = GuestProgram { path: "/bin/sh".into(), args: vec!["-c".to_owned(), script] };
        let mut child = Child::start(&program, Limits::default()).await.unwrap();
        let why = child.check_strict().unwrap_err();
        assert!(
            why.contains("landlock") && why.contains("seccomp") && !why.contains("resource limits"),
            "{why}"
        );
        child.kill().await;
    }
}
