//! Server in this process, on a temporary store and free ports, for commands that show or measure one.

use crate::config::{Config, ValueSource, Written};
use crate::fault::{Fault, Outcome};
use crate::serve::Server;
use std::net::SocketAddr;
use std::path::Path;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use windlass_dialects::ALL;

pub(super) struct OwnServer {
    runtime: Runtime,
    server: Server,
    folder: TempDir,
}

impl OwnServer {
    /// Starts a server whose data is in a new folder, below `parent` if there is one. `settings`: further keys with
    /// their values.
    pub(super) fn start(
        prefix: &str,
        parent: Option<&Path>,
        settings: &[(&str, &str)],
    ) -> Outcome<OwnServer> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(prefix);
        let folder = match parent {
            Some(parent) => builder.tempdir_in(parent)?,
            None => builder.tempdir()?,
        };
        let mut written = Written::new(ALL);
        let data = folder.path().display().to_string();
        let own =
            [("data", data.as_str()), ("http", "127.0.0.1:0"), ("bedrock", "127.0.0.1:0"), ("mdns", "off")];
        for (name, text) in own.iter().chain(settings) {
            written.put_text(name, text, ValueSource::Set)?;
        }
        let config = Config::from_written(&written)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let server = runtime.block_on(Server::start(&config))?;
        server.hand_out();
        Ok(OwnServer { runtime, server, folder })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn url(&self) -> Outcome<String> {
        self.address("http").map(|http| format!("http://{http}"))
    }

    /// Address of a listener.
    pub(super) fn address(&self, listener: &str) -> Outcome<SocketAddr> {
        let found = self.server.listening.iter().find(|(name, _)| *name == listener);
        found.map(|(_, address)| *address).ok_or_else(|| Fault::failed("the server has no listening address"))
    }

    /// Serves until Ctrl-C.
    pub(super) fn until_interrupted(&self) -> Outcome {
        self.runtime.block_on(tokio::signal::ctrl_c()).map_err(Fault::from)
    }

    pub(super) fn stop(mut self) {
        self.runtime.block_on(self.server.stop());
    }
}
