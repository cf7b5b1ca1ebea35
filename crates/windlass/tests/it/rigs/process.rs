//! The server as a process: killed, refused, or run under `strace` with faults.

use crate::server::{Ran, eventually, windlass};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use tempfile::TempDir;

/// Folder of one server: its data, and beside it its log.
pub struct Place {
    folder: TempDir,
    data: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        Place { folder, data }
    }

    /// Place with the data elsewhere, such as on a small disk.
    pub fn with_data(data: &Path) -> Place {
        Place { folder: tempfile::tempdir().unwrap(), data: data.to_path_buf() }
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("server.log")).unwrap_or_default()
    }

    #[track_caller]
    pub fn start(&self) -> Process {
        self.start_with(&[]).unwrap_or_else(|refusal| panic!("the server did not start: {refusal:?}"))
    }

    /// Starts under `strace` if there are arguments. It counts system calls per thread, so all commits are
    /// made by one thread.
    pub fn start_with(&self, strace: &[&str]) -> Result<Process, Refusal> {
        let one_writes: &[&str] = if strace.is_empty() { &[] } else { &["--set", "store.own_thread=true"] };
        self.start_command(command(strace), one_writes)
    }

    /// Starts under `strace`; callers may write directly.
    pub fn start_where_all_write(&self, strace: &[&str]) -> Result<Process, Refusal> {
        self.start_command(command(strace), &[])
    }

    /// Starts under `strace`, with further flags.
    pub fn start_flags_with(&self, strace: &[&str], flags: &[&str]) -> Result<Process, Refusal> {
        self.start_command(command(strace), flags)
    }

    /// Starts with further flags, such as another store.
    #[track_caller]
    pub fn start_flags(&self, flags: &[&str]) -> Process {
        let started = self.start_command(command(&[]), flags);
        started.unwrap_or_else(|refusal| panic!("the server did not start: {refusal:?}"))
    }

    /// Starts `program` with its own arguments, which runs the server.
    pub fn start_command(&self, mut program: Command, flags: &[&str]) -> Result<Process, Refusal> {
        let ready = self.path().join("ready.json");
        let _ = std::fs::remove_file(&ready);
        let log = std::fs::File::create(self.path().join("server.log")).unwrap();
        let mut child = program
            .args(["serve", "--http", "127.0.0.1:0", "--bedrock", "off", "--mdns", "off", "--ready-file"])
            .arg(&ready)
            .arg("--data")
            .arg(&self.data)
            .args(flags)
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("starting the server: {error}"));
        let address = eventually("the server is ready or has ended", || {
            if let Some(status) = child.try_wait().unwrap() {
                return Some(Err(status));
            }
            let text = std::fs::read_to_string(&ready).ok()?;
            let addresses: Value = serde_json::from_str(&text).ok()?;
            Some(Ok(addresses["http"].as_str()?.parse::<SocketAddr>().unwrap()))
        });
        match address {
            Ok(http) => Ok(Process { http, child, data: self.data.clone() }),
            Err(status) => {
                end_group(&mut child, &self.data);
                Err(Refusal { status, log: self.log() })
            }
        }
    }

    /// Runs `windlass check`.
    pub fn check(&self) -> Ran {
        Ran::of(windlass().arg("check").arg("--json").arg("--data").arg(&self.data).current_dir(self.path()))
    }

    /// Files of the data folder, by name.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(&self.data).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

/// Failed start.
#[derive(Debug)]
pub struct Refusal {
    pub status: ExitStatus,
    pub log: String,
}

/// Running server; killed on drop.
pub struct Process {
    pub http: SocketAddr,
    child: Child,
    data: PathBuf,
}

impl Process {
    /// Kills the process like a crash; under `strace` both processes.
    pub fn kill(&mut self) {
        end_group(&mut self.child, &self.data);
    }

    /// Stops the process like an operator. Signals the server, not the `strace` around it: its process id is
    /// in the lock file.
    pub fn stop(&mut self) -> ExitStatus {
        let pid = server_pid(&self.data).unwrap_or_else(|| Pid::from_child(&self.child));
        let _ = kill_process(pid, Signal::TERM);
        self.wait()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn wait(&mut self) -> ExitStatus {
        let status = crate::server::ended(&mut self.child);
        end_group(&mut self.child, &self.data);
        status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Under `strace` the server is not a child of the test: it may outlive its tracer for a moment, and so may
/// its lock.
fn end_group(child: &mut Child, data: &Path) {
    let group = Pid::from_child(child);
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
    if let Some(server) = server_pid(data) {
        eventually("the killed server is gone", || (!lives_in(group, server)).then_some(()));
    }
}

/// True if the process is in this group and has not ended. A zombie has ended.
fn lives_in(group: Pid, process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    // After the name, which may contain brackets: state, parent, group.
    let stat = stat.unwrap_or_default();
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let state = fields.next();
    state.is_some_and(|state| state != "Z" && state != "X")
        && fields.nth(1) == Some(&group.as_raw_nonzero().to_string())
}

fn server_pid(data: &Path) -> Option<Pid> {
    let lock = std::fs::read_dir(data).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let lock = lock.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "lock"))?;
    Pid::from_raw(std::fs::read_to_string(lock).ok()?.trim().parse().ok()?)
}

fn command(strace: &[&str]) -> Command {
    let plain = windlass();
    if strace.is_empty() {
        return plain;
    }
    let mut command = Command::new("strace");
    // With seccomp only traced calls stop the server, and the rest runs at full speed; but no signal can be
    // injected then.
    if !strace.iter().any(|argument| argument.contains("signal=")) {
        command.arg("--seccomp-bpf");
    }
    command.args(["-f", "-qq"]).args(strace).arg("--").arg(plain.get_program());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Fails without `strace`: these rigs prove nothing without it.
pub fn need_strace() {
    let tried = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).output();
    match tried {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!(
            "strace may not trace here (allow ptrace, e.g. --cap-add SYS_PTRACE): {}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => panic!("this rig needs strace (apt-get install strace): {error}"),
    }
}
