//! PostgreSQL server for tests: `PostgresServer::shared()` once per test binary, with a new schema for each
//! test; `PostgresServer::start` for tests that stop or kill it. It uses a temporary folder and a free port
//! of the loopback address, and ends with the handle, or with the test process in any case.
//!
//! Tests of other crates include this file by `#[path]`, so it uses only the standard library.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Longest wait for the server to accept connections; normally a fraction of a second.
const START_MAX: Duration = Duration::from_secs(60);

/// Durability of the server.
#[allow(dead_code, reason = "each test binary uses a part of it")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// No fsync, for tests that are not about the disk. A store has to accept the loss of acknowledged
    /// commits (`accept_unsafe`, `--durability relaxed`).
    Fast,
    /// Default settings, as in production.
    Safe,
}

/// Shell script that runs the server and executes commands, line by line. It reads them from a pipe that only
/// the test process holds: when that process ends, for whatever reason, the server is stopped and its folder
/// removed.
const KEEPER: &str = r#"
bin=$1 data=$2 port=$3
# A clock that can be set, by what a file in the folder says.
if [ -n "$4" ]; then
    clock="env LD_PRELOAD=$4 FAKETIME_TIMESTAMP_FILE=$data/clock FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1"
fi
start() {
    $clock "$bin/postgres" -D "$data" -p "$port" -k "$data" -c listen_addresses=127.0.0.1 >>"$data/log" 2>&1 &
    pid=$!
}
stop() { kill "-$1" "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; }
start
while read -r ask; do
    case $ask in
        start) start ;;
        # The whole family dies at once, as in a power cut.
        kill) family=$(ps -o pid= --ppid "$pid")
              kill -KILL "$pid" $family 2>/dev/null; wait "$pid" 2>/dev/null
              # They hold the shared memory until they are gone; a dead one that nobody has fetched yet does not.
              for one in $family; do
                  while grep -q '^State:.[^Z]' "/proc/$one/status" 2>/dev/null; do sleep 0.01; done
              done
              rm -f "$data/postmaster.pid" ;;
        fast) stop INT ;;
        immediate) stop QUIT ;;
        end) break ;;
        # First the one that makes the others, so that none is made in between.
        freeze) kill -STOP "$pid"; kill -STOP $(ps -o pid= --ppid "$pid") 2>/dev/null ;;
        thaw) kill -CONT "$pid" $(ps -o pid= --ppid "$pid") 2>/dev/null ;;
    esac
    echo "$ask"
done
kill -CONT "$pid" $(ps -o pid= --ppid "$pid") 2>/dev/null
stop QUIT
rm -rf "$data"
"#;

pub struct PostgresServer {
    keeper: Mutex<Keeper>,
    port: u16,
    data: PathBuf,
    made: AtomicU32,
}

struct Keeper {
    child: Child,
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

#[allow(dead_code, reason = "each test binary uses a part of it")]
impl PostgresServer {
    /// Shared server of this test binary, with [`Disk::Fast`].
    pub fn shared() -> &'static PostgresServer {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        SHARED.get_or_init(|| PostgresServer::start(Disk::Fast, &[]))
    }

    /// Starts a separate server; `settings` are lines of `postgresql.conf`.
    pub fn start(disk: Disk, settings: &[&str]) -> PostgresServer {
        let bin = binaries();
        let data = make_cluster(&bin, disk, settings);
        PostgresServer::start_in(&bin, data)
    }

    /// Starts a server whose clock can be set; `library` is the path of `libfaketime`.
    pub fn start_with_clock(library: &str) -> PostgresServer {
        let bin = binaries();
        let data = make_cluster(&bin, Disk::Fast, &[]);
        write_into(&data.join("clock"), "+0s\n");
        PostgresServer::start_with(&bin, data, library)
    }

    /// Sets the offset of the server's clock.
    pub fn set_clock(&self, off_s: i64) {
        let file = self.data.join("clock");
        // Overwritten in place, because the file belongs to the user of the server.
        std::fs::write(file, format!("{off_s:+}s\n")).expect("the clock's file can be written");
    }

    /// Starts a server with TLS. `certificates`: its chain, its own certificate first; both as PEM.
    pub fn start_with_tls(certificates: &str, key: &str) -> PostgresServer {
        let bin = binaries();
        let settings = ["ssl = on", "ssl_cert_file = 'chain.pem'", "ssl_key_file = 'key.pem'"];
        let data = make_cluster(&bin, Disk::Fast, &settings);
        write_into(&data.join("chain.pem"), certificates);
        write_into(&data.join("key.pem"), key);
        PostgresServer::start_in(&bin, data)
    }

