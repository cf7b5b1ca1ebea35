//! HTTP/1.1 connection pool of one worker, and the request that sends a job.

use crate::outgoing::Allowed;
use crate::signature::{self, Signer};
use ::http::uri::{PathAndQuery, Scheme};
use ::http::{HeaderValue, Method, Request, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use windlass_core::Tenant;

/// Most connections to one worker. It answers as soon as it has accepted a job, so a few carry many jobs.
const CONNECTIONS_MAX: usize = 64;
/// Most bytes read of an answer: enough for an error message.
const ANSWER_BYTES_MAX: usize = 16 * 1_024;

/// Address of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    host: String,
    port: u16,
    authority: HeaderValue,
    path: PathAndQuery,
}

impl Target {
    /// Parses `http://host:port` with an optional path; the server calls `/worker-job` below it.
    pub(super) fn parse(url: &str) -> Result<Target, String> {
        let uri: Uri = url.parse().map_err(|_| format!("`url` is no address: {url:?}"))?;
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err("`url` must begin with http://".to_owned());
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or("`url` has no host")?;
        let authority = uri.authority().ok_or("`url` has no host")?;
        if authority.as_str().contains('@') {
            return Err("`url` must not hold a user or a password".to_owned());
        }
        if uri.query().is_some() {
            return Err("`url` must not have a query".to_owned());
        }
        let path = format!("{}/worker-job", uri.path().trim_end_matches('/'));
        Ok(Target {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: uri.port_u16().unwrap_or(80),
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| "`url` has an odd host")?,
            path: path.parse().map_err(|_| "`url` has an odd path")?,
        })
    }

    fn shown(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Resolves the host now, and keeps the addresses that may be called.
    async fn addresses(&self, allowed: &Allowed) -> Result<Vec<SocketAddr>, String> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let found: Vec<SocketAddr> = found.map_err(|e| format!("looking up {}: {e}", self.host))?.collect();
        let usable = allowed.of(found.iter().copied());
        match usable.is_empty() {
            true => Err(format!(
                "{} is not among the addresses this server may call ({allowed}); list it in jq.worker_addresses",
                self.host
            )),
            false => Ok(usable),
        }
    }

    /// Refuses a target that can never be called. A name that does not resolve now may resolve later.
    pub(super) async fn check(&self, allowed: &Allowed) -> Result<(), String> {
        match tokio::net::lookup_host((self.host.as_str(), self.port)).await {
            Ok(_) => self.addresses(allowed).await.map(drop),
            Err(_) => Ok(()),
        }
    }
}

/// Answer of a worker to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub status: u16,
    pub body: Bytes,
}

type Sender = SendRequest<Full<Bytes>>;

pub(super) struct WorkerConnection {
    /// Header with the worker's id: another worker may listen at the address by now.
    worker: Option<HeaderValue>,
    target: Target,
    allowed: Arc<Allowed>,
    /// Signs the requests for this tenant.
    signer: Option<(Signer, Tenant)>,
    idle: Mutex<Vec<Sender>>,
    connections: Semaphore,
}

impl WorkerConnection {
    pub(super) fn new(worker: &str, target: Target, allowed: Arc<Allowed>) -> WorkerConnection {
        let connections = Semaphore::new(CONNECTIONS_MAX);
        // A name from the configuration that is not a valid header value is left out.
        let worker = HeaderValue::from_str(worker).ok();
        WorkerConnection { worker, target, allowed, signer: None, idle: Mutex::default(), connections }
    }

    /// Signs requests to the tenant's worker, if a signer is given.
    pub(super) fn signed(self, signer: Option<&Signer>, tenant: &Tenant) -> WorkerConnection {
        WorkerConnection { signer: signer.map(|signer| (signer.clone(), tenant.clone())), ..self }
    }

    /// Host and port, for display.
    pub(super) fn address(&self) -> String {
        self.target.shown()
    }

    /// Calls the worker. After an error the job may have arrived all the same.
    pub(super) async fn post(&self, body: Bytes) -> Result<Answer, String> {
        let _one = self.connections.acquire().await.map_err(|e| e.to_string())?;
        let mut request = self.request(body);
        // The worker may have closed a pooled connection meanwhile: a request not sent on it goes to the
        // next.
        while let Some(mut kept) = self.take_idle() {
            if kept.ready().await.is_err() {
                continue;
            }
            match kept.try_send_request(request).await {
                Ok(response) => return self.answer(kept, response).await,
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().to_string()),
                },
            }
        }
        let mut fresh = self.connect().await?;
        let response = fresh.send_request(request).await.map_err(|e| e.to_string())?;
        self.answer(fresh, response).await
    }

    async fn answer(&self, sender: Sender, response: ::http::Response<Incoming>) -> Result<Answer, String> {
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        // A connection with an unread rest of an answer is not reused.
        let body = match body {
            Ok(body) => {
                self.idle().push(sender);
                body.to_bytes()
            }
            Err(_) => Bytes::new(),
        };
        Ok(Answer { status, body })
    }

    fn request(&self, body: Bytes) -> Request<Full<Bytes>> {
        let signature = self.signer.as_ref().map(|(signer, tenant)| signer.sign_now(tenant, &body));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from(self.target.path.clone());
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.target.authority.clone());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/msgpack"));
        if let Some(worker) = &self.worker {
            headers.insert("worker-id", worker.clone());
        }
        if let Some(signature) = signature.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(signature::HEADER, signature);
        }
        request
    }

    async fn connect(&self) -> Result<Sender, String> {
        let addresses = self.target.addresses(&self.allowed).await?;
        let stream =
            TcpStream::connect(addresses.as_slice()).await.map_err(|e| format!("connecting: {e}"))?;
        let _ = stream.set_nodelay(true);
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| format!("connecting: {e}"))?;
        // Ends when the worker closes the connection or the sender is dropped.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to a worker ended");
            }
        });
        Ok(sender)
    }

    fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.idle();
        while let Some(sender) = idle.pop() {
            if !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Sender>> {
        self.idle.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_plain_http_with_a_host() {
        let target = Target::parse("http://localhost:6401/base/").unwrap();
        assert_eq!((target.host.as_str(), target.port), ("localhost", 6401));
        assert_eq!(target.path.as_str(), "/base/worker-job");
        assert_eq!(Target::parse("http://[::1]:9").unwrap().host, "::1");
        assert_eq!(Target::parse("http://a.example").unwrap().port, 80);
        for bad in
            ["", "localhost:6401", "https://a.example", "http://", "ftp://a", "http://u:p@a", "http://a/?q"]
        {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }
}
