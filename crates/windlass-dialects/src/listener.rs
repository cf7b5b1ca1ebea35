//! HTTP connections with limits: their number, the time for a header, the idle time, the time a response may
//! stay unread.

use crate::answer::{JSON, answer};
use crate::dialect::{Connection, Stream};
use crate::tls::Tls;
use ::http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use ::http::{HeaderMap, HeaderValue, StatusCode};
use axum::Router;
use axum::response::Response;
use bytes::Bytes;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};
use tower_service::Service;

mod accept;
mod head;
mod unread;

pub(crate) use accept::Port;
use head::Head;

/// Limits of one client, and of all together.
#[derive(Clone, Debug)]
pub struct ListenerLimits {
    /// Open connections. Each costs a file descriptor and some kilobytes; further ones get 503.
    pub connections_max: usize,
    /// Of these, from one address, until they have made an authorized call.
    pub connections_per_address: usize,
    /// From the start of a connection to the end of its first request's header.
    pub first_timeout: Duration,
    /// From the first byte of a later request to the end of its header.
    pub header_timeout: Duration,
    /// Between requests. Longer than common client pools keep a connection, so that the client closes it
    /// first.
    pub idle_timeout: Duration,
    /// Time without progress in sending a response.
    pub write_timeout: Duration,
    pub tls_handshake_timeout: Duration,
    /// Bytes of a request's header: enough for a token and a long query.
    pub header_bytes_max: usize,
    /// Bytes of a request's body: ten thousand jobs of six kilobytes.
    pub body_bytes_max: usize,
    /// Time after which a shutdown cuts open connections.
    pub grace: Duration,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        ListenerLimits {
            connections_max: 10_000,
            connections_per_address: 1_000,
            first_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(60),
            tls_handshake_timeout: Duration::from_secs(10),
            header_bytes_max: 64 * 1024,
            body_bytes_max: 64 << 20,
            grace: Duration::from_secs(20),
        }
    }
}

/// Address of the client; an extension of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Phase of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Serving,
    /// No new connections; accepted requests are answered.
    Draining,
}

/// Serves HTTP on a port with `app`.
pub(crate) async fn serve_http(
    name: &'static str,
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    app: Router,
    limits: ListenerLimits,
    phase: watch::Sender<Phase>,
) {
    let (too_many, not_tls) = (too_many_connections(), tls_required());
    let port = Port { name, listener, tls, limits: limits.clone(), too_many, not_tls };
    let limits = Arc::new(limits);
    let converse = move |stream, peer, connection| {
        let (app, limits) = (app.clone(), Arc::clone(&limits));
        async move {
            match stream {
                Stream::Plain(stream) => serve_connection(stream, Peer(peer), connection, app, &limits).await,
                Stream::Tls(stream) => serve_connection(stream, Peer(peer), connection, app, &limits).await,
            }
        }
    };
    port.serve(phase, converse).await;
}

fn too_many_connections() -> String {
    let body = r#"{"error":{"code":"too_many_connections","message":"too many connections; retry later"}}"#;
    last_response("503 Service Unavailable\r\nretry-after: 1", body)
}

/// Response to a request without TLS on a port with TLS.
fn tls_required() -> String {
    let body = r#"{"error":{"code":"tls_required","message":"this port speaks TLS; use https:// instead of http:// in the URL"}}"#;
    last_response("400 Bad Request", body)
}

