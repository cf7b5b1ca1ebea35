//! Context as seen by the server: a process group, a socket to its shim, and pipes for stdout and stderr.

use super::census::{self, Census};
use super::cgroup::{Cgroups, Leaf};
use super::confine::Bounds;
use super::disk::DiskWatch;
use super::frames::{Frame, Frames};
use super::guard::{Setup, setup_message};
use super::interpreter::{Launch, PATH};
use super::memory;
use super::outcome::{TOO_MUCH, Verdict};
use super::output::Output;
use super::pipe::Pipe;
use super::place::{is_reachable, make_folders, user_processes_max};
use super::remove::remove_folder;
use super::settings::Settings;
use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// Time from the start to the `ready` message of the shim: interpreters start slowly on a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// Interval between checks of memory and processes while a job runs.
const WATCH: Duration = Duration::from_millis(250);
/// Time for counting files between two batches; a count that takes longer continues in the next batch.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of a frame in addition to the result.
const FRAME_EXTRA_BYTES: usize = 128 * 1024;
/// Number of checks, and the pause between them, before remaining child processes count as left behind.
const REST_LOOKS: u32 = 20;
const REST_PAUSE: Duration = Duration::from_millis(5);
/// Time for the guard process to kill all processes of the context.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// Reads of output before the task yields to others.
const READS_AT_ONCE: u32 = 8;
/// Most bytes read after the end of a job: a process left behind may print without end.
const DRAIN_BYTES: usize = 4 << 20;

/// Parameters for starting a context.
pub(super) struct Start<'a> {
    pub settings: &'a Settings,
    pub launch: &'a Launch,
    /// Name of the context's folder.
    pub number: u64,
    pub uid: Option<u32>,
    pub network: bool,
    pub client: &'a str,
    pub census: Arc<Census>,
    /// Runs in its own namespaces.
    pub is_apart: bool,
    /// Parent of the context's cgroup, if cgroups are available.
    pub cgroups: Option<&'a Cgroups>,
}

pub(super) struct Context {
    guard: tokio::process::Child,
    orders: mpsc::UnboundedSender<Bytes>,
    writer: AbortHandle,
    /// `None` after the end of the context.
    frames: Option<Frames>,
    stdout: Pipe,
    stderr: Pipe,
    folder: PathBuf,
    cgroup: Option<Leaf>,
    census: Arc<Census>,
    memory_bytes_max: u64,
    tasks_max: u64,
    disk: DiskWatch,
    next_look: Instant,
    /// Leader of the process group: the interpreter, or with namespaces their init process.
    first: Option<u32>,
    is_apart: bool,
    interpreter: Option<u32>,
    /// Numbers of children of the process that inherits orphans, and of the interpreter, while no job runs.
    at_rest: Option<(usize, usize)>,
    /// Version and number of the handler by job type.
    pub(super) handlers: HashMap<String, (String, usize)>,
    /// Code of the `before` hook, which runs at most once in a context.
    pub(super) before: Option<String>,
    pub(super) jobs: u32,
    pub(super) holds: String,
}

/// Context that failed to start, with the reason.
#[derive(Debug)]
pub(super) struct NotStarted(pub String);

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        NotStarted(format!("cannot start the handler process: {error}"))
    }
}

/// Event of a context.
#[derive(Debug)]
pub(super) enum Heard {
    Frame(Frame),
    /// The deadline has passed.
    Late,
    /// A limit is exceeded, or a message is malformed.
    Unbearable(Verdict),
    /// The process has ended.
    Gone(Verdict),
}

