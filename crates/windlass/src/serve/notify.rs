//! Messages to the service manager (systemd, `Type=notify`): a datagram to the socket in `NOTIFY_SOCKET`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::net::UnixDatagram;
use tracing::debug;

/// All listeners are open.
pub(super) const READY: &str = "READY=1";
/// The shutdown has begun.
pub(super) const STOPPING: &str = "STOPPING=1";

/// Sends a message if a service manager waits for it. A failure is logged only: the server works without one.
pub(super) fn send(message: &str) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send_to(&socket, message)
    {
        debug!("cannot send {message} to the service manager: {error}");
    }
}

fn send_to(socket: &OsStr, message: &str) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    let sent = match abstract_name(socket) {
        Some(name) => send_to_abstract(&sender, &name, message)?,
        None => sender.send_to(message.as_bytes(), socket)?,
    };
    if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Name of a socket without a file, which is written with a leading `@`.
fn abstract_name(socket: &OsStr) -> Option<OsString> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    Some(OsString::from_vec(socket.as_bytes().strip_prefix(b"@")?.to_vec()))
}

#[cfg(target_os = "linux")]
fn send_to_abstract(sender: &UnixDatagram, name: &OsStr, message: &str) -> io::Result<usize> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name.as_bytes())?;
    sender.send_to_addr(message.as_bytes(), &address)
}

#[cfg(not(target_os = "linux"))]
fn send_to_abstract(_: &UnixDatagram, _: &OsStr, _: &str) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reaches_a_socket_with_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        send_to(path.as_os_str(), READY).unwrap();
        let mut bytes = [0; 64];
        let length = manager.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"READY=1");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_message_reaches_a_socket_without_a_path() {
        use std::os::linux::net::SocketAddrExt;
        let name = format!("windlass-notify-{}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        send_to(OsStr::new(&format!("@{name}")), STOPPING).unwrap();
        let mut bytes = [0; 64];
        let length = manager.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"STOPPING=1");
    }

    #[test]
    fn a_service_manager_that_is_gone_is_an_error_only_here() {
        let folder = tempfile::tempdir().unwrap();
        let nobody = send_to(folder.path().join("gone").as_os_str(), READY).unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::NotFound);
    }
}
