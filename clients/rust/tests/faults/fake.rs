//! Server that answers by a script: refusals, lost answers, calls that hang.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// Request that the server received.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) path: String,
    pub(super) body: Value,
}

pub(super) enum Reply {
    Json(u16, Value),
    /// Closes the connection without an answer.
    Lost,
    /// Answers after this time; the answer is noted as a request to `answered`.
    Late(std::time::Duration, Value),
    /// Never answers.
    Hang,
}

type Script = dyn Fn(usize, &Seen) -> Reply + Send + Sync;

pub(super) struct Fake {
    pub(super) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    news: Arc<Notify>,
}

impl Fake {
    /// Starts a server. The script gets the number of earlier requests to the same path, and the request.
    pub(super) async fn start(script: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, news) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let fake = Fake { url, seen: Arc::clone(&seen), news: Arc::clone(&news) };
        let script: Arc<Script> = Arc::new(script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, news, script) = (Arc::clone(&seen), Arc::clone(&news), Arc::clone(&script));
                let service = service_fn(move |request| {
                    answer(request, Arc::clone(&seen), Arc::clone(&news), Arc::clone(&script))
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        fake
    }

    /// Requests to this path so far.
    pub(super) fn seen(&self, path: &str) -> Vec<Value> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.path == path).map(|seen| seen.body.clone()).collect()
    }

    /// Paths of all requests, in order.
    pub(super) fn paths(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|seen| seen.path.clone()).collect()
    }

    /// Waits until the condition holds after a request.
    pub(super) async fn until(&self, what: &str, is_there: impl Fn(&Fake) -> bool) {
        let waiting = async {
            loop {
                let news = self.news.notified();
                if is_there(self) {
                    return;
                }
                news.await;
            }
        };
        let waited = tokio::time::timeout(std::time::Duration::from_secs(30), waiting).await;
        waited.unwrap_or_else(|_| panic!("{what}: {:?}", self.seen.lock().unwrap()));
    }
}

async fn answer(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<Seen>>>,
    news: Arc<Notify>,
    script: Arc<Script>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let now = Seen { path, body: serde_json::from_slice(&body).unwrap_or_default() };
    let earlier = {
        let mut seen = seen.lock().unwrap();
        let earlier = seen.iter().filter(|seen| seen.path == now.path).count();
        seen.push(now.clone());
        earlier
    };
    let reply = script(earlier, &now);
    news.notify_waiters();
    match reply {
        Reply::Json(status, value) => {
            let mut response = Response::new(Full::new(Bytes::from(value.to_string())));
            *response.status_mut() = status.try_into().unwrap();
            Ok(response)
        }
        Reply::Late(time, value) => {
            tokio::time::sleep(time).await;
            seen.lock().unwrap().push(Seen { path: "answered".to_owned(), body: Value::Null });
            Ok(Response::new(Full::new(Bytes::from(value.to_string()))))
        }
        Reply::Lost => Err(std::io::Error::other("lost")),
        Reply::Hang => std::future::pending().await,
    }
}
