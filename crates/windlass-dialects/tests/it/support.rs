//! Server on a free port, and a minimal HTTP client.

use crate::stores::Chosen;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use windlass_core::{Tenant, Timestamp};
use windlass_dialects::auth::{Role, TokenRecord, Tokens, generate_token};
use windlass_dialects::{OwnPort, Ports, ServerOptions, Started, serve};
use windlass_engine::{Clock, Engine, ManualClock, Options, SeededRandom, SystemClock};
use windlass_store::Store;

/// Timeout, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Serves one dialect on a port of its own, and nothing else.
pub async fn serve_port(
    dialect: &'static str,
    listener: TcpListener,
    engine: Engine,
    options: ServerOptions,
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let ports = Ports { http: None, own: vec![OwnPort { dialect, listener, is_local: false }] };
    Started::new(engine, options, ports).await.map_err(std::io::Error::other)?.serve(shutdown).await;
    Ok(())
}

pub struct TestServer {
    pub addr: SocketAddr,
    pub engine: Engine,
    stop: Option<oneshot::Sender<()>>,
    pub serving: JoinHandle<std::io::Result<()>>,
    /// Folder of its store, if it has one.
    _folder: Option<TempDir>,
}

impl TestServer {
    pub async fn open() -> TestServer {
        TestServer::start(ServerOptions::default()).await
    }

    pub async fn start(options: ServerOptions) -> TestServer {
        TestServer::start_at(options, Arc::new(SystemClock)).await
    }

    pub async fn manual() -> (TestServer, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000)));
        (TestServer::start_at(ServerOptions::default(), clock.clone()).await, clock)
    }

    pub async fn start_at(options: ServerOptions, clock: Arc<dyn Clock>) -> TestServer {
        TestServer::start_with(options, clock, Options::default()).await
    }

    pub async fn start_with(options: ServerOptions, clock: Arc<dyn Clock>, bounds: Options) -> TestServer {
        let random = Arc::new(SeededRandom::new(1));
        let Chosen { store, folder } = Chosen::new().await;
        let engine = Engine::start(store, clock, random, bounds).await.unwrap();
        TestServer { _folder: folder, ..TestServer::of(engine, options).await }
    }

    pub async fn start_on(
        store: Arc<dyn Store>,
        options: ServerOptions,
        clock: Arc<dyn Clock>,
    ) -> TestServer {
        let random = Arc::new(SeededRandom::new(1));
        TestServer::of(Engine::start(store, clock, random, Options::default()).await.unwrap(), options).await
    }

    async fn of(engine: Engine, options: ServerOptions) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(serve(listener, engine.clone(), options, async {
            let _ = stopped.await;
        }));
        TestServer { addr, engine, stop: Some(stop), serving, _folder: None }
    }

    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub async fn connect(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(self.addr).await.unwrap())
    }

    /// Sends a call on a new connection, with JSON if there is a body.
    pub async fn call(&self, method: &str, path: &str, body: &str) -> Reply {
        self.call_as(None, method, path, body).await
    }

    pub async fn call_as(&self, token: Option<&str>, method: &str, path: &str, body: &str) -> Reply {
        let mut headers = vec![];
        let bearer = token.map(|token| format!("Bearer {token}"));
        if let Some(bearer) = &bearer {
            headers.push(("authorization", bearer.as_str()));
        }
        if !body.is_empty() {
            headers.push(("content-type", "application/json"));
        }
        self.connect().await.call(method, path, &headers, body.as_bytes()).await
    }

    pub async fn post(&self, path: &str, body: &str) -> Reply {
        self.call("POST", path, body).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, "").await
    }

    /// Pushes and claims one job: its id and lease token.
    pub async fn claimed(&self, push: &str) -> (u64, u64) {
        assert_eq!(self.post("/api/v1/jobs", push).await.status, 201);
        let job = self.post("/api/v1/claim", "{}").await.json()["jobs"][0].clone();
        (job["id"].as_u64().unwrap(), job["token"].as_u64().unwrap())
    }
}

/// Token table with one token per role for each tenant, and the secrets.
pub struct Keys {
    pub tokens: Arc<Tokens>,
    secrets: Vec<(String, Role, String)>,
}

impl Keys {
    pub fn for_tenants(tenants: &[&str]) -> Keys {
        let mut secrets = vec![];
        let mut records = vec![];
        for tenant in tenants {
            for role in Role::ALL {
                let token = generate_token().unwrap();
                records.push(TokenRecord::of(&token, Tenant::new(tenant).unwrap(), role, None).unwrap());
                secrets.push(((*tenant).to_owned(), role, token));
            }
        }
        Keys { tokens: Arc::new(Tokens::new(records).unwrap()), secrets }
    }

    pub fn of(&self, tenant: &str, role: Role) -> &str {
        let (.., token) = self.secrets.iter().find(|(t, r, _)| t == tenant && *r == role).unwrap();
        token
    }

    pub fn options(&self) -> ServerOptions {
        ServerOptions { tokens: Arc::clone(&self.tokens), ..ServerOptions::default() }
    }
}

pub struct Client<S> {
    pub stream: S,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub fn new(stream: S) -> Client<S> {
        Client { stream, buffer: Vec::new() }
    }

    pub async fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(key, _)| *key == "host") {
            head.push_str("host: localhost\r\n");
        }
        for (key, value) in headers {
            head.push_str(&format!("{key}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.stream.write_all(&bytes).await.unwrap();
    }

    pub async fn call(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.send(method, path, headers, body).await;
        self.reply(method).await.expect("an answer")
    }

    /// `None`: the connection was closed.
    pub async fn reply(&mut self, method: &str) -> Option<Reply> {
        let head = self.until(b"\r\n\r\n").await?;
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(key, value)| (key.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut reply = Reply { status, headers, body: vec![] };
        if let Some(length) = reply.header("content-length").filter(|_| method != "HEAD") {
            let length = length.parse().unwrap();
            while self.buffer.len() < length {
                self.more().await?;
            }
            reply.body = self.buffer.drain(..length).collect();
        }
        Some(reply)
    }

    /// Bytes up to and including `mark`.
    pub async fn until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(mark.len()).position(|window| window == mark) {
                return Some(self.buffer.drain(..at + mark.len()).collect());
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Option<()> {
        let mut chunk = vec![0; 16 * 1024];
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut chunk)).await;
        match read.expect("something within two minutes") {
            Ok(0) | Err(_) => None,
            Ok(bytes) => {
                self.buffer.extend_from_slice(&chunk[..bytes]);
                Some(())
            }
        }
    }
}
