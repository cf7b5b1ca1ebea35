//! Servers started for a run, each in its own process and temporary folder, and stopped at the end of the
//! run.

use super::bedrock::Bedrock;
use super::native::{Format, Windlass};
use super::peers::beanstalk::Beanstalkd;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest startup; loading millions of jobs is part of the measurement.
const START_TIMEOUT: Duration = Duration::from_secs(120);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Polling interval, short compared with the startup of an empty server.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Synced to disk before the acknowledgement.
    WindlassFull,
    WindlassRelaxed,
    /// On the PostgreSQL database of `--store`.
    WindlassPostgres,
    /// Everything in memory.
    BeanstalkdMemory,
    /// `-b DIR -f0`: fsync after every write.
    BeanstalkdFsync,
}

impl Kind {
    pub(super) fn label(self) -> &'static str {
        match self {
            Kind::WindlassFull => "windlass full",
            Kind::WindlassRelaxed => "windlass relaxed",
            Kind::WindlassPostgres => "windlass postgres",
            Kind::BeanstalkdMemory => "beanstalkd memory",
            Kind::BeanstalkdFsync => "beanstalkd -b -f0",
        }
    }

    pub(super) fn is_windlass(self) -> bool {
        matches!(self, Kind::WindlassFull | Kind::WindlassRelaxed | Kind::WindlassPostgres)
    }

    pub(super) fn survives_restart(self) -> bool {
        self != Kind::BeanstalkdMemory
    }
}

/// Program and store of the Windlass servers that are started.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub windlass: PathBuf,
    /// Database URL; `None`: embedded stores.
    pub database: Option<String>,
}

/// Running server process; killed on drop.
pub(super) struct Server {
    child: Child,
    pub address: String,
    /// Address of the Bedrock dialect, if enabled.
    bedrock: Option<String>,
    /// Time from the start of the process until it accepted requests.
    pub started_in: Duration,
}

impl Server {
    /// Starts a server. `folder` holds its store: a second start in it finds the same jobs.
    pub(super) fn start(kind: Kind, folder: &Path, launch: &Launch) -> io::Result<Server> {
        match kind {
            Kind::WindlassFull => launch.start(folder, &file(folder), "full", "off"),
            Kind::WindlassRelaxed => launch.start(folder, &file(folder), "relaxed", "off"),
            Kind::WindlassPostgres => {
                let database = launch.database.as_deref().unwrap_or_default();
                launch.start(folder, &with_schema(database, folder), "full", "off")
            }
            Kind::BeanstalkdMemory => start_beanstalkd(None),
            Kind::BeanstalkdFsync => start_beanstalkd(Some(folder)),
        }
    }

    /// Starts Windlass with the Bedrock dialect on a free port.
    pub(super) fn start_with_bedrock(kind: Kind, folder: &Path, launch: &Launch) -> io::Result<Server> {
        let durability = if kind == Kind::WindlassRelaxed { "relaxed" } else { "full" };
        launch.start(folder, &file(folder), durability, "127.0.0.1:0")
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM and waits for the exit.
    pub(super) fn stop(mut self) -> io::Result<()> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM)?;
        }
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begun.elapsed() > STOP_TIMEOUT {
                return Err(io::Error::other("the server did not stop after SIGTERM"));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    pub(super) fn windlass(&self, format: Format) -> Windlass {
        Windlass { address: self.address.clone(), pid: Some(self.pid()), format, token: None }
    }

    pub(super) fn bedrock(&self) -> io::Result<Bedrock> {
        let missing = || io::Error::other("the server has no Bedrock port");
        Ok(Bedrock { address: self.bedrock.clone().ok_or_else(missing)?, pid: Some(self.pid()) })
    }

    pub(super) fn beanstalkd(&self) -> Beanstalkd {
        Beanstalkd { address: self.address.clone(), pid: Some(self.pid()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Database URL with a schema derived from the folder name.
fn with_schema(database: &str, folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().as_encoded_bytes();
    // In hex, because the folder name is case-sensitive and a schema name is not.
    let digits: String = name.iter().rev().take(8).map(|byte| format!("{byte:02x}")).collect();
    let join = if database.contains('?') { '&' } else { '?' };
    format!("{database}{join}schema=bench_{digits}")
}

/// URL of the embedded store in this folder.
fn file(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("bench.db").display())
}

impl Launch {
    fn start(&self, folder: &Path, store: &str, durability: &str, bedrock: &str) -> io::Result<Server> {
        let ready_file = folder.join("ready.json");
        // Left behind by a killed server.
        let _ = std::fs::remove_file(&ready_file);
        let mut command = Command::new(&self.windlass);
        command.args([
            "serve",
            "--http",
            "127.0.0.1:0",
            "--bedrock",
            bedrock,
            "--mdns",
            "off",
            "--log-level",
            "warn",
        ]);
        command.args(["--store", store, "--durability", durability, "--ready-file"]).arg(&ready_file);
        // Settings of the user's own server must not apply to this one.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("WINDLASS_") {
                command.env_remove(name);
            }
        }
        let log = folder.join("server.log");
        command.stderr(std::fs::File::create(&log)?);
        let mut server = start(command, || ready_address(&ready_file, "http")).map_err(|error| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let program = self.windlass.display();
            io::Error::other(format!(
                "cannot start {program} (is it built?): {error}; its output: {}",
                said.trim()
            ))
        })?;
        server.bedrock = ready_address(&ready_file, "bedrock");
        Ok(server)
    }
}

fn ready_address(ready_file: &Path, door: &str) -> Option<String> {
    let text = std::fs::read_to_string(ready_file).ok()?;
    let addresses: serde_json::Value = serde_json::from_str(&text).ok()?;
    Some(addresses.get(door)?.as_str()?.to_owned())
}

fn start_beanstalkd(journal: Option<&Path>) -> io::Result<Server> {
    let port = free_port()?;
    let mut command = Command::new("beanstalkd");
    command.args(["-l", "127.0.0.1", "-p", &port.to_string()]).stderr(Stdio::null());
    if let Some(folder) = journal {
        command.arg("-b").arg(folder).arg("-f0");
    }
    let address = format!("127.0.0.1:{port}");
    start(command, || answers(&address).then(|| address.clone()))
        .map_err(|error| io::Error::other(format!("cannot start beanstalkd (is it installed?): {error}")))
}

/// Checks that beanstalkd answers a command: it listens before it has read its log, so connecting is not
/// enough.
fn answers(address: &str) -> bool {
    let ask = || -> io::Result<usize> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(START_TIMEOUT))?;
        stream.write_all(b"list-tube-used\r\n")?;
        stream.read(&mut [0; 64])
    };
    ask().is_ok_and(|bytes| bytes > 0)
}

fn start(mut command: Command, ready: impl Fn() -> Option<String>) -> io::Result<Server> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let begun = Instant::now();
    let child = command.spawn()?;
    let mut server = Server { child, address: String::new(), bedrock: None, started_in: Duration::ZERO };
    loop {
        if let Some(address) = ready() {
            server.address = address;
            server.started_in = begun.elapsed();
            return Ok(server);
        }
        if let Some(status) = server.child.try_wait()? {
            return Err(io::Error::other(format!("it exited with {status}")));
        }
        if begun.elapsed() > START_TIMEOUT {
            return Err(io::Error::other("it was not reachable in time"));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Free port for servers that cannot choose one themselves. If another process takes it first, the start
/// fails.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
