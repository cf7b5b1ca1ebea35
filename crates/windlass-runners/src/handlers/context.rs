//! One context as the server sees it: a process group with a socket to its shim and two pipes for what it prints.

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

/// From its start to the shim's first word: interpreters take their time on a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How often the memory and the processes of a context that runs a job are looked at.
const WATCH: Duration = Duration::from_millis(250);
/// Between two batches, for its files to be counted; the next batch goes on with a look that takes longer.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);
/// What a frame holds beside a result.
const FRAME_EXTRA_BYTES: usize = 128 * 1024;
/// How often, and after which pause each, a context is looked at before what runs in it is taken for left behind.
const REST_LOOKS: u32 = 20;
const REST_PAUSE: Duration = Duration::from_millis(5);
/// For a guard to end everything. It has nothing else to do.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// Pieces of output that are read before others have their turn.
const READS_AT_ONCE: u32 = 8;
/// What is read at most when a job has ended: a process it left behind may go on printing for ever.
const DRAIN_BYTES: usize = 4 << 20;

/// What one context is started with.
pub struct Start<'a> {
    pub settings: &'a Settings,
    pub launch: &'a Launch,
    /// Under it the context's folder is made.
    pub number: u64,
    pub uid: Option<u32>,
    pub network: bool,
    pub client: &'a str,
    pub census: Arc<Census>,
    /// In namespaces of its own.
    pub is_apart: bool,
    /// Where it gets a control group, if there are any.
    pub cgroups: Option<&'a Cgroups>,
}

pub struct Context {
    guard: tokio::process::Child,
    orders: mpsc::UnboundedSender<Bytes>,
    writer: AbortHandle,
    /// `None` once it is over.
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
    /// The first process of its group: the interpreter, or in namespaces of its own their first process.
    first: Option<u32>,
    is_apart: bool,
    interpreter: Option<u32>,
    /// Children of whoever gets what others leave behind, and of the interpreter, when nothing runs.
    at_rest: Option<(usize, usize)>,
    /// Jobtype to version and number of its handler.
    pub(super) handlers: HashMap<String, (String, usize)>,
    /// The `before` that was run in it, once; there is no second one.
    pub(super) before: Option<String>,
    pub(super) jobs: u32,
    pub(super) holds: String,
}

/// Why a context is not there.
#[derive(Debug)]
pub struct NotStarted(pub String);

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        NotStarted(format!("its process could not be started: {error}"))
    }
}

/// What was heard from a context.
#[derive(Debug)]
pub enum Heard {
    Frame(Frame),
    /// The time is over.
    Late,
    /// It grew beyond its limits, or says things that make no sense.
    Unbearable(Verdict),
    /// It ended, in this way.
    Gone(Verdict),
}