    /// Starts a standby of this server, which accepts no writes until [`PostgresServer::promote`].
    pub fn start_standby(&self) -> PostgresServer {
        let bin = binaries();
        let data = new_folder();
        let output = as_unprivileged(bin.join("pg_basebackup").to_str().unwrap())
            .args(["-U", "postgres", "-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(["--checkpoint=fast", "--no-sync", "--write-recovery-conf", "-D"])
            .arg(&data)
            .output()
            .expect("pg_basebackup should start");
        assert!(output.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&output.stderr));
        PostgresServer::start_in(&bin, data)
    }

    /// From now on acknowledges only commits that the standby has on disk, and none while the standby is
    /// unavailable.
    pub fn wait_for_standby(&self) {
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql("SELECT pg_reload_conf()");
        self.until("the standby is synchronous", || {
            self.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"
        });
    }

    /// Promotes a standby to primary.
    pub fn promote(&self) {
        // The setting may be copied from a primary that waited for a standby.
        self.sql("ALTER SYSTEM RESET synchronous_standby_names");
        self.sql("SELECT pg_reload_conf()");
        assert_eq!(self.sql("SELECT pg_promote(true, 60)"), "t", "{}", self.log());
    }

    fn start_in(bin: &Path, data: PathBuf) -> PostgresServer {
        PostgresServer::start_with(bin, data, "")
    }

    fn start_with(bin: &Path, data: PathBuf, clock: &str) -> PostgresServer {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut keeper = as_unprivileged("sh");
        keeper.args(["-c", KEEPER, "keeper"]).arg(bin).arg(&data).arg(port.to_string()).arg(clock);
        keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = keeper.spawn().expect("sh should start");
        let (asks, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let keeper = Mutex::new(Keeper { child, asks, answers });
        let server = PostgresServer { keeper, port, data, made: AtomicU32::new(0) };
        server.wait_until_ready();
        server
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Database `postgres`, without a schema.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Unused schema in the database `postgres`: fast, and enough for most tests.
    pub fn new_schema_url(&self) -> String {
        format!("{}?schema=test_{}", self.url(), self.made.fetch_add(1, Ordering::Relaxed))
    }

    /// New database.
    pub fn new_database_url(&self) -> String {
        let name = format!("test_{}", self.made.fetch_add(1, Ordering::Relaxed));
        self.sql(&format!("CREATE DATABASE {name}"));
        format!("postgres://postgres@127.0.0.1:{}/{name}", self.port)
    }

    /// Runs SQL in the database `postgres`. Returns the output of `psql`: a line per row, `|` between
    /// columns.
    pub fn sql(&self, sql: &str) -> String {
        psql(&self.url(), sql)
    }

    /// Aborts transactions, stops the server and starts it again.
    pub fn restart(&self) {
        self.stop();
        self.resume();
    }

    /// Stops the server until `resume`.
    pub fn stop(&self) {
        self.ask("fast");
    }

    /// Kills all processes of the server, like a power failure.
    pub fn kill(&self) {
        self.ask("kill");
    }

    pub fn resume(&self) {
        self.ask("start");
        self.wait_until_ready();
    }

    /// Suspends all processes until `thaw`: connections stay open without a response.
    pub fn freeze(&self) {
        self.ask("freeze");
    }

    pub fn thaw(&self) {
        self.ask("thaw");
    }

    /// Contents of the server's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.data.join("log")).unwrap_or_default()
    }

    fn ask(&self, what: &str) {
        let mut keeper = self.keeper.lock().unwrap();
        writeln!(keeper.asks.as_mut().unwrap(), "{what}").unwrap();
        let mut answer = String::new();
        keeper.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim(), what, "PostgreSQL's keeper is gone:\n{}", self.log());
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "where the engine's tests take this in, they wait for a real server"
    )]
    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < START_MAX, "not so yet: {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait_until_ready(&self) {
        // An accepted connection is not enough: a starting server accepts and closes it.
        self.until("PostgreSQL answers", || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok() && try_psql(&self.url(), "SELECT 1").is_ok()
        });
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let keeper = self.keeper.get_mut().unwrap();
        drop(keeper.asks.take());
        let _ = keeper.child.wait();
    }
}

/// Output of `psql`: a line per row, `|` between columns.
pub fn psql(url: &str, sql: &str) -> String {
    try_psql(url, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

pub fn try_psql(url: &str, sql: &str) -> Result<String, String> {
    let url = url.split_once("?schema=").map_or(url, |(url, _)| url);
    let output = Command::new(binaries().join("psql"))
        .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", sql])
        .output()
        .expect("psql should start");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Folder of the newest PostgreSQL: Debian does not put it into the path.
pub fn binaries() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    found.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    found.retain(|folder| folder.join("postgres").exists() && folder.join("initdb").exists());
    found.sort_by_key(|folder| version_of(folder));
    found.pop().expect("PostgreSQL is needed: apt-get install postgresql, or run ./test, which does")
}

fn version_of(folder: &Path) -> u32 {
    let version = folder.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    version.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// PostgreSQL refuses to run as root.
fn as_unprivileged(program: &str) -> Command {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", program]);
    command.current_dir("/");
    command
}

/// Unused path.
fn new_folder() -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let data = std::env::temp_dir().join(format!("windlass-pg-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&data);
    data
}

fn make_cluster(bin: &Path, disk: Disk, settings: &[&str]) -> PathBuf {
    let data = new_folder();
    let output = as_unprivileged(bin.join("initdb").to_str().unwrap())
        .args(["-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "-D"])
        .arg(&data)
        .output()
        .expect("initdb should start");
    assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
    let mut lines = vec!["max_connections = 200", "shared_buffers = 64MB", "log_min_messages = warning"];
    if disk == Disk::Fast {
        lines.extend(["fsync = off", "synchronous_commit = off", "full_page_writes = off"]);
    }
    lines.extend(settings);
    let text = format!("{}\n", lines.join("\n"));
    write_into(&data.join("postgresql.conf"), &text);
    data
}

/// Appends to a file with mode 0600, as the owner of the folder, which other users cannot access.
fn write_into(file: &Path, text: &str) {
    let mut cat = as_unprivileged("sh");
    cat.args(["-c", r#"umask 077; cat >>"$1""#, "write"]).arg(file);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("sh should start");
    cat.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(cat.wait().unwrap().success(), "writing {}", file.display());
}
