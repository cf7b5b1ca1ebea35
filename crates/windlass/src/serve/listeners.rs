//! The sockets that the server listens on, and who may reach them.

use crate::config::{Bind, Config};
use crate::discovery;
use crate::fault::{Fault, Outcome};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use tokio::net::TcpListener;
use tracing::warn;
use windlass_dialects::Tokens;

/// Ports that are tried for queuey-queue's own before giving up.
const PORTS_TRIED: u16 = 100;

/// Doors that others can reach, unless the operator has said that anybody may come in.
fn open_doors(config: &Config) -> Option<&Bind> {
    let mut doors = std::iter::once(&config.http).chain(&config.bedrock);
    doors.find(|bind| !bind.is_loopback() && !config.insecure)
}

/// Nobody else can reach a server whose bytes anybody on the way can read.
fn refuse_plain_doors(config: &Config) -> Outcome {
    match open_doors(config) {
        Some(door) if config.tls.is_none() && config.tokens.is_empty() => {
            Err(missing(door, "tokens and TLS"))
        }
        Some(door) if config.tls.is_none() => Err(missing(door, "TLS")),
        _ => Ok(()),
    }
}

/// Nobody else can reach a server that does not know who is calling. The store may hold tokens, so it is open by now.
pub fn refuse_open_doors(config: &Config, tokens: &Tokens) -> Outcome {
    match open_doors(config) {
        Some(door) if tokens.is_open() => Err(missing(door, "tokens")),
        _ => Ok(()),
    }
}

fn missing(door: &Bind, what: &str) -> Fault {
    Fault::usage(format!(
        "{} can be reached by others, so it needs {what}: set auth.tokens (see `windlass token`) and tls.cert with \
         tls.key, or allow everyone with --insecure",
        door.text
    ))
}

/// Sockets first: a port that is taken should not cost the time to open a large store.
pub async fn prepare(config: &Config) -> Outcome<Bound> {
    refuse_plain_doors(config)?;
    if let Some(why) = discovery::refusal(config) {
        return Err(Fault::usage(why));
    }
    bind_all(config).await
}

/// Sockets that are bound and not served yet.
pub struct Bound {
    pub http: Option<TcpListener>,
    pub bedrock: Option<TcpListener>,
    pub queuey: Option<TcpListener>,
}

impl Bound {
    /// The same doors once more: whoever knocks is let in by one of the two.
    pub fn try_clone(&self) -> io::Result<Bound> {
        let again = |listener: &TcpListener| {
            let fd = listener.as_fd().try_clone_to_owned()?;
            TcpListener::from_std(std::net::TcpListener::from(fd))
        };
        Ok(Bound {
            http: self.http.as_ref().map(again).transpose()?,
            bedrock: self.bedrock.as_ref().map(again).transpose()?,
            queuey: self.queuey.as_ref().map(again).transpose()?,
        })
    }
}

/// A default address that is taken is skipped, as long as another door is open.
async fn bind_all(config: &Config) -> Outcome<Bound> {
    let http = bind("http", &config.http).await?;
    let bedrock = match &config.bedrock {
        Some(address) => bind("bedrock", address).await?,
        None => None,
    };
    if http.is_none() && bedrock.is_none() {
        return Err(Fault::failed(format!(
            "nothing to listen on: another program listens on {}, maybe a second windlass; choose another with --http \
             127.0.0.1:0",
            config.http.text
        )));
    }
    let queuey = match config.queuey_port {
        Some(port) if http.is_some() => Some(bind_from(&config.http, port).await?),
        Some(_) | None => None,
    };
    Ok(Bound { http, bedrock, queuey })
}

/// The first free port from this one on, at the addresses of `bind`: the rule of queuey-queue's own program.
async fn bind_from(bind: &Bind, port: u16) -> Outcome<TcpListener> {
    let last = port.saturating_add(PORTS_TRIED - 1);
    for port in port..=last {
        let at = |address: &SocketAddr| SocketAddr::new(address.ip(), port);
        let addresses: Vec<SocketAddr> = bind.addresses.iter().map(at).collect();
        match TcpListener::bind(addresses.as_slice()).await {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => {
                return Err(Fault::failed(format!(
                    "listening for queuey on port {port}: {error}; set another queuey.port"
                )));
            }
        }
    }
    Err(Fault::failed(format!("ports {port} to {last} are all in use; set another queuey.port")))
}

/// `None`: it is a default address, and taken.
async fn bind(what: &str, bind: &Bind) -> Outcome<Option<TcpListener>> {
    match TcpListener::bind(bind.addresses.as_slice()).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && !bind.asked => {
            warn!("skipping {what}: {} is in use", bind.text);
            Ok(None)
        }
        Err(error) => {
            let hint = "choose another address, or port 0 for a free one";
            Err(Fault::failed(format!("listening for {what} on {}: {error}; {hint}", bind.text)))
        }
    }
}
