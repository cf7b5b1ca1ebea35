//! Sources of jobs and blobs for the WASI runner, which is in `windlass-runners`.
//!
//! | file | content |
//! |---|---|
//! | `local.rs` | source inside the server: its own engine, with waiting claims |
//! | `remote.rs` | source of `windlass run-wasi`: a server over HTTP with the queuey protocol |
//! | `storage.rs` | blobs of another server, verified on receipt |

pub(crate) mod local;
pub(crate) mod remote;
mod storage;

pub(crate) use storage::Storage;

use crate::client::{Client, ClientError};
use parking_lot::Mutex;
use std::path::PathBuf;
use windlass_runners::wasi::child::GuestProgram;

/// Guest program: this executable, even if its file has been replaced.
pub(crate) fn guest_program() -> std::io::Result<GuestProgram> {
    let own = PathBuf::from("/proc/self/exe");
    let path = if own.exists() { own } else { std::env::current_exe()? };
    Ok(GuestProgram { path, args: vec!["run-wasi-guest".to_owned()] })
}

/// Pool of blocking clients of one server, one per concurrent call.
pub(crate) struct Clients {
    first: Client,
    idle: Mutex<Vec<Client>>,
}

/// Status and body.
pub(crate) type Answer = (u16, Vec<u8>);

impl Clients {
    pub(crate) fn new(first: Client) -> Clients {
        Clients { first, idle: Mutex::default() }
    }

    pub(crate) fn server(&self) -> String {
        self.first.server()
    }

    /// Sends a call; it completes even if the future is dropped.
    pub(crate) async fn call(
        &self,
        method: &'static str,
        path: String,
        body: Option<Vec<u8>>,
    ) -> Result<Answer, ClientError> {
        let mut client = self.idle().pop().unwrap_or_else(|| self.first.another());
        let exchange = move || {
            let answer = client.raw(method, &path, body.as_deref());
            (client, answer)
        };
        match tokio::task::spawn_blocking(exchange).await {
            Ok((client, answer)) => {
                self.idle().push(client);
                answer
            }
            Err(_) => Err(ClientError::Interrupted),
        }
    }

    fn idle(&self) -> parking_lot::MutexGuard<'_, Vec<Client>> {
        self.idle.lock()
    }
}
