//! Connections of one port: limits, TLS handshake, and orderly shutdown.

use super::{ListenerLimits, Phase};
use crate::arrivals::Arrivals;
use crate::dialect::{Connection, Stream};
use crate::tls::Tls;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// First byte of a TLS connection: the type of a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// Bytes read of a request without TLS after it was refused; more are not waited for.
const PLAIN_BYTES_MAX: usize = 64 * 1024;

/// Bound port, not served yet.
pub(crate) struct Port {
    /// For the log.
    pub name: &'static str,
    pub listener: TcpListener,
    pub tls: Option<Arc<Tls>>,
    pub limits: ListenerLimits,
    /// Response to a connection beyond the limits, sent before it is closed.
    pub too_many: String,
    /// Response of a port with TLS to a connection that begins without it; empty: it is closed.
    pub not_tls: String,
}

impl Port {
    /// Serves connections until `phase` is `Draining` and the last one has ended, or `limits.grace` is over.
    pub(crate) async fn serve<F>(
        self,
        phase: watch::Sender<Phase>,
        converse: impl Fn(Stream, SocketAddr, Connection) -> F + Clone + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let Port { name, listener, tls, limits, too_many, not_tls } = self;
        let (too_many, not_tls): (Arc<str>, Arc<str>) = (too_many.into(), not_tls.into());
        let permits = Arc::new(Semaphore::new(limits.connections_max.clamp(1, Semaphore::MAX_PERMITS)));
        let arrivals = Arrivals::new(limits.connections_per_address);
        let mut conversations = JoinSet::new();
        let mut draining = phase.subscribe();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = conversations.join_next() => continue,
                _ = draining.wait_for(|phase| *phase >= Phase::Draining) => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    rest_after(&error).await;
                    continue;
                }
            };
            tune(&stream);
            let permit = Arc::clone(&permits).try_acquire_owned();
            let (Ok(permit), Some(arrival)) = (permit, arrivals.enter(peer.ip())) else {
                tokio::spawn(turn_away(stream, Arc::clone(&too_many)));
                continue;
            };
            let connection = Connection { arrival, phase: phase.subscribe() };
            let (converse, tls, not_tls) = (converse.clone(), tls.clone(), Arc::clone(&not_tls));
            let handshake_timeout = limits.tls_handshake_timeout;
            conversations.spawn(async move {
                if let Some(stream) = secure(stream, tls.as_deref(), handshake_timeout, &not_tls).await {
                    converse(stream, peer, connection).await;
                }
                drop(permit);
            });
        }
        drop(listener);
        let all_ended = async { while conversations.join_next().await.is_some() {} };
        if tokio::time::timeout(limits.grace, all_ended).await.is_err() {
            tracing::warn!("closing {name} connections that are still open after {:?}", limits.grace);
            let _ = tokio::time::timeout(Duration::from_secs(1), conversations.shutdown()).await;
        }
    }
}

/// Performs the TLS handshake, if the port has TLS. `None`: it failed.
async fn secure(
    stream: TcpStream,
    tls: Option<&Tls>,
    handshake_timeout: Duration,
    not_tls: &str,
) -> Option<Stream> {
    let Some(tls) = tls else { return Some(Stream::Plain(stream)) };
    let handshake = async {
        if !not_tls.is_empty() && !begins_with_tls(&stream).await? {
            refuse_plain(stream, not_tls).await?;
            return Ok(None);
        }
        tls.acceptor().accept(stream).await.map(Some)
    };
    match tokio::time::timeout(handshake_timeout, handshake).await {
        Ok(Ok(Some(stream))) => return Some(Stream::Tls(Box::new(stream))),
        Ok(Ok(None)) => tracing::debug!("connection without TLS refused"),
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake timed out"),
    }
    None
}

/// True if the first byte is that of a TLS handshake.
async fn begins_with_tls(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    Ok(stream.peek(&mut first).await? == 0 || first[0] == TLS_HANDSHAKE)
}

/// Sends the answer, then reads what the client still sends: a close with unread bytes would discard the answer.
async fn refuse_plain(mut stream: TcpStream, answer: &str) -> io::Result<()> {
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    let mut piece = [0; 4096];
    let mut left = PLAIN_BYTES_MAX;
    while left > 0 {
        match stream.read(&mut piece).await? {
            0 => break,
            bytes => left = left.saturating_sub(bytes),
        }
    }
    Ok(())
}

/// Pauses after an error of `accept`. A connection that broke before it was accepted needs no pause; a lack
/// of file descriptors does.
async fn rest_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        return;
    }
    tracing::warn!(%error, "cannot accept a connection; retrying");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Disables Nagle's algorithm and enables keepalive, which detects a dead peer: a worker that waits for jobs
/// on a dead connection would otherwise get one.
fn tune(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

async fn turn_away(mut stream: TcpStream, answer: Arc<str>) {
    let _ = tokio::time::timeout(Duration::from_secs(1), stream.write_all(answer.as_bytes())).await;
    let _ = stream.shutdown().await;
}
