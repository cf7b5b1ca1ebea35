//! Pool of HTTP/1.1 connections to one URL. A slot is the right to one connection at a time; a connection whose
//! response was read to its end is kept for the next call.
//!
//! Redirects are responses like any other: following one would leave the addresses that were checked.

use crate::outgoing::Allowed;
use crate::signature::{self, Signer};
use crate::target::Target;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsConnector;

type Sender = SendRequest<Full<Bytes>>;
type TlsSource = Arc<dyn Fn() -> Result<Arc<ClientConfig>, String> + Send + Sync>;

/// Call without a response. The request may have arrived all the same.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("cannot resolve {host}: {source}")]
    Lookup { host: String, source: io::Error },
    #[error("this server may not call {host}")]
    NotAllowed { host: String },
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// TLS cannot begin: no certificates to trust, or a host that no certificate can name.
    #[error("{0}")]
    NoTls(String),
    #[error("TLS with {host}: {source}")]
    Tls { host: String, source: io::Error },
    #[error("{0}")]
    Http(#[from] hyper::Error),
}

impl CallError {
    /// Error code with the name known from errno or the resolver, if there is one.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            CallError::Lookup { .. } => Some("ENOTFOUND"),
            CallError::NotAllowed { .. } | CallError::NoTls(_) => None,
            CallError::Connect(error) | CallError::Tls { source: error, .. } => io_code(error),
            CallError::Http(error) => {
                let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref());
                match cause {
                    Some(cause) => io_code(cause),
                    None if error.is_incomplete_message() || error.is_closed() || error.is_canceled() => {
                        Some("ECONNRESET")
                    }
                    None => None,
                }
            }
        }
    }
}

fn io_code(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Some("ECONNREFUSED"),
        io::ErrorKind::ConnectionReset => Some("ECONNRESET"),
        io::ErrorKind::ConnectionAborted => Some("ECONNABORTED"),
        io::ErrorKind::TimedOut => Some("ETIMEDOUT"),
        io::ErrorKind::HostUnreachable => Some("EHOSTUNREACH"),
        io::ErrorKind::NetworkUnreachable => Some("ENETUNREACH"),
        io::ErrorKind::BrokenPipe => Some("EPIPE"),
        _ => None,
    }
}

pub struct Pool {
    target: Target,
    allowed: Arc<Allowed>,
    tls: Option<TlsSource>,
    /// Signs requests for this tenant.
    signer: Option<(Signer, String)>,
    idle: Mutex<Vec<Sender>>,
    slots: Arc<Semaphore>,
}

/// Right to one connection of a pool, until it is dropped.
pub struct Slot {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Pool {
    pub fn new(target: Target, connections_max: usize, allowed: Arc<Allowed>) -> Pool {
        let slots = Arc::new(Semaphore::new(connections_max));
        Pool { target, allowed, tls: None, signer: None, idle: Mutex::default(), slots }
    }

    /// The same pool, able to call `https://` URLs. The configuration is asked for at each connect.
    pub fn with_tls(
        self,
        source: impl Fn() -> Result<Arc<ClientConfig>, String> + Send + Sync + 'static,
    ) -> Pool {
        Pool { tls: Some(Arc::new(source)), ..self }
    }

    /// The same pool, with a signature for the tenant's receivers on every request.
    pub fn signed(self, signer: Option<&Signer>, tenant: &str) -> Pool {
        Pool { signer: signer.map(|signer| (signer.clone(), tenant.to_owned())), ..self }
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn allowed(&self) -> &Allowed {
        &self.allowed
    }

    pub fn try_slot(&self) -> Option<Slot> {
        let permit = self.slots.clone().try_acquire_owned().ok()?;
        Some(Slot { _permit: Some(permit) })
    }

    /// Waits for a free slot.
    pub async fn slot(&self) -> Slot {
        // The semaphore is never closed.
        Slot { _permit: self.slots.clone().acquire_owned().await.ok() }
    }

    /// POST of a body to the pool's URL, signed now.
    pub fn request(&self, body: Bytes, content_type: &'static str) -> Request<Full<Bytes>> {
        let signature = self.signer.as_ref().map(|(signer, tenant)| signer.sign_now(tenant, &body));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from(self.target.path().clone());
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.target.authority().clone());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(signature) = signature.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(signature::HEADER, signature);
        }
        request
    }

    /// Sends a request on a kept connection or a new one. The caller holds a slot.
    pub async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Call<'_>, CallError> {
        // An idle connection may have been closed: a request that was not sent is sent on the next one.
        while let Some(mut kept) = self.take_idle() {
            if kept.ready().await.is_err() {
                continue;
            }
            match kept.try_send_request(request).await {
                Ok(response) => return Ok(Call { pool: self, sender: kept, response }),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let mut sender = self.connect().await?;
        let response = sender.send_request(request).await?;
        Ok(Call { pool: self, sender, response })
    }

    fn take_idle(&self) -> Option<Sender> {
        self.idle.lock().pop()
    }

    async fn connect(&self) -> Result<Sender, CallError> {
        // Resolved and checked at each connect: DNS may have changed since the URL was registered.
        let addresses = self.target.resolve(&self.allowed).await?;
        let stream = TcpStream::connect(addresses.as_slice()).await.map_err(CallError::Connect)?;
        let _ = stream.set_nodelay(true);
        if !self.target.is_https() {
            return handshake(stream).await;
        }
        let host = self.target.host();
        let source =
            self.tls.as_ref().ok_or_else(|| CallError::NoTls("https is not supported here".to_owned()))?;
        let config = source().map_err(CallError::NoTls)?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| CallError::NoTls(format!("{host} is not a valid host name for TLS")))?;
        match TlsConnector::from(config).connect(name, stream).await {
            Ok(stream) => handshake(stream).await,
            Err(source) => Err(CallError::Tls { host: host.to_owned(), source }),
        }
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Sender, CallError> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends when the other side closes the connection, or the sender is dropped.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "an outgoing connection failed");
        }
    });
    Ok(sender)
}

/// Call whose response has begun. Dropping it closes the connection.
pub struct Call<'a> {
    pool: &'a Pool,
    sender: Sender,
    response: Response<Incoming>,
}

impl Call<'_> {
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub fn header(&self, name: &str) -> Option<&HeaderValue> {
        self.response.headers().get(name)
    }

    pub fn body(&mut self) -> &mut Incoming {
        self.response.body_mut()
    }

    /// Keeps the connection for the next call, after the body was read to its end.
    pub fn keep(self) {
        self.pool.idle.lock().push(self.sender);
    }

    /// Body of the response, if it has no more than `bytes_max`.
    pub async fn bytes(mut self, bytes_max: usize) -> Option<Bytes> {
        let body = Limited::new(self.body(), bytes_max).collect().await.ok()?;
        self.keep();
        Some(body.to_bytes())
    }
}

#[cfg(test)]
mod tests;
