//! Jobs on their way to a client, and detection of a client that left before it read them.

use super::{Link, Session};
use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;
use windlass_engine::Delivery;

/// A client that has closed its sending side may be gone, or may only have no more requests. If it is gone,
/// its system answers the reply with a reset; a local or nearby system does so within this time.
const FAREWELL: Duration = Duration::from_millis(250);

/// Jobs whose replies are written but not known to be read. A client that leaves with unread bytes resets the
/// connection, and its jobs are released. After any other end, and after any further request, the client has
/// the jobs.
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

/// True if the client's input has been read to its end. Asks the kernel directly, because the runtime's
/// readiness may be out of date.
pub(super) fn has_ended(tcp: &TcpStream) -> bool {
    let mut byte = [std::mem::MaybeUninit::uninit()];
    match socket2::SockRef::from(tcp).peek(&mut byte) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

impl<L: Link> Session<L> {
    /// True if the client left without reading the jobs it was sent.
    pub(super) async fn left_unread(&self, served: &io::Result<()>) -> bool {
        match served {
            _ if self.unread.0.is_empty() => false,
            Err(error) => {
                matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            }
            // The client's close may have crossed with the reply.
            Ok(()) => has_ended(self.link.tcp()) && self.is_gone().await,
        }
    }

    /// True if a client that has closed its sending side does not read either.
    pub(super) async fn is_gone(&self) -> bool {
        let tcp = self.link.tcp();
        timeout(FAREWELL, tcp.ready(Interest::ERROR)).await.is_ok_and(|ready| ready.is_ok())
    }
}
