//! Server in this process, for commands that show or measure one. However the command ends, by itself or by a signal,
//! the server is stopped, its processes end and its temporary folder is removed.

use super::signals::{SignalNumber, on_signals};
use crate::config::{Config, ValueSource, Written};
use crate::fault::{Fault, Outcome};
use crate::serve::Server;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::broadcast;
use windlass_dialects::ALL;
use windlass_engine::FeedEvent;

/// Time for the server to stop after a signal, and for a command that was started to end.
const STOPPING: Duration = Duration::from_secs(10);
const COMMAND_ENDING: Duration = Duration::from_secs(3);
/// Time for tasks that still run when the server has stopped.
const TASKS_ENDING: Duration = Duration::from_secs(2);

/// Folder of the server's data.
#[derive(Clone, Copy)]
pub(super) enum Home<'a> {
    /// New folder, removed at the end; below `parent` if there is one.
    Temporary { prefix: &'a str, parent: Option<&'a Path> },
    /// Folder that stays.
    Kept(&'a Path),
}

pub(super) struct OwnServer {
    parts: Arc<Parts>,
    listening: Vec<(&'static str, SocketAddr)>,
    folder: PathBuf,
}

/// Parts that are cleared away at the end, by the command or by the thread that handles signals.
#[derive(Default)]
struct Parts {
    /// Locked while the server starts: a signal waits until it can be stopped in order.
    server: Mutex<Option<Server>>,
    runtime: Mutex<Option<Runtime>>,
    folder: Mutex<Option<TempDir>>,
    /// Process group of the command that runs at present.
    command: Mutex<Option<Pid>>,
    /// Set when a signal is how the command is meant to end.
    is_awaited: AtomicBool,
    /// Set at the first signal: the process is about to exit.
    is_ending: AtomicBool,
}

impl OwnServer {
    /// Starts a server on free ports. `settings`: further keys with their values.
    pub(super) fn start(home: Home<'_>, settings: &[(&str, &str)]) -> Outcome<OwnServer> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let parts = Arc::new(Parts::default());
        // Before the folder is made, so that no signal leaves it behind.
        parts.handle_signals()?;
        let handle = runtime.handle().clone();
        *parts.runtime.lock() = Some(runtime);
        let folder = parts.make_folder(home)?;
        let mut own = OwnServer { parts, listening: Vec::new(), folder };
        let config = config(&own.folder, settings)?;
        let mut slot = own.parts.server.lock();
        let server = slot.insert(handle.block_on(Server::start(&config))?);
        server.hand_out();
        let listening = server.listening.clone();
        drop(slot);
        own.listening = listening;
        Ok(own)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn url(&self) -> Outcome<String> {
        self.address("http").map(|http| format!("http://{http}"))
    }

    /// Address of a listener.
    pub(super) fn address(&self, listener: &str) -> Outcome<SocketAddr> {
        let found = self.listening.iter().find(|(name, _)| *name == listener);
        found.map(|(_, address)| *address).ok_or_else(|| Fault::failed("the server has no listening address"))
    }

    /// Runs a command to its end, in a process group of its own: a signal ends it before the server.
    pub(super) fn run_command(&self, command: &mut Command) -> std::io::Result<Output> {
        let mut running = self.parts.command.lock();
        if self.parts.is_ending.load(Ordering::Relaxed) {
            drop(running);
            wait_for_the_exit();
        }
        let child = command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .process_group(0)
            .spawn()?;
        *running = Some(Pid::from_child(&child));
        drop(running);
        let ran = child.wait_with_output();
        *self.parts.command.lock() = None;
        self.leave_if_ending();
        ran
    }

    /// Events of the server's jobs from now on.
    pub(super) fn events(&self) -> Option<broadcast::Receiver<Arc<FeedEvent>>> {
        self.parts.server.lock().as_ref().map(Server::events)
    }

    /// Makes a signal the usual way to end: the exit code is then 0.
    pub(super) fn expect_interrupt(&self) {
        self.parts.is_awaited.store(true, Ordering::Relaxed);
    }

    /// Does not return after a signal: what follows would fail because of it.
    pub(super) fn leave_if_ending(&self) {
        if self.parts.is_ending.load(Ordering::Relaxed) {
            wait_for_the_exit();
        }
    }

    /// Serves until a signal ends the process.
    pub(super) fn until_interrupted(&self) -> ! {
        self.expect_interrupt();
        wait_for_the_exit()
    }

    pub(super) fn stop(self) {
        drop(self);
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.parts.clear();
        // What failed because of the signal is not reported.
        self.leave_if_ending();
    }
}

/// Leaves the end of the process to the thread that handles signals.
fn wait_for_the_exit() -> ! {
    loop {
        std::thread::park();
    }
}

impl Parts {
    fn make_folder(&self, home: Home<'_>) -> Outcome<PathBuf> {
        let (prefix, parent) = match home {
            Home::Temporary { prefix, parent } => (prefix, parent),
            Home::Kept(folder) => return Ok(folder.to_owned()),
        };
        let mut builder = tempfile::Builder::new();
        // Payloads are confidential.
        builder.prefix(prefix).permissions(Permissions::from_mode(0o700));
        let mut slot = self.folder.lock();
        let folder = slot.insert(match parent {
            Some(parent) => builder.tempdir_in(parent)?,
            None => builder.tempdir()?,
        });
        Ok(folder.path().to_owned())
    }

    fn handle_signals(self: &Arc<Self>) -> std::io::Result<()> {
        let (first, second) = (Arc::clone(self), Arc::clone(self));
        let at_first = move |number| {
            first.is_ending.store(true, Ordering::Relaxed);
            first.end_command();
            first.clear();
            std::process::exit(first.exit_code(number));
        };
        let at_second = move |number| {
            let folder = second.folder.try_lock().and_then(|mut folder| folder.take());
            drop(folder);
            std::process::exit(second.exit_code(number));
        };
        on_signals(at_first, at_second)
    }

    fn exit_code(&self, number: SignalNumber) -> i32 {
        if self.is_awaited.load(Ordering::Relaxed) { 0 } else { 128 + number }
    }

    /// Ends the command that runs. The thread that started it waits for its end, then for that of the process.
    fn end_command(&self) {
        let started = Instant::now();
        let mut signal = Signal::TERM;
        while let Some(group) = *self.command.lock() {
            let _ = kill_process_group(group, signal);
            if started.elapsed() > COMMAND_ENDING {
                signal = Signal::KILL;
            }
            if started.elapsed() > COMMAND_ENDING * 2 {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Stops the server, ends its tasks, which have folders of their own, and removes its folder. A second caller
    /// waits for the first.
    fn clear(&self) {
        let mut server = self.server.lock();
        if let Some(runtime) = self.runtime.lock().take() {
            if let Some(mut server) = server.take() {
                runtime.block_on(async {
                    let _ = tokio::time::timeout(STOPPING, server.stop()).await;
                });
            }
            runtime.shutdown_timeout(TASKS_ENDING);
        }
        drop(self.folder.lock().take());
    }
}

/// Configuration of a server with its data in this folder.
fn config(folder: &Path, settings: &[(&str, &str)]) -> Outcome<Config> {
    let mut written = Written::new(ALL);
    let data = folder.display().to_string();
    let own = [("data", data.as_str()), ("http", "127.0.0.1:0"), ("bedrock", "127.0.0.1:0"), ("mdns", "off")];
    for (name, text) in own.iter().chain(settings) {
        written.put_text(name, text, ValueSource::Set)?;
    }
    Ok(Config::from_written(&written)?)
}
