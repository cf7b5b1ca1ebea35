//! Listening sockets, and checks of their exposure.

use crate::config::{Bind, Config};
use crate::discovery;
use crate::fault::{Fault, Outcome};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use tokio::net::TcpListener;
use tracing::warn;
use windlass_dialects::dialect::{Dialect, Listen};
use windlass_dialects::{OwnPort, Ports, Tokens};

/// Ports tried for a dialect before giving up.
const PORTS_TRIED: u16 = 100;

/// First address reachable from other machines, unless `--insecure` is set.
fn exposed_address(config: &Config) -> Option<Bind> {
    let own = own_ports(config).filter_map(|(_, listen)| match listen {
        Listen::Tcp(bind) => Some(bind),
        Listen::Http { .. } => None,
    });
    let mut doors = std::iter::once(config.http.clone()).chain(own);
    doors.find(|bind| !bind.is_loopback() && !config.insecure)
}

/// Ports of single dialects.
fn own_ports(config: &Config) -> impl Iterator<Item = (&'static str, Listen)> {
    let listen = |dialect: &&'static dyn Dialect| Some((dialect.name(), dialect.listener(&config.settings)?));
    config.dialects.iter().filter_map(listen)
}

/// Refuses to listen on such an address without TLS.
fn require_tls_if_exposed(config: &Config) -> Outcome {
    match exposed_address(config) {
        Some(door) if config.tls.is_none() && config.tokens.is_empty() => {
            Err(missing(&door, "tokens and TLS"))
        }
        Some(door) if config.tls.is_none() => Err(missing(&door, "TLS")),
        _ => Ok(()),
    }
}

/// Refuses to listen on such an address without tokens. Called after the store is open, which may hold
/// tokens.
pub(super) fn require_tokens_if_exposed(config: &Config, tokens: &Tokens) -> Outcome {
    match exposed_address(config) {
        Some(door) if tokens.is_open() => Err(missing(&door, "tokens")),
        _ => Ok(()),
    }
}

fn missing(door: &Bind, what: &str) -> Fault {
    Fault::usage(format!(
        "{} is reachable from other machines, which requires {what}: set auth.tokens (see `windlass \
         token`) and tls.cert with tls.key, or allow unprotected access with --insecure",
        door.text
    ))
}

/// Checks and binds the sockets first, so that a port in use is reported before a large store is opened.
pub(super) async fn prepare(config: &Config) -> Outcome<Ports> {
    require_tls_if_exposed(config)?;
    if let Some(why) = discovery::refusal(config) {
        return Err(Fault::usage(why));
    }
    bind_all(config).await
}

/// Address of each port, HTTP first.
pub(super) fn addresses(ports: &Ports) -> io::Result<Vec<(&'static str, SocketAddr)>> {
    let http = ports.http.iter().map(|listener| ("http", listener));
    let own = ports.own.iter().map(|port| (port.dialect, &port.listener));
    http.chain(own).map(|(name, listener)| Ok((name, listener.local_addr()?))).collect()
}

/// Duplicates the sockets: a connection is accepted by one of the two.
pub(super) fn try_clone(ports: &Ports) -> io::Result<Ports> {
    let again = |listener: &TcpListener| {
        let fd = listener.as_fd().try_clone_to_owned()?;
        TcpListener::from_std(std::net::TcpListener::from(fd))
    };
    let own = |port: &OwnPort| Ok(OwnPort { listener: again(&port.listener)?, ..*port });
    Ok(Ports {
        http: ports.http.as_ref().map(again).transpose()?,
        own: ports.own.iter().map(own).collect::<io::Result<_>>()?,
    })
}

/// Binds all sockets. A dialect whose default address is in use is skipped; HTTP is required.
async fn bind_all(config: &Config) -> Outcome<Ports> {
    let http = bind_required("http", &config.http).await?;
    let mut own = Vec::new();
    for (dialect, listen) in own_ports(config) {
        let (listener, is_local) = match listen {
            Listen::Tcp(address) => (bind(dialect, &address).await?, address.is_loopback()),
            Listen::Http { port } => {
                (Some(bind_from(dialect, &config.http, port).await?), config.http.is_loopback())
            }
        };
        own.extend(listener.map(|listener| OwnPort { dialect, listener, is_local }));
    }
    Ok(Ports { http: Some(http), own })
}

/// Binds the first free port from this one on, at the addresses of `bind`.
async fn bind_from(dialect: &str, bind: &Bind, port: u16) -> Outcome<TcpListener> {
    let last = port.saturating_add(PORTS_TRIED - 1);
    for port in port..=last {
        let at = |address: &SocketAddr| SocketAddr::new(address.ip(), port);
        let addresses: Vec<SocketAddr> = bind.addresses.iter().map(at).collect();
        match TcpListener::bind(addresses.as_slice()).await {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => {
                return Err(Fault::failed(format!(
                    "cannot listen on port {port} for {dialect}: {error}; set another {dialect}.port"
                )));
            }
        }
    }
    Err(Fault::failed(format!("ports {port} to {last} are all in use; set another {dialect}.port")))
}

/// Binds an address; `None` if a default address is in use.
async fn bind(what: &str, bind: &Bind) -> Outcome<Option<TcpListener>> {
    match TcpListener::bind(bind.addresses.as_slice()).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && !bind.asked => {
            warn!(
                "{what} is disabled: its default address {} is in use; choose another with --{what}",
                bind.text
            );
            Ok(None)
        }
        Err(error) => Err(not_bound(what, bind, &error)),
    }
}

/// Binds an address that the server does not start without.
async fn bind_required(what: &str, bind: &Bind) -> Outcome<TcpListener> {
    let bound = TcpListener::bind(bind.addresses.as_slice()).await;
    bound.map_err(|error| not_bound(what, bind, &error))
}

/// Error that names the flag of the listener.
fn not_bound(what: &str, bind: &Bind, error: &io::Error) -> Fault {
    let at = &bind.text;
    Fault::failed(match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "{at} is in use by another program, perhaps another windlass; start with --{what} ADDR on \
             another port (port 0 picks a free one)"
        ),
        _ => format!("cannot listen on {at} for {what}: {error}; choose another address with --{what} ADDR"),
    })
}