/// Response before the connection is closed.
fn last_response(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn serve_connection<S>(
    stream: S,
    peer: Peer,
    connection: Connection,
    app: Router,
    limits: &ListenerLimits,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Connection { arrival, mut phase } = connection;
    let requests = Arc::new(RequestCounter::default());
    let paced = Paced::new(stream, Arc::clone(&requests), limits);
    let service = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(Arc::clone(&arrival));
        requests.begin();
        let (parts, body) = request.into_parts();
        let is_ambiguous = is_ambiguous(&parts.headers);
        let (body, rest) = unread::lend(body, parts.headers.contains_key(EXPECT));
        let (mut app, requests) = (app.clone(), Arc::clone(&requests));
        async move {
            if is_ambiguous {
                return Ok(refuse_ambiguous());
            }
            let mut answer = app.call(hyper::Request::from_parts(parts, body)).await;
            if let Ok(answer) = &mut answer
                && !rest.read_out().await
            {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            requests.end();
            answer
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout)
        .max_header_size(limits.header_bytes_max)
        .serve_connection(TokioIo::new(paced), service);
    let mut connection = pin!(connection);
    let mut is_draining = false;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection failed");
                }
                return;
            }
            _ = phase.wait_for(|phase| *phase >= Phase::Draining), if !is_draining => {
                is_draining = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// True for a header that a proxy could parse differently (request smuggling). [`Head`] finds the cases that
/// the parser hides.
fn is_ambiguous(headers: &HeaderMap) -> bool {
    headers.get_all(HOST).iter().nth(1).is_some()
        || (headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH))
}

fn refuse_ambiguous() -> Response {
    let message = r#"{"error":{"code":"ambiguous_request","message":"send one Host header, and either Content-Length or Transfer-Encoding"}}"#;
    let mut answer = answer(StatusCode::BAD_REQUEST, JSON, message);
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// Counter of begun and ended requests on a connection: odd while a request is being answered.
#[derive(Default)]
struct RequestCounter(AtomicU64);

impl RequestCounter {
    fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Stream that fails when its client is too slow.
struct Paced<S> {
    stream: S,
    /// While a request is being answered the client may be silent.
    requests: Arc<RequestCounter>,
    /// Value of `requests` that `head` belongs to.
    count: u64,
    head: Head,
    header_timeout: Duration,
    write_timeout: Duration,
    /// Runs until the header is complete: from the start of the connection, later from the first byte of a
    /// request.
    header: Option<Pin<Box<Sleep>>>,
    /// Runs while the client reads nothing of the response.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    fn new(stream: S, requests: Arc<RequestCounter>, limits: &ListenerLimits) -> Paced<S> {
        let (header_timeout, write_timeout) = (limits.header_timeout, limits.write_timeout);
        let header = Some(sleep(limits.first_timeout.min(limits.idle_timeout)));
        let head = Head::first();
        Paced { stream, requests, count: 0, head, header_timeout, write_timeout, header, stalled: None }
    }

    fn written<T>(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stalled = None;
            return wrote;
        }
        let timeout = self.write_timeout;
        let stalled = self.stalled.get_or_insert_with(|| sleep(timeout));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "timed out: the client does not read the response",
        )))
    }
}

fn sleep(time: Duration) -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep_until(Instant::now() + time))
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let count = self.requests.0.load(Ordering::Relaxed);
        if count % 2 == 1 {
            self.header = None;
            return read;
        }
        if count != self.count {
            // No deadline between two requests.
            (self.count, self.head, self.header) = (count, Head::default(), None);
        }
        let timeout = self.header_timeout;
        match read {
            Poll::Ready(Ok(())) => {
                let bytes = &mut buf.filled_mut()[before..];
                if !self.head.look(bytes) {
                    // Zeros are not a request: the parser answers 400 and closes.
                    bytes.fill(0);
                }
                // The first header has a deadline of its own, and no more time than any other from its first
                // byte on.
                let header = self.header.get_or_insert_with(|| sleep(timeout));
                if header.deadline() > Instant::now() + timeout {
                    *header = sleep(timeout);
                }
                read
            }
            Poll::Ready(Err(_)) => read,
            Poll::Pending => match self.header.as_mut() {
                Some(header) => {
                    ready!(header.as_mut().poll(cx));
                    Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "timed out: the request header is incomplete",
                    )))
                }
                None => Poll::Pending,
            },
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Response body with a callback for the moment its bytes are taken.
pub(crate) struct TakenBody<T, F: FnOnce(T)> {
    data: Bytes,
    /// `None` once the bytes are taken.
    held: Option<(T, F)>,
}

impl<T, F: FnOnce(T)> TakenBody<T, F> {
    /// `held` is passed to `taken` when the bytes are taken, and dropped otherwise.
    pub(crate) fn new(data: Bytes, held: T, taken: F) -> TakenBody<T, F> {
        TakenBody { data, held: Some((held, taken)) }
    }
}

impl<T: Unpin, F: FnOnce(T) + Unpin> http_body::Body for TakenBody<T, F> {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        let Some((held, taken)) = self.held.take() else { return Poll::Ready(None) };
        taken(held);
        Poll::Ready(Some(Ok(http_body::Frame::data(std::mem::take(&mut self.data)))))
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.data.len() as u64)
    }
}

#[cfg(test)]
mod tests;