impl Context {
    pub(super) async fn start(start: Start<'_>) -> Result<Context, NotStarted> {
        let folder = start.settings.folder.join(start.number.to_string());
        make_folders(&folder, start.uid)?;
        let (ours, theirs) = UnixStream::pair()?;
        let (stdout, their_stdout) = Pipe::new()?;
        let (stderr, their_stderr) = Pipe::new()?;
        let theirs = theirs.into_std()?;
        theirs.set_nonblocking(false)?;
        let guard = Command::new(&start.settings.helper.path)
            .args(&start.settings.helper.args)
            .env_clear()
            .current_dir(folder.join("work"))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(their_stdout)
            .stderr(their_stderr)
            .process_group(0)
            .spawn()?;
        let (read, write) = ours.into_split();
        let (orders, queued) = mpsc::unbounded_channel();
        let writer = tokio::spawn(write_orders(write, queued)).abort_handle();
        let mut context = Context {
            guard,
            orders,
            writer,
            frames: Some(Frames::new(
                read,
                start.settings.result_bytes_max.saturating_add(FRAME_EXTRA_BYTES),
            )),
            stdout,
            stderr,
            disk: DiskWatch::new(folder.join("work"), start.settings.disk_bytes_max),
            folder,
            cgroup: None,
            census: start.census.clone(),
            memory_bytes_max: start.settings.memory_bytes_max,
            tasks_max: u64::from(start.settings.processes_max),
            next_look: Instant::now() + WATCH,
            first: None,
            is_apart: start.is_apart,
            interpreter: None,
            at_rest: None,
            handlers: HashMap::new(),
            before: None,
            jobs: 0,
            holds: String::new(),
        };
        // Before the guard process is told what to start, so that all processes are in the cgroup.
        context.enter_cgroup(&start)?;
        context.send(setup_message(&context.setup(&start))?);
        context.wait_until_ready(start.settings).await?;
        Ok(context)
    }

    fn enter_cgroup(&mut self, start: &Start<'_>) -> io::Result<()> {
        let (Some(cgroups), Some(guard)) = (start.cgroups, self.guard.id()) else { return Ok(()) };
        let tasks = u64::from(start.settings.processes_max);
        let leaf = cgroups.make(start.settings.memory_bytes_max, tasks)?;
        self.cgroup.insert(leaf).enter(guard)
    }

