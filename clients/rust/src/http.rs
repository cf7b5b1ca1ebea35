//! HTTP/1.1 client with a connection pool and timeouts, shared by the native API and the dialects.

use ::http::uri::Scheme;
use ::http::{HeaderValue, Method, Request, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;

/// Most bytes read of a reply. Replies contain results; the server's own limit on bodies is lower.
const ANSWER_BYTES_MAX: usize = 256 * 1_024 * 1_024;
/// Most idle connections in the pool; more are needed only in bursts.
const IDLE_MAX: usize = 32;

type Sender = SendRequest<Full<Bytes>>;

pub(crate) struct Http {
    /// Address as given by the caller, for messages.
    url: String,
    host: String,
    port: u16,
    authority: HeaderValue,
    path: String,
    token: Option<HeaderValue>,
    idle: Mutex<Vec<Sender>>,
}

/// Parameters of one call.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    /// Path below the server's address, with its query.
    pub(crate) path: &'a str,
    /// Media type of the body and of the reply.
    pub(crate) media: &'static str,
    /// One more header, if the dialect needs it.
    pub(crate) header: Option<(&'static str, &'a str)>,
    pub(crate) body: Bytes,
    pub(crate) within: Duration,
}

/// Reply of the server.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

/// Failure of the transport.
#[derive(Debug)]
pub(crate) enum CallError {
    /// Invalid address, token or path.
    Setting(String),
    /// No reply. If the request may have been sent, it is unknown whether the call took effect.
    Unreachable { server: String, why: String, may_be_sent: bool },
}

/// Exchange that was broken off.
struct Broken {
    why: String,
    may_be_sent: bool,
}

impl Broken {
    fn sent(why: String) -> Broken {
        Broken { why, may_be_sent: true }
    }

    fn unsent(why: String) -> Broken {
        Broken { why, may_be_sent: false }
    }
}

impl CallError {
    #[cfg(test)]
    fn text(&self) -> &str {
        match self {
            CallError::Setting(text) => text,
            CallError::Unreachable { why, .. } => why,
        }
    }
}

impl Http {
    pub(crate) fn new(url: &str, token: Option<&str>) -> Result<Http, CallError> {
        let bad = |why: &str| CallError::Setting(format!("the server URL {url:?} {why}"));
        let uri: Uri = url.parse().map_err(|_| bad("is invalid"))?;
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err(bad("must start with http://; for TLS, use a proxy on this machine"));
        }
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| bad("has no host"))?;
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(bad("must not contain a user name or a query"));
        }
        let token = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
        let token = token
            .transpose()
            .map_err(|_| CallError::Setting("the token contains invalid characters".into()))?;
        Ok(Http {
            url: url.to_owned(),
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| bad("has an invalid host"))?,
            path: uri.path().trim_end_matches('/').to_owned(),
            token: token.map(|mut token| {
                token.set_sensitive(true);
                token
            }),
            idle: Mutex::default(),
        })
    }

    /// Makes a call. Returns the reply, whatever its status.
    pub(crate) async fn call(&self, ask: Ask<'_>) -> Result<Reply, CallError> {
        let request = self.request(&ask)?;
        let answering = tokio::time::timeout(ask.within, self.exchange(request));
        let (status, body) = answering
            .await
            .unwrap_or_else(|_| Err(Broken::sent(format!("no response within {} s", ask.within.as_secs()))))
            .map_err(|Broken { why, may_be_sent }| CallError::Unreachable {
                server: self.url.clone(),
                why,
                may_be_sent,
            })?;
        Ok(Reply { status, body })
    }

    /// Address as given by the caller.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    fn request(&self, ask: &Ask<'_>) -> Result<Request<Full<Bytes>>, CallError> {
        let uri: Uri = format!("{}{}", self.path, ask.path)
            .parse()
            .map_err(|_| CallError::Setting(format!("{:?} cannot be part of a URL", ask.path)))?;
        let mut request = Request::new(Full::new(ask.body.clone()));
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.authority.clone());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(ask.media));
        headers.insert(header::ACCEPT, HeaderValue::from_static(ask.media));
        if let Some(token) = &self.token {
            headers.insert(header::AUTHORIZATION, token.clone());
        }
        if let Some((name, value)) = ask.header
            && let Ok(value) = HeaderValue::from_str(value)
        {
            headers.insert(name, value);
        }
        Ok(request)
    }

    async fn exchange(&self, mut request: Request<Full<Bytes>>) -> Result<(u16, Bytes), Broken> {
        // A pooled connection may have been closed: an unsent request goes to the next connection.
        while let Some(mut kept) = self.take_idle() {
            if kept.ready().await.is_err() {
                continue;
            }
            match kept.try_send_request(request).await {
                Ok(response) => return self.answer(kept, response).await,
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(Broken::sent(error.into_error().to_string())),
                },
            }
        }
        let mut fresh = self.connect().await.map_err(Broken::unsent)?;
        let response = fresh.send_request(request).await.map_err(|e| Broken::sent(e.to_string()))?;
        self.answer(fresh, response).await
    }

    async fn answer(
        &self,
        sender: Sender,
        response: ::http::Response<hyper::body::Incoming>,
    ) -> Result<(u16, Bytes), Broken> {
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|e| Broken::sent(format!("cannot read the response: {e}")))?.to_bytes();
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(sender);
        }
        Ok((status, body))
    }

    async fn connect(&self) -> Result<Sender, String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(|e| format!("cannot connect: {e}"))?;
        let _ = stream.set_nodelay(true);
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| format!("cannot connect: {e}"))?;
        // Ends when the server closes the connection, or the sender is dropped.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the server failed");
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
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_plain_http_with_a_host() {
        let http = Http::new("http://jobs.example:81/base/jq/", None).unwrap();
        assert_eq!((http.host.as_str(), http.port, http.path.as_str()), ("jobs.example", 81, "/base/jq"));
        assert_eq!(Http::new("http://[::1]:9/jq", None).unwrap().host, "::1");
        assert_eq!(Http::new("http://a/jq", None).unwrap().port, 80);
        for bad in
            ["", "jobs:7373/jq", "https://jobs/jq", "http://", "http://u:p@jobs/jq", "http://jobs/jq?a=b"]
        {
            let error = Http::new(bad, None).err().expect(bad);
            assert!(error.text().contains(&format!("{bad:?}")), "{error:?}");
        }
        assert!(Http::new("http://a", Some("a\nb")).is_err());
    }

    #[tokio::test]
    async fn a_request_without_a_connection_is_unsent() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let http = Http::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        let call = async || {
            let ask = Ask {
                method: Method::GET,
                path: "/",
                media: "text/plain",
                header: None,
                body: Bytes::new(),
                within: Duration::from_secs(10),
            };
            match http.call(ask).await.err() {
                Some(CallError::Unreachable { may_be_sent, .. }) => may_be_sent,
                other => panic!("{other:?}"),
            }
        };
        let closing = async { drop(listener.accept().await) };
        assert!(tokio::join!(call(), closing).0, "closed without an answer");
        drop(listener);
        assert!(!call().await, "nothing listens");
    }
}
