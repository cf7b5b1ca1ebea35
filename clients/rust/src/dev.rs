//! A real server for tests and development, in a temporary folder.

use crate::app::Windlass;
use crate::error::Error;
use crate::random;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

/// Environment variable with the path of the server's program.
const BINARY: &str = "WINDLASS_BIN";
/// Time for the start of the server.
const START_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Server started by [`DevServer::start`]. It is ended, and its folder deleted, on drop.
pub struct DevServer {
    program: PathBuf,
    child: Child,
    folder: PathBuf,
    url: String,
}

#[derive(Deserialize)]
struct Ready {
    http: String,
}

impl DevServer {
    /// Starts the program named by `WINDLASS_BIN`, or `windlass` on the `PATH`, on a free port of this machine
    /// with an empty store. Returns when it takes requests.
    ///
    /// # Errors
    /// If the program cannot be started, or does not take requests within 30 seconds; the message has the end
    /// of its log.
    pub async fn start() -> Result<DevServer, Error> {
        DevServer::start_program(std::env::var_os(BINARY).unwrap_or_else(|| "windlass".into())).await
    }

    /// Like [`DevServer::start`], with the path of the program.
    ///
    /// # Errors
    /// As for [`DevServer::start`].
    pub async fn start_program(program: impl Into<PathBuf>) -> Result<DevServer, Error> {
        let program = program.into();
        let folder = std::env::temp_dir().join(format!("windlass-dev-{}", random::key()));
        let failed = |what: &str, error: std::io::Error| Error::Setting(format!("{what}: {error}"));
        std::fs::create_dir_all(&folder).map_err(|e| failed("cannot create a folder", e))?;
        let child = spawn(&program, &folder, "127.0.0.1:0")?;
        let mut server = DevServer { program, child, folder, url: String::new() };
        server.url = server.ready().await?;
        Ok(server)
    }

    /// Address of the server.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Application on this server.
    ///
    /// # Errors
    /// None in practice: the address is valid.
    pub fn app(&self) -> Result<Windlass, Error> {
        Windlass::new(&self.url)
    }

    /// Ends the server without warning, like a crash.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the server again, with its store and on its port, after [`DevServer::kill`].
    ///
    /// # Errors
    /// As for [`DevServer::start`].
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.kill();
        let _ = std::fs::remove_file(self.folder.join("ready.json"));
        let address = self.url.trim_start_matches("http://").to_owned();
        self.child = spawn(&self.program, &self.folder, &address)?;
        self.url = self.ready().await?;
        Ok(())
    }

    async fn ready(&mut self) -> Result<String, Error> {
        let until = Instant::now() + START_WITHIN;
        let file = self.folder.join("ready.json");
        loop {
            let ready =
                std::fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Ready>(&text).ok());
            if let Some(ready) = ready {
                return Ok(format!("http://{}", ready.http));
            }
            let has_ended = self.child.try_wait().ok().flatten();
            if has_ended.is_some() || Instant::now() > until {
                let log = std::fs::read_to_string(self.folder.join("server.log")).unwrap_or_default();
                return Err(Error::Setting(format!("the server did not start: {}", log.trim())));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Drop for DevServer {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn spawn(program: &Path, folder: &Path, address: &str) -> Result<Child, Error> {
    let failed = |error: std::io::Error| {
        let program = program.display();
        Error::Setting(format!("cannot start {program}: {error}; set {BINARY} to the path of the server"))
    };
    let log = std::fs::File::create(folder.join("server.log")).map_err(failed)?;
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WINDLASS_") {
            command.env_remove(name);
        }
    }
    command
        .args(["serve", "--http", address, "--bedrock", "off", "--mdns", "off", "--data", "data"])
        .args(["--ready-file", "ready.json"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log)
        .spawn()
        .map_err(failed)
}
