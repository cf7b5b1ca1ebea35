//! Client of the native API for the command line. It uses only the public `/api/v1`.

mod bedrock;
mod http;
pub(crate) mod tls;

pub(crate) use bedrock::BedrockClient;
pub(crate) use http::escaped;

use crate::fault::Fault;
use clap::Args;
use http::{Address, Answer, Connection, Request};
use parking_lot::Mutex;
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Time limit of a call beyond the requested waiting time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time limit for transfers of blobs, which may be large.
const BYTES_PATIENCE: Duration = Duration::from_secs(300);

/// Server address and credentials, shared by all client commands and accepted anywhere on the line.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerArgs {
    /// URL of the server
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "WINDLASS_SERVER",
        default_value = "http://127.0.0.1:7373"
    )]
    pub server: String,
    /// Access token, if the server requires one
    #[arg(long, global = true, value_name = "TOKEN", env = "WINDLASS_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// PEM file of trusted CA certificates for https://, instead of the system's
    #[arg(long, global = true, value_name = "FILE", env = "WINDLASS_CA")]
    pub ca: Option<PathBuf>,
    /// PEM file with the client certificate and private key, if the server requires them
    #[arg(long, global = true, value_name = "FILE", env = "WINDLASS_CLIENT_CERT")]
    pub client_cert: Option<PathBuf>,
}

impl ServerArgs {
    pub(crate) fn client(&self) -> Result<Client, Fault> {
        let client = Client::new(&self.server, self.token.as_deref(), self.ca.as_deref())?;
        match &self.client_cert {
            Some(identity) if client.tls.is_some() => {
                let tls = tls::config_presenting(self.ca.as_deref(), "--ca", identity);
                Ok(Client { tls: Some(tls.map_err(Fault::Failed)?), ..client })
            }
            _ => Ok(client),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("no server at {server}; start one with `windlass serve`, or give another URL with --server")]
    NoServer { server: String },
    #[error("connection to {server} failed: {source}")]
    Connection { server: String, source: std::io::Error },
    /// Cause of a failed TLS connection, which says what to do.
    #[error("cannot connect to {server}: {message}")]
    Tls {
        server: String,
        message: String,
        /// The certificate may be sound, and its name or its authority is unknown here.
        is_distrust: bool,
    },
    #[error("the response of {server} is not from the Windlass API ({detail}); check the address")]
    NotWindlass { server: String, detail: String },
    /// Error message of the server, which says what to do.
    #[error("{message}{}", if *.status == 401 { " (set a token with --token or WINDLASS_TOKEN)" } else { "" })]
    Refused { status: u16, code: String, message: String },
    #[error("interrupted")]
    Interrupted,
}

impl ClientError {
    /// True if a retry may succeed: no answer, or a temporary refusal of the server.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            ClientError::NoServer { .. } | ClientError::Connection { .. } => true,
            ClientError::Refused { status, .. } => *status >= 500 || *status == 429,
            ClientError::Tls { .. } | ClientError::NotWindlass { .. } | ClientError::Interrupted => false,
        }
    }
}

impl From<ClientError> for Fault {
    fn from(error: ClientError) -> Fault {
        Fault::Failed(error.to_string())
    }
}

/// Handle that aborts a client's blocking call from another thread; the client then refuses further calls.
#[derive(Clone, Default)]
pub(crate) struct Interrupter {
    inner: Arc<Mutex<Cut>>,
}

#[derive(Default)]
struct Cut {
    done: bool,
    stream: Option<TcpStream>,
}

impl Interrupter {
    pub(crate) fn cut(&self) {
        let mut cut = self.inner.lock();
        cut.done = true;
        if let Some(stream) = cut.stream.take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn is_cut(&self) -> bool {
        self.inner.lock().done
    }

    /// Registers the stream of a call. If the interrupt came before, the stream is shut down at once.
    fn watch(&self, stream: Option<TcpStream>) {
        let mut cut = self.inner.lock();
        match stream {
            Some(stream) if cut.done => drop(stream.shutdown(Shutdown::Both)),
            stream => cut.stream = stream,
        }
    }
}

pub(crate) struct Client {
    address: Address,
    /// TLS configuration, for https only.
    tls: Option<Arc<ClientConfig>>,
    token: Option<String>,
    connection: Option<Connection>,
    interrupter: Interrupter,
}

impl Client {
    pub(crate) fn new(server: &str, token: Option<&str>, ca: Option<&Path>) -> Result<Client, Fault> {
        let address = Address::parse(server).map_err(Fault::Usage)?;
        if token.is_some_and(|token| token.is_empty() || token.contains(|c: char| c.is_control() || c == ' '))
        {
            return Err(Fault::usage("the token contains invalid characters"));
        }
        let tls = address.is_https.then(|| tls::config(ca, "--ca")).transpose().map_err(Fault::Failed)?;
        let token = token.map(str::to_string);
        Ok(Client { address, tls, token, connection: None, interrupter: Interrupter::default() })
    }

    /// Second client of the same server, with its own connection.
    pub(crate) fn another(&self) -> Client {
        let (address, tls, token) = (self.address.clone(), self.tls.clone(), self.token.clone());
        Client { address, tls, token, connection: None, interrupter: Interrupter::default() }
    }

    pub(crate) fn server(&self) -> String {
        self.address.to_string()
    }

    /// True if the server is addressed as a program on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        self.address.is_loopback()
    }