    fn setup(&self, start: &Start<'_>) -> Setup {
        let settings = start.settings;
        let work = self.folder.join("work");
        let variables = [
            ("PATH", PATH.to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
            ("WINDLASS_CLIENT", start.client.to_owned()),
            ("WINDLASS_RESULT_MAX", settings.result_bytes_max.to_string()),
        ];
        let program = start.launch.program.canonicalize().ok();
        Setup {
            program: start.launch.program.to_string_lossy().into_owned(),
            args: start.launch.args.clone(),
            environment: variables.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            home: is_reachable(&work, start.uid).then(|| work.to_string_lossy().into_owned()),
            view: start.is_apart.then(|| self.folder.join("view")),
            bounds: Bounds {
                lang: start.launch.lang,
                memory_bytes_max: settings.memory_bytes_max,
                file_bytes_max: settings.file_bytes_max,
                user_processes_max: user_processes_max(settings, start.uid, start.is_apart),
                work,
                orders: self.folder.join("in"),
                readable: settings.readable.iter().cloned().chain(program).collect(),
                // Hides the folders of the other contexts as well.
                hidden: settings.hidden.iter().cloned().chain([settings.folder.clone()]).collect(),
                network: start.network,
                uid: start.uid,
                is_apart: false,
            },
        }
    }

    async fn wait_until_ready(&mut self, settings: &Settings) -> Result<(), NotStarted> {
        let deadline = Instant::now() + START_PATIENCE;
        let mut output = Output::new(super::output::OutputLimits::of(settings));
        let why = loop {
            match self.hear(&mut output, deadline).await {
                Heard::Frame(Frame::Word { word, text }) => match word.as_str() {
                    "ready" => {
                        self.find_interpreter();
                        return Ok(());
                    }
                    "holds" => self.holds = text,
                    "pid" => self.first = text.parse().ok(),
                    "fault" => break text,
                    _ => {}
                },
                Heard::Frame(Frame::Output { bytes, .. }) => output.stderr(&bytes),
                Heard::Frame(Frame::Reply { .. }) => {
                    break "unexpected reply of the handler process".to_owned();
                }
                Heard::Late => break format!("not ready within {} s", START_PATIENCE.as_secs()),
                Heard::Unbearable(verdict) | Heard::Gone(verdict) => {
                    break verdict.message.unwrap_or(verdict.code);
                }
            }
        };
        let said = output.finish().log;
        let said = String::from_utf8_lossy(&said);
        let separator = if said.trim().is_empty() { "" } else { ": " };
        self.kill().await;
        Err(NotStarted(format!("cannot start the interpreter: {why}{separator}{}", said.trim())))
    }

    /// Finds the interpreter's process id as seen by the server, not inside the PID namespace.
    fn find_interpreter(&mut self) {
        self.interpreter = match self.is_apart {
            true => {
                self.first.and_then(census::children_of).and_then(|pids| u32::try_from(*pids.first()?).ok())
            }
            false => self.first,
        };
    }

    /// Queues a message without waiting. The queue is unbounded, but a batch is not.
    pub(super) fn send(&self, order: impl Into<Bytes>) {
        // An ended context is reported by `hear`.
        let _ = self.orders.send(order.into());
    }

    /// Writes a file that the context can read but not change, for languages that get code and payloads as
    /// files.
    pub(super) fn write_file(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.folder.join("in").join(name);
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        // Readable despite the umask; only the context's user can enter the folder.
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.write_all(bytes)
    }

    /// Starts the interval of the checks for a new batch.
    pub(super) fn attend(&mut self) {
        self.next_look = Instant::now() + WATCH;
    }

    /// Waits for the next frame and appends printed bytes to `output`. Cancel-safe.
    pub(super) async fn hear(&mut self, output: &mut Output, deadline: Instant) -> Heard {
        let mut reads: u32 = 0;
        loop {
            reads += 1;
            // Endless output must not starve other tasks or the deadline.
            if reads.is_multiple_of(READS_AT_ONCE) {
                tokio::task::yield_now().await;
            }
            let Some(frames) = &mut self.frames else {
                return Heard::Gone(Verdict::error("EXIT", "the handler process exited"));
            };
            match frames.take() {
                Ok(Some(Frame::Word { word, text })) if word == "ended" => {
                    self.drain(output);
                    return Heard::Gone(self.out_of_memory().unwrap_or_else(|| Verdict::of_end(&text)));
                }
                Ok(Some(frame)) => {
                    let is_reply = matches!(frame, Frame::Reply { .. });
                    return match self.out_of_memory().filter(|_| is_reply) {
                        Some(verdict) => Heard::Unbearable(verdict),
                        None => Heard::Frame(frame),
                    };
                }
                Ok(None) => {}
                Err(error) => {
                    let code = match error.kind() {
                        io::ErrorKind::FileTooLarge => TOO_MUCH,
                        _ => "INVALID_RESPONSE",
                    };
                    return Heard::Unbearable(Verdict::error(code, error.to_string()));
                }
            }
            tokio::select! {
                biased;
                () = sleep_until(deadline.min(self.next_look)) => {
                    if Instant::now() >= deadline {
                        return Heard::Late;
                    }
                    if let Some(verdict) = self.look(deadline).await {
                        return Heard::Unbearable(verdict);
                    }
                }
                () = self.stdout.readable() => self.stdout.read_into(|bytes| output.stdout(bytes)),
                () = self.stderr.readable() => self.stderr.read_into(|bytes| output.stderr(bytes)),
                more = frames.fill() => {
                    if !more.unwrap_or(false) {
                        self.drain(output);
                        let gone = || Verdict::error("EXIT", "the handler process exited");
                        return Heard::Gone(self.out_of_memory().unwrap_or_else(gone));
                    }
                }
            }
        }
    }

    /// Reads the output printed before the last frame.
    pub(super) fn drain(&mut self, output: &mut Output) {
        let mut left = DRAIN_BYTES;
        while left > 0 {
            let mut some = 0;
            self.stdout.read_into(|bytes| {
                some += bytes.len();
                output.stdout(bytes);
            });
            self.stderr.read_into(|bytes| {
                some += bytes.len();
                output.stderr(bytes);
            });
            if some == 0 {
                break;
            }
            left = left.saturating_sub(some);
        }
    }

    /// Verdict if the OOM killer has killed a process of the context's cgroup.
    fn out_of_memory(&self) -> Option<Verdict> {
        let is_out = self.cgroup.as_ref().is_some_and(Leaf::is_out_of_memory);
        let message = || format!("the handler used more than {} bytes of memory", self.memory_bytes_max);
        is_out.then(|| Verdict::error("MEMORY", message()))
    }

    async fn look(&mut self, deadline: Instant) -> Option<Verdict> {
        self.next_look = Instant::now() + WATCH;
        if let Some(verdict) = self.out_of_memory() {
            return Some(verdict);
        }
        let (census, first, is_apart) = (self.census.clone(), self.first?, self.is_apart);
        let count = move || {
            let first = i32::try_from(first).unwrap_or(-1);
            let mut group = census.group(first);
            // The init process of the namespaces belongs to the server.
            if is_apart {
                group.tasks = group.tasks.saturating_sub(1);
                group.processes.retain(|process| *process != first);
            }
            let bytes = memory::count(&group.processes);
            (group, bytes)
        };
        let (group, bytes) = tokio::task::spawn_blocking(count).await.ok()?;
        let most = self.memory_bytes_max;
        match bytes {
            Ok(bytes) if bytes > most => {
                let message = format!("the handler used {bytes} bytes of memory; the maximum is {most}");
                return Some(Verdict::error("MEMORY", message));
            }
            Ok(_) => {}
            Err(memory::Hidden(_)) => {
                let message =
                    "the handler runs a program that is not readable, so its memory cannot be measured";
                return Some(Verdict::error("MEMORY", message.to_owned()));
            }
        }
        if group.tasks > self.tasks_max {
            let most = self.tasks_max;
            let message =
                format!("the handler had {} processes and threads; the maximum is {most}", group.tasks);
            return Some(Verdict::error("PROCESSES", message));
        }
        self.disk.look(group.processes, deadline).await
    }

    /// Records the number of child processes while no job runs.
    pub(super) fn note_rest(&mut self) {
        self.at_rest = self.children();
    }

    fn children(&self) -> Option<(usize, usize)> {
        let count = |pid| census::children_of(pid).map(|pids| pids.len());
        let heir = if self.is_apart { self.first? } else { self.guard.id()? };
        Some((count(heir)?, count(self.interpreter?)?))
    }

    /// Reason why the context should get no further batch.
    pub(super) async fn is_worn(&mut self, jobs_max: u32) -> Option<String> {
        if self.jobs >= jobs_max {
            return Some(format!("it ran {} jobs", self.jobs));
        }
        let resident = self.interpreter.and_then(census::resident_bytes).unwrap_or(0);
        // Above half of its limit, the next batch might exceed it.
        if resident > self.memory_bytes_max / 2 {
            return Some(format!("it uses {resident} bytes of memory"));
        }
        let processes = self.first.and_then(|pid| i32::try_from(pid).ok()).into_iter().collect();
        if let Some(verdict) = self.disk.look(processes, Instant::now() + LOOK_PATIENCE).await {
            return verdict.message;
        }
        // A process that has just exited may not be reaped yet.
        for _ in 0..REST_LOOKS {
            match (self.at_rest, self.children()) {
                (Some(then), Some(now)) if now.0 > then.0 || now.1 > then.1 => {}
                _ => return None,
            }
            tokio::time::sleep(REST_PAUSE).await;
        }
        Some("a job left processes running".to_owned())
    }

    /// Ends the context and all its processes before it returns.
    pub(super) async fn kill(&mut self) {
        self.hang_up();
        let ended = tokio::time::timeout(END_PATIENCE, self.guard.wait()).await;
        // The guard was killed: kill the process group without it.
        if !ended.is_ok_and(|status| status.is_ok_and(|status| status.success())) {
            self.signal_group(Signal::KILL);
            if let Err(error) = self.guard.kill().await {
                tracing::debug!(%error, "the guard process had already exited");
            }
        }
    }

    /// Closes the socket, upon which the guard kills the context's processes.
    fn hang_up(&mut self) {
        self.writer.abort();
        self.frames = None;
    }

    /// Stops all processes until the next batch, because nothing monitors threads and timers between batches.
    pub(super) fn freeze(&self) {
        self.signal_group(Signal::STOP);
    }

    pub(super) fn thaw(&self) {
        self.signal_group(Signal::CONT);
    }

    fn signal_group(&self, signal: Signal) {
        let raw = self.first.and_then(|pid| i32::try_from(pid).ok());
        if let Some(group) = raw.and_then(Pid::from_raw) {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.hang_up();
        let (folder, cgroup) = (std::mem::take(&mut self.folder), self.cgroup.take());
        // On a blocking thread: removing a large folder is slow.
        let remove = move || {
            if let Some(Err(error)) = cgroup.map(Leaf::remove) {
                tracing::warn!(%error, "cannot delete the cgroup of a handler process");
            }
            if let Err(error) = remove_folder(&folder) {
                tracing::warn!(folder = %folder.display(), %error, "cannot delete the folder of a handler process");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

async fn write_orders(mut to: OwnedWriteHalf, mut queued: mpsc::UnboundedReceiver<Bytes>) {
    while let Some(order) = queued.recv().await {
        if to.write_all(&order).await.is_err() {
            return;
        }
    }
}
