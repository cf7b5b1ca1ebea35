//! pgbouncer in transaction mode: each transaction may use another connection.

use super::postgres_server::{Disk, PostgresServer};
use super::{Cluster, ask};
use crate::rigs::dump::Dump;
use crate::rigs::load::Load;
use crate::rigs::quiet::{assert_kept, drain, release_held};
use crate::rigs::{seed, setting};
use crate::server::eventually;
use serde_json::json;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Pooler process; ends on drop.
struct Pooler {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Pooler {
    /// Starts a pooler with few connections to the database, so that each is shared.
    fn start(database: u16) -> Pooler {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let configuration = format!(
            "[databases]\n* = host=127.0.0.1 port={database} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = 4\nmax_client_conn = 200\n"
        );
        let file = folder.path().join("pgbouncer.ini");
        std::fs::write(&file, configuration).unwrap();
        // Debian installs it outside the usual PATH.
        let usual = "/usr/sbin/pgbouncer";
        let program = if std::path::Path::new(usual).exists() { usual } else { "pgbouncer" };
        let mut command = Command::new(program);
        command.arg("-q").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if rustix::process::getuid().is_root() {
            // It refuses to run as root; the user `nobody` must be able to read its configuration then.
            open_to_all(folder.path());
            let nobody = 65_534;
            command.uid(nobody).gid(nobody).current_dir("/");
        }
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("this rig needs pgbouncer (apt-get install pgbouncer): {error}"));
        let pooler = Pooler { child, port, _folder: folder };
        eventually("pgbouncer listens", || TcpStream::connect(("127.0.0.1", port)).ok());
        pooler
    }
}

fn open_to_all(folder: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(folder.join("pgbouncer.ini"), std::fs::Permissions::from_mode(0o644)).unwrap();
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn everything_works_through_a_pooler_in_transaction_mode() {
    let seed = seed(40);
    let database = PostgresServer::start(Disk::Fast, &[]);
    let pooler = Pooler::start(database.port());
    let url = database.new_database_url();
    let url = url.replace(&format!(":{}/", database.port()), &format!(":{}/", pooler.port));
    let cluster = Cluster::start_on(&url, 2, &["--set", "store.listen=false", "--durability", "relaxed"]);
    let load = Load::new();
    load.set_addresses(cluster.addresses());
    let clients: Vec<_> = (0..4).map(|number| load.client(number, seed)).collect();
    std::thread::sleep(Duration::from_secs(setting("WINDLASS_RIG_SECONDS", 3)));
    load.end();
    clients.into_iter().for_each(|client| client.join().unwrap());
    release_held(&load, cluster.http(0));
    drain(&load, cluster.http(1));
    assert_kept(&load, &Dump::take(cluster.http(0)), "pooler", seed);

    // No notification reaches the other server; it finds the job by polling.
    let (waiting, pushing) = (cluster.http(0), cluster.http(1));
    let body = json!({ "name": "told", "limit": 1, "wait_ms": 8_000, "lease_ms": 60_000 });
    let waiter = std::thread::spawn(move || ask(waiting, "POST", "/api/v1/claim", &body));
    std::thread::sleep(Duration::from_millis(200));
    ask(pushing, "POST", "/api/v1/jobs", &json!({ "name": "told" }));
    let claimed = waiter.join().unwrap();
    assert_eq!(claimed["jobs"].as_array().map(Vec::len), Some(1), "{claimed}");
    cluster.stop();
}