    pub(crate) fn is_https(&self) -> bool {
        self.address.is_https
    }

    pub(crate) fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<Value, ClientError> {
        self.call("GET", path, None, 0)?.value()
    }

    pub(crate) fn post(&mut self, path: &str, body: &impl Serialize) -> Result<Value, ClientError> {
        let body = serde_json::to_string(body).unwrap_or_default();
        self.call("POST", path, Some(&body), 0)?.value()
    }

    /// Uploads a blob. Returns whether it is new, and the body of the response.
    pub(crate) fn put_bytes(&mut self, path: &str, bytes: &[u8]) -> Result<(bool, String), ClientError> {
        let answer = self.bytes_call("PUT", path, Some(bytes))?;
        Ok((answer.status == 201, String::from_utf8_lossy(&answer.body).into_owned()))
    }

    pub(crate) fn get_bytes(&mut self, path: &str) -> Result<Vec<u8>, ClientError> {
        Ok(self.bytes_call("GET", path, None)?.body)
    }

    /// Sends a call whose errors are a line of text instead of JSON.
    fn bytes_call(&mut self, method: &str, path: &str, body: Option<&[u8]>) -> Result<Answer, ClientError> {
        let answer = self.exchange(method, path, body, BYTES_PATIENCE)?;
        if (200..300).contains(&answer.status) {
            return Ok(answer);
        }
        let message = String::from_utf8_lossy(&answer.body).into_owned();
        Err(ClientError::Refused { status: answer.status, code: String::new(), message })
    }

    /// Sends a call; `wait_ms` is the waiting time requested of the server. Statuses other than 2xx are
    /// errors.
    pub(crate) fn call(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&str>,
        wait_ms: u64,
    ) -> Result<Accepted, ClientError> {
        let patience = PATIENCE + Duration::from_millis(wait_ms);
        let answer = self.exchange(method, path, body.map(str::as_bytes), patience)?;
        self.accepted(answer)
    }

    /// Sends a call with a raw body and returns any response, for protocols other than the native API.
    #[cfg(feature = "wasi")]
    pub(crate) fn raw(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<(u16, Vec<u8>), ClientError> {
        let Answer { status, body, .. } = self.exchange(method, path, body, PATIENCE)?;
        Ok((status, body))
    }

    /// Reads a page of text, whatever its status.
    pub(crate) fn page(&mut self, path: &str) -> Result<Page, ClientError> {
        let Answer { status, body, date } = self.exchange("GET", path, None, PATIENCE)?;
        Ok(Page { status, text: String::from_utf8_lossy(&body).into_owned(), date })
    }

    fn exchange(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
        patience: Duration,
    ) -> Result<Answer, ClientError> {
        if self.interrupter.is_cut() {
            return Err(ClientError::Interrupted);
        }
        let kept = self.connection.take().filter(Connection::is_usable);
        let mut connection = match kept {
            Some(connection) => connection,
            None => {
                Connection::open(&self.address, self.tls.as_ref()).map_err(|error| self.no_server(error))?
            }
        };
        self.interrupter.watch(connection.handle().ok());
        let token = self.token.as_deref();
        let request = Request { method, path, token, body, patience };
        let answer = connection.exchange(&self.address, &request);
        self.interrupter.watch(None);
        match answer {
            Ok(answer) => {
                self.connection = Some(connection);
                Ok(answer)
            }
            Err(_) if self.interrupter.is_cut() => Err(ClientError::Interrupted),
            Err(error) => Err(self.no_server(error)),
        }
    }

    fn no_server(&self, error: std::io::Error) -> ClientError {
        if let Some(message) = tls::explain(&error) {
            let is_distrust = tls::is_distrust(&error);
            return ClientError::Tls { server: self.server(), message, is_distrust };
        }
        match error.kind() {
            std::io::ErrorKind::ConnectionRefused => ClientError::NoServer { server: self.server() },
            _ => ClientError::Connection { server: self.server(), source: error },
        }
    }

    fn accepted(&self, answer: Answer) -> Result<Accepted, ClientError> {
        let Answer { status, body, .. } = answer;
        let server = self.server();
        if (200..300).contains(&status) {
            let text = String::from_utf8(body);
            let not_text =
                |_| ClientError::NotWindlass { server: server.clone(), detail: "not text".to_string() };
            return Ok(Accepted { status, text: text.map_err(not_text)?, server });
        }
        match serde_json::from_slice::<Value>(&body) {
            Ok(value) if value["error"].is_object() => {
                let word = |key: &str| value["error"][key].as_str().unwrap_or_default().to_string();
                Err(ClientError::Refused { status, code: word("code"), message: word("message") })
            }
            _ => Err(ClientError::NotWindlass { server, detail: format!("HTTP {status}") }),
        }
    }
}

/// Response of any status, as text.
pub(crate) struct Page {
    pub status: u16,
    pub text: String,
    /// Header `Date`, as sent.
    pub date: Option<String>,
}

/// Unparsed 2xx response, from which raw JSON can be read unchanged.
pub(crate) struct Accepted {
    pub status: u16,
    pub text: String,
    server: String,
}

impl Accepted {
    pub(crate) fn value(&self) -> Result<Value, ClientError> {
        if self.text.is_empty() { Ok(Value::Null) } else { self.read() }
    }

    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_str(&self.text).map_err(|error| ClientError::NotWindlass {
            server: self.server.clone(),
            detail: error.to_string(),
        })
    }
}
