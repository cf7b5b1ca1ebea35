//! Real `windlass serve` on a free port and in a folder of its own, and helpers for requests.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Timeout of waits, generous for a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The command without the environment settings of the caller.
pub fn windlass() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("WINDLASS_") || name_text.starts_with("OTEL_") {
            command.env_remove(name);
        }
    }
    command.env("NO_COLOR", "1");
    command
}

/// Output and exit code of a command.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn of(command: &mut Command) -> Ran {
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Standard output of a command that must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout.trim_end().to_string()
    }

    #[track_caller]
    pub fn json(self) -> Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

/// Copy of the program that other users can run.
fn windlass_for_all(folder: &Path) -> Command {
    let (own, copy) = (windlass(), folder.join("windlass-for-all"));
    if !copy.exists() && std::fs::hard_link(own.get_program(), &copy).is_err() {
        std::fs::copy(own.get_program(), &copy).unwrap();
    }
    let mut command = Command::new(copy);
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Killed on drop; [`Server::stop`] stops it in order.
pub struct Server {
    pub http: SocketAddr,
    child: Child,
    folder: PathBuf,
    /// Removed with the server, unless the folder is the caller's.
    _owned: Option<TempDir>,
}

impl Server {
    /// Starts in a new folder, with the embedded store.
    pub fn start(args: &[&str]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::start_in(folder.path(), args);
        server._owned = Some(folder);
        server
    }

    /// Starts in this folder, which stays, for tests with a restart.
    pub fn start_in(folder: &Path, args: &[&str]) -> Server {
        Server::start_as(None, folder, args)
    }

    /// Starts as another user, who owns the folder.
    pub fn start_as(uid: Option<u32>, folder: &Path, args: &[&str]) -> Server {
        use std::os::unix::process::CommandExt;
        let command = match uid {
            None => windlass(),
            Some(uid) => {
                let mut command = windlass_for_all(folder);
                command.uid(uid).gid(uid);
                command
            }
        };
        Server::start_by(command, folder, args)
    }

    /// Starts in a control group, given by its folder, with a new data folder.
    pub fn start_in_group(group: &Path, args: &[&str]) -> Server {
        let script = format!("echo $$ > '{}/cgroup.procs' && exec \"$0\" \"$@\"", group.display());
        Server::start_after(&script, args)
    }

    /// Starts with this limit of file descriptors.
    pub fn start_with_files(files: u32, args: &[&str]) -> Server {
        Server::start_after(&format!("ulimit -n {files} && exec \"$0\" \"$@\""), args)
    }

    /// Starts with a variable in its environment.
    pub fn start_with_variable(name: &str, value: &str, args: &[&str]) -> Server {
        Server::start_after(&format!("{name}='{value}' exec \"$0\" \"$@\""), args)
    }

    fn start_after(script: &str, args: &[&str]) -> Server {
        let own = windlass();
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(own.get_program());
        for (name, value) in own.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::start_by(shell, folder.path(), args);
        server._owned = Some(folder);
        server
    }

    /// Starts in this folder without the flags for tests: `args` are all.
    pub fn start_without_flags(folder: &Path, args: &[&str]) -> Server {
        Server::start_with(windlass(), folder, &[&["serve", "--ready-file", "ready.json"], args].concat())
    }

    fn start_by(command: Command, folder: &Path, args: &[&str]) -> Server {
        let quiet = ["serve", "--http", "127.0.0.1:0", "--bedrock", "off", "--mdns", "off"];
        let ready = ["--ready-file", "ready.json"];
        Server::start_with(command, folder, &[&quiet[..], &ready, args].concat())
    }

    fn start_with(mut command: Command, folder: &Path, args: &[&str]) -> Server {
        let ready = folder.join("ready.json");
        let _ = std::fs::remove_file(&ready);
        let log = std::fs::File::create(folder.join("server.log")).unwrap();
        let mut child = command
            .current_dir(folder)
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let http = wait_for_address(&mut child, &ready, folder);
        Server { http, child, folder: folder.to_path_buf(), _owned: None }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.http)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Standard output and standard error so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("server.log")).unwrap_or_default()
    }

    /// Command that uses this server.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = windlass();
        command.args(args).env("WINDLASS_SERVER", self.url()).current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&mut self.command(args))
    }

    /// Sends a JSON request: status and response (null if empty).
    pub fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let (status, text) = request(self.http, method, path, &body).unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    pub fn job(&self, id: u64) -> Value {
        let (status, job) = self.call("GET", &format!("/api/v1/jobs/{id}"), None);
        assert_eq!(status, 200, "{job}");
        job
    }

    pub fn state_of(&self, id: u64) -> String {
        self.job(id)["state"].as_str().unwrap_or_default().to_string()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        ended(&mut self.child)
    }

    /// Stops the server like an operator.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Kills the server like a crash.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn wait_for_address(child: &mut Child, ready: &Path, folder: &Path) -> SocketAddr {
    let log = || std::fs::read_to_string(folder.join("server.log")).unwrap_or_default();
    eventually("the server is ready", || {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("the server ended ({status}):\n{}", log());
        }
        let text = std::fs::read_to_string(ready).ok()?;
        let addresses: Value = serde_json::from_str(&text).unwrap();
        Some(addresses["http"].as_str().unwrap().parse().unwrap())
    })
}

/// Waits for the end of a process.
#[track_caller]
pub fn ended(child: &mut Child) -> ExitStatus {
    eventually("the process ends", || child.try_wait().unwrap())
}

/// Polls until there is a value.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Default port of the server, which no program can open while this value exists. Tests that need it wait for each other.
pub struct UsualPort {
    /// `None` if another program of this machine listens there.
    _listener: Option<TcpListener>,
    _turn: MutexGuard<'static, ()>,
}

impl UsualPort {
    pub fn take() -> UsualPort {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let listener =
            eventually("a program listens on 7373", || match TcpListener::bind("127.0.0.1:7373") {
                Ok(listener) => Some(Some(listener)),
                Err(_) => TcpStream::connect("127.0.0.1:7373").is_ok().then_some(None),
            });
        UsualPort { _listener: listener, _turn: turn }
    }
}

/// Sends a request on a new connection.
pub fn request(to: SocketAddr, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
    request_with(to, method, path, "", body)
}

/// Sends a request with more header lines, each with its line end.
pub fn request_with(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let (head, body) = exchange(to, method, path, headers, body)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok((status, body))
}

/// Header and body of the response.
pub fn exchange(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         {headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Ok((head.to_string(), body.to_string()))
}
