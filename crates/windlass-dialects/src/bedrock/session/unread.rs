//! Jobs on their way to a client, and whether it was still there to take them.

use super::{Link, Session};
use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;
use windlass_engine::Delivery;

/// A client that has stopped sending may have gone, or only have nothing more to ask. If it is gone, its system says so
/// in answer to the reply; a local or near one within this time.
const FAREWELL: Duration = Duration::from_millis(250);

/// Jobs whose replies are written, though nothing tells yet that the client has read them. A client that goes leaving bytes
/// unread resets the connection, and its jobs are given back; with any other end, and with any further request, they are
/// its own.
#[derive(Default)]
pub(super) struct Unread(pub Vec<Delivery>);

impl Unread {
    pub(super) fn accept(&mut self) {
        for delivery in self.0.drain(..) {
            delivery.accept();
        }
    }

    pub(super) fn give_back(&mut self) {
        self.0.clear();
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.accept();
    }
}

/// Whether the client's last byte has been read and its end has come, asked of the system itself: what the runtime knows
/// may be a moment old.
pub(super) fn has_ended(tcp: &TcpStream) -> bool {
    let mut byte = [std::mem::MaybeUninit::uninit()];
    match socket2::SockRef::from(tcp).peek(&mut byte) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

impl<L: Link> Session<L> {
    /// Whether the client went without reading the jobs it was sent.
    pub(super) async fn left_unread(&self, served: &io::Result<()>) -> bool {
        match served {
            _ if self.unread.0.is_empty() => false,
            Err(error) => {
                matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            }
            // Its end may have crossed with the reply.
            Ok(()) => has_ended(self.link.tcp()) && self.is_gone().await,
        }
    }

    /// Whether a client that has stopped sending does not listen either.
    pub(super) async fn is_gone(&self) -> bool {
        let tcp = self.link.tcp();
        timeout(FAREWELL, tcp.ready(Interest::ERROR)).await.is_ok_and(|ready| ready.is_ok())
    }
}