impl Context {
    pub async fn start(start: Start<'_>) -> Result<Context, NotStarted> {
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
        // Before the guard knows what to start.
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
                // Also the folders of the other contexts.
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
                Heard::Frame(Frame::Reply { .. }) => break "it answered before it was asked".to_owned(),
                Heard::Late => break format!("it was not ready within {} s", START_PATIENCE.as_secs()),
                Heard::Unbearable(verdict) | Heard::Gone(verdict) => {
                    break verdict.message.unwrap_or(verdict.code);
                }
            }
        };
        let said = output.finish().log;
        let said = String::from_utf8_lossy(&said);
        let separator = if said.trim().is_empty() { "" } else { ": " };
        self.kill().await;
        Err(NotStarted(format!("its interpreter did not start: {why}{separator}{}", said.trim())))
    }

    /// Its number here, not the one it has in there.
    fn find_interpreter(&mut self) {
        self.interpreter = match self.is_apart {
            true => {
                self.first.and_then(census::children_of).and_then(|pids| u32::try_from(*pids.first()?).ok())
            }
            false => self.first,
        };
    }

    /// Never waits: what is not taken at once is kept, and a batch is not endless.
    pub fn send(&self, order: impl Into<Bytes>) {
        // If it is gone, that is heard soon enough.
        let _ = self.orders.send(order.into());
    }

    /// A file it can read and not change, for the language that gets its code and payloads that way.
    pub fn write_file(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.folder.join("in").join(name);
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        // Whatever the umask took: the folder is for the context's user alone.
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.write_all(bytes)
    }

    /// A batch begins.
    pub fn attend(&mut self) {
        self.next_look = Instant::now() + WATCH;
    }

    /// The next frame; what is printed meanwhile goes to `output`. Can be dropped at any time.
    pub async fn hear(&mut self, output: &mut Output, deadline: Instant) -> Heard {
        let mut reads: u32 = 0;
        loop {
            reads += 1;
            // Whoever prints without end must not keep a thread of the server, nor what would stop it, waiting.
            if reads.is_multiple_of(READS_AT_ONCE) {
                tokio::task::yield_now().await;
            }
            let Some(frames) = &mut self.frames else {
                return Heard::Gone(Verdict::error("EXIT", "its process is gone"));
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
                        let gone = || Verdict::error("EXIT", "its process is gone");
                        return Heard::Gone(self.out_of_memory().unwrap_or_else(gone));
                    }
                }
            }
        }
    }

    /// What was printed before the last frame came.
    pub fn drain(&mut self, output: &mut Output) {
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

    /// The kernel has ended one of its processes because all together took more memory than they may.
    fn out_of_memory(&self) -> Option<Verdict> {
        let is_out = self.cgroup.as_ref().is_some_and(Leaf::is_out_of_memory);
        let message = || format!("it took more than {} bytes of memory", self.memory_bytes_max);
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
            // The first process in there is the server's.
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
                let message = format!("it took {bytes} bytes of memory, over {most}");
                return Some(Verdict::error("MEMORY", message));
            }
            Ok(_) => {}
            Err(memory::Hidden(_)) => {
                let message = "it runs a program that cannot be read, so that its memory cannot be counted";
                return Some(Verdict::error("MEMORY", message.to_owned()));
            }
        }
        if group.tasks > self.tasks_max {
            let most = self.tasks_max;
            let message = format!("it had {} processes and threads, over {most}", group.tasks);
            return Some(Verdict::error("PROCESSES", message));
        }
        self.disk.look(group.processes, deadline).await
    }

    /// Nothing runs now: what is there is there to stay.
    pub fn note_rest(&mut self) {
        self.at_rest = self.children();
    }

    fn children(&self) -> Option<(usize, usize)> {
        let count = |pid| census::children_of(pid).map(|pids| pids.len());
        let heir = if self.is_apart { self.first? } else { self.guard.id()? };
        Some((count(heir)?, count(self.interpreter?)?))
    }

    /// Why it should not get another batch.
    pub async fn is_worn(&mut self, jobs_max: u32) -> Option<String> {
        if self.jobs >= jobs_max {
            return Some(format!("it has run {} jobs", self.jobs));
        }
        let resident = self.interpreter.and_then(census::resident_bytes).unwrap_or(0);
        // Over half of what it may have, the next batch might be the one that breaks it.
        if resident > self.memory_bytes_max / 2 {
            return Some(format!("it has grown to {resident} bytes"));
        }
        let processes = self.first.and_then(|pid| i32::try_from(pid).ok()).into_iter().collect();
        if let Some(verdict) = self.disk.look(processes, Instant::now() + LOOK_PATIENCE).await {
            return verdict.message;
        }
        // What has ended a moment ago may not have been waited for yet.
        for _ in 0..REST_LOOKS {
            match (self.at_rest, self.children()) {
                (Some(then), Some(now)) if now.0 > then.0 || now.1 > then.1 => {}
                _ => return None,
            }
            tokio::time::sleep(REST_PAUSE).await;
        }
        Some("a job left processes behind".to_owned())
    }

    /// With all it has started: nothing of it is left when this returns.
    pub async fn kill(&mut self) {
        self.hang_up();
        let ended = tokio::time::timeout(END_PATIENCE, self.guard.wait()).await;
        // Somebody has killed the guard: what it guarded is ended without it.
        if !ended.is_ok_and(|status| status.is_ok_and(|status| status.success())) {
            self.signal_group(Signal::KILL);
            if let Err(error) = self.guard.kill().await {
                tracing::debug!(%error, "the guard of a context was gone already");
            }
        }
    }

    /// The guard does the rest.
    fn hang_up(&mut self) {
        self.writer.abort();
        self.frames = None;
    }

    /// Stops all its processes until the next batch: nobody watches what threads and timers of its jobs do between batches.
    pub fn freeze(&self) {
        self.signal_group(Signal::STOP);
    }

    pub fn thaw(&self) {
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
        // Large folders take their time.
        let remove = move || {
            if let Some(Err(error)) = cgroup.map(Leaf::remove) {
                tracing::warn!(%error, "the control group of a context is left behind");
            }
            if let Err(error) = remove_folder(&folder) {
                tracing::warn!(folder = %folder.display(), %error, "the folder of a context is left behind");
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
