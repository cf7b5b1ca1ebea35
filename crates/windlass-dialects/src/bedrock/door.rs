//! The port: connections with limits on everything, and an orderly end.

use super::commands::Shared;
use super::later::Later;
use super::profile::Profile;
use super::query::{self, Queries};
use super::session::{Limits as SessionLimits, Session};
use super::wire;
use crate::arrivals::{Arrival, Arrivals};
use crate::auth::Tokens;
use crate::budget::Budget;
use crate::guard::Hosts;
use crate::listener::{Limits, Phase, rest_after, tune};
use crate::tls::Tls;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use windlass_engine::Engine;

/// How long a connection may be silent between two requests. See [`SessionLimits::idle`].
const IDLE: Duration = Duration::from_secs(24 * 3_600);

/// So many times as long may a client take until its first request where no token is needed: people type them by hand.
const BY_HAND: u32 = 6;

#[derive(Debug)]
pub struct BedrockOptions {
    pub profile: Profile,
    pub tokens: Arc<Tokens>,
    pub tls: Option<Arc<Tls>>,
    pub hosts: Hosts,
    pub limits: Limits,
    /// Viewers see jobs without their `data`.
    pub hide_payloads: bool,
    pub budget: Budget,
    /// What to start for the processes in which `Query` runs; without it there is no `Query`.
    pub query_program: Option<query::Program>,
    pub query_limits: query::Limits,
    pub version: &'static str,
}

impl Default for BedrockOptions {
    fn default() -> Self {
        BedrockOptions {
            profile: Profile::default(),
            tokens: Tokens::open(),
            tls: None,
            hosts: Hosts::default(),
            limits: Limits::default(),
            hide_payloads: false,
            budget: Budget::default(),
            query_program: None,
            query_limits: query::Limits::default(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// Serves until `shutdown` is done, then answers what it has taken and closes. The engine is left running.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    options: BedrockOptions,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.local_addr()?;
    let (phase, watching) = watch::channel(Phase::Serving);
    let shared = Arc::new(Shared {
        engine,
        profile: options.profile,
        tokens: options.tokens,
        hide_payloads: options.hide_payloads,
        version: options.version,
        queries: Queries::new(options.query_program, options.query_limits),
        hosts: options.hosts,
        budget: options.budget,
        crashed: Default::default(),
        commits: Default::default(),
        answered: Default::default(),
    });
    let later = Later::new(Arc::clone(&shared), watching);
    let door = Door { shared, later, tls: options.tls, limits: options.limits };
    let stopping = async {
        shutdown.await;
        phase.send_replace(Phase::Draining);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = door.listen(listener, &phase) => Ok(()),
        () = stopping => Ok(()),
    }
}

struct Door {
    shared: Arc<Shared>,
    later: Later,
    tls: Option<Arc<Tls>>,
    limits: Limits,
}

impl Door {
    async fn listen(self, listener: TcpListener, phase: &watch::Sender<Phase>) {
        let permits_all = u32::try_from(self.limits.connections_max).unwrap_or(u32::MAX).max(1);
        let permits = Arc::new(Semaphore::new(permits_all as usize));
        let arrivals = Arrivals::new(self.limits.connections_per_address);
        let mut draining = phase.subscribe();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
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
            match (Arc::clone(&permits).try_acquire_owned(), arrivals.enter(peer.ip())) {
                (Err(_), _) | (_, None) => drop(tokio::spawn(turn_away(stream))),
                (Ok(permit), Some(arrival)) => {
                    let session = self.session(stream, arrival, phase.subscribe());
                    tokio::spawn(async move {
                        session.await;
                        drop(permit);
                    });
                }
            }
        }
        drop(listener);
        let grace = self.limits.grace;
        if tokio::time::timeout(grace, permits.acquire_many(permits_all)).await.is_err() {
            tracing::warn!("cutting bedrock connections that did not end within {grace:?}");
            phase.send_replace(Phase::Cut);
        }
        self.later.ended(grace).await;
    }

    fn session(
        &self,
        stream: TcpStream,
        arrival: Arc<Arrival>,
        phase: watch::Receiver<Phase>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let limits = SessionLimits {
            wire: wire::Limits { head_bytes_max: self.limits.body_bytes_max, ..wire::Limits::default() },
            idle: IDLE,
            unknown: match self.shared.tokens.is_open() {
                true => self.limits.first_timeout * BY_HAND,
                false => self.limits.first_timeout,
            },
            stall: self.limits.idle_timeout,
            write: self.limits.write_timeout,
        };
        let (shared, later, tls) = (Arc::clone(&self.shared), self.later.clone(), self.tls.clone());
        let handshake_timeout = self.limits.tls_handshake_timeout;
        let mut cut = phase.clone();
        async move {
            let serving = async {
                let Some(tls) = tls else {
                    return Session::new(stream, shared, later, limits, (phase, arrival)).run().await;
                };
                let handshake = tls.acceptor().accept(stream);
                match tokio::time::timeout(handshake_timeout, handshake).await {
                    Ok(Ok(stream)) => {
                        Session::new(stream, shared, later, limits, (phase, arrival)).run().await
                    }
                    Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                    Err(_) => tracing::debug!("TLS handshake took too long"),
                }
            };
            tokio::select! {
                () = serving => {}
                _ = cut.wait_for(|phase| *phase >= Phase::Cut) => {}
            }
        }
    }
}

async fn turn_away(mut stream: TcpStream) {
    let answer = b"503 Too many connections\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let _ = tokio::time::timeout(Duration::from_secs(1), stream.write_all(answer)).await;
    let _ = stream.shutdown().await;
}
