//! Routes of a dialect, and the request passed to their handlers.

use crate::audit::Concerns;
use crate::auth::{BadTenant, Caller, Role};
use crate::budget::Busy;
use crate::codec::Encoding;
use crate::server::Server;
use crate::weight::Weight;
use ::http::request::Parts;
use ::http::{HeaderMap, StatusCode, header};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use parking_lot::Mutex;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use windlass_core::Tenant;
use windlass_core::trace::TraceContext;
use windlass_engine::quota::Share;
use windlass_engine::{Engine, EngineError};

mod arriving;

use arriving::Arriving;

pub type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Call of a dialect.
pub struct Route {
    /// `GET`, `POST`, …
    pub method: &'static str,
    /// Segments in braces are parameters: `/api/v1/jobs/{id}`.
    pub path: &'static str,
    pub access: Access,
    pub handle: fn(Call) -> Answering,
    /// A GET that changes state: foreign web pages must not be able to make a browser send it.
    pub changes_state: bool,
    /// Most bytes of the body; never more than `limits.body_bytes`.
    pub body_bytes_max: usize,
    pub doc: Doc,
}

/// Most bytes of a body with a few names and settings, as most calls have. Parsing one costs less than a
/// millisecond and a few megabytes of memory, whatever its contents.
pub const DOCUMENT_BYTES_MAX: usize = 128 << 10;

/// For bodies with payloads or batches: as much as `limits.body_bytes` allows.
pub const NO_OWN_BOUND: usize = usize::MAX;

impl Route {
    /// Marks a GET that changes state.
    pub const fn changing(self) -> Route {
        Route { changes_state: true, ..self }
    }

    /// Route whose parameters and responses are described elsewhere.
    pub const fn brief(
        (method, path, access): (&'static str, &'static str, Access),
        handle: fn(Call) -> Answering,
        summary: &'static str,
    ) -> Route {
        let doc = Doc::new(summary);
        Route { method, path, access, handle, changes_state: false, body_bytes_max: DOCUMENT_BYTES_MAX, doc }
    }

    /// Parameters that are not segments of the path.
    pub fn query_params(&self) -> impl Iterator<Item = &'static Param> {
        self.doc.params.iter().filter(|param| !param.is_in(self.path))
    }

    /// Adds parameters.
    pub const fn with_params(mut self, params: &'static [Param]) -> Route {
        self.doc.params = params;
        self
    }

    /// Adds a body of type `T`.
    pub const fn with_request<T: JsonSchema>(mut self, examples: Examples) -> Route {
        self.doc.body = Some(RequestBody { schema: SchemaOf::of::<T>(), may_be_left_out: false, examples });
        self
    }

    /// Adds an optional body of type `T`.
    pub const fn with_optional_request<T: JsonSchema>(mut self, examples: Examples) -> Route {
        self.doc.body = Some(RequestBody { schema: SchemaOf::of::<T>(), may_be_left_out: true, examples });
        self
    }

    /// Adds a response of type `T`.
    pub const fn with_response<T: JsonSchema>(self, status: u16) -> Route {
        self.answers_with(status, Content::Data(SchemaOf::of::<T>()))
    }

    pub const fn answers_with(mut self, status: u16, content: Content) -> Route {
        let mut free = 0;
        while self.doc.answers[free].is_some() {
            free += 1;
        }
        self.doc.answers[free] = Some((status, content));
        self
    }

    /// Sets the bound on the body.
    pub const fn with_body(self, bytes_max: usize) -> Route {
        Route { body_bytes_max: bytes_max, ..self }
    }
}

/// Access to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Any client that can reach the port: probes and the OpenAPI document.
    Public,
    /// Callers of this role or a higher one.
    From(Role),
}

/// Description of a call in the OpenAPI document.
pub struct Doc {
    pub summary: &'static str,
    /// Parameters of path and query. A call refuses others.
    pub params: &'static [Param],
    pub body: Option<RequestBody>,
    /// Status and content of the responses; the first is the usual one.
    pub answers: [Option<(u16, Content)>; ANSWERS_MAX],
}

/// Most responses described per call.
const ANSWERS_MAX: usize = 4;

impl Doc {
    const fn new(summary: &'static str) -> Doc {
        Doc { summary, params: &[], body: None, answers: [None; ANSWERS_MAX] }
    }
}

/// Parameter of a path or query.
#[derive(Clone, Copy)]
pub struct Param {
    pub name: &'static str,
    pub about: &'static str,
    pub schema: fn() -> serde_json::Value,
}

impl Param {
    pub fn is_in(&self, path: &str) -> bool {
        path.split('/')
            .any(|segment| segment.strip_prefix('{').and_then(|s| s.strip_suffix('}')) == Some(self.name))
    }
}

/// Schema derived from a type.
#[derive(Clone, Copy)]
pub struct SchemaOf {
    pub name: fn() -> Cow<'static, str>,
    pub schema: fn(&mut SchemaGenerator) -> Schema,
}

impl SchemaOf {
    pub const fn of<T: JsonSchema>() -> SchemaOf {
        fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
            generator.subschema_for::<T>()
        }
        SchemaOf { name: T::schema_name, schema: schema::<T> }
    }
}

/// Body of a request.
pub struct RequestBody {
    pub schema: SchemaOf,
    /// The body is optional.
    pub may_be_left_out: bool,
    /// Name, summary and JSON text of each example.
    pub examples: Examples,
}

pub type Examples = &'static [(&'static str, &'static str, &'static str)];

/// Content of a response.
#[derive(Clone, Copy)]
pub enum Content {
    /// JSON or MessagePack, as the caller prefers.
    Data(SchemaOf),
    Text,
    /// Server-sent events, each with data of this type.
    Events(SchemaOf),
    /// JSON that is described elsewhere.
    Document,
}

/// Reason for refusing a request before its handler runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no resource at {path}; /api/openapi.json lists all calls")]
    NoRoute { path: String },
    #[error("{method} is not allowed here; use {allow}")]
    Method { method: String, allow: String },
    #[error("a valid token is required: send `Authorization: Bearer wl_…`")]
    NoToken,
    #[error("this call requires the role {needed}; your token has the role {has}")]
    Role { needed: Role, has: Role },
    #[error(
        "unknown host name {host:?}; use localhost, or add the name to `hosts` in the configuration \
         of the server"
    )]
    Host { host: String },
    #[error("requests from other web sites are not accepted")]
    Origin,
    #[error("compressed bodies are not supported; send the body without Content-Encoding")]
    Compressed,
    #[error("invalid path: percent-encoded parts must be UTF-8")]
    Path,
    /// Message of the engine.
    #[error("{0}")]
    Quota(String),
    /// The connection quota of the tenant is exhausted, and this connection closes. Message of the engine.
    #[error("{0}")]
    Connections(String),
}

impl Refusal {
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::NoRoute { .. } => StatusCode::NOT_FOUND,
            Refusal::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::NoToken => StatusCode::UNAUTHORIZED,
            Refusal::Role { .. } | Refusal::Origin => StatusCode::FORBIDDEN,
            Refusal::Host { .. } => StatusCode::MISDIRECTED_REQUEST,
            Refusal::Compressed => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Refusal::Path => StatusCode::BAD_REQUEST,
            Refusal::Quota(_) | Refusal::Connections(_) => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// Stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::NoRoute { .. } => "no_route",
            Refusal::Method { .. } => "method_not_allowed",
            Refusal::NoToken => "unauthorized",
            Refusal::Role { .. } => "forbidden",
            Refusal::Host { .. } => "unknown_host",
            Refusal::Origin => "foreign_origin",
            Refusal::Compressed => "content_encoding",
            Refusal::Path => "bad_path",
            Refusal::Quota(_) | Refusal::Connections(_) => "quota_exceeded",
        }
    }
}

/// Request that passed the guard.
pub struct Call {
    pub server: Arc<Server>,
    pub caller: Caller,
    /// Engine handle restricted to the caller's scope. `server.engine` is for the server's own work.
    pub engine: Engine,
    pub parts: Parts,
    pub(crate) route: &'static Route,
    /// The mutex is never locked: it makes the call `Sync`, which a body alone is not.
    body: Mutex<Body>,
    arriving: Arriving,
    params: Vec<String>,
    /// Slot of the tenant's quota of concurrent requests.
    _share: Option<Share>,
    body_bytes_max: usize,
    weight: Weight,
    /// Subject of the entry in the audit log; `None`: the call is not recorded.
    pub(crate) concerned: Option<Concerns>,
}

/// Body in an unknown encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType {
    /// The header is empty.
    pub is_empty: bool,
}

/// Reason why a body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBody {
    #[error("the body is larger than the maximum of {max} bytes for this call; send less data per call")]
    TooLarge { max: usize },
    #[error("timed out while reading the body")]
    Slow,
    #[error("the connection was closed before the end of the body")]
    CutOff,
    #[error("{0}")]
    Busy(#[from] Busy),
}

impl BadBody {
    pub fn status(self) -> StatusCode {
        match self {
            BadBody::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            BadBody::Slow => StatusCode::REQUEST_TIMEOUT,
            BadBody::CutOff => StatusCode::BAD_REQUEST,
            BadBody::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// HTTP status of an engine error; logs server errors.
pub fn status_of(error: &EngineError) -> StatusCode {
    let status = match error.code() {
        "store_full" => StatusCode::INSUFFICIENT_STORAGE,
        "payload_too_large" | "batch_too_large" | "blob_too_large" => StatusCode::PAYLOAD_TOO_LARGE,
        "unsupported" => StatusCode::NOT_IMPLEMENTED,
        "quota_exceeded" => StatusCode::TOO_MANY_REQUESTS,
        "forbidden" => StatusCode::FORBIDDEN,
        _ if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    if status.is_server_error() {
        tracing::warn!(code = error.code(), "request failed: {error}");
    }
    status
}

/// Trace in which the request was made.
fn trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    TraceContext::parse(headers.get("traceparent")?.to_str().ok()?)
}

impl Call {
    pub(crate) fn new(
        server: Arc<Server>,
        caller: Caller,
        parts: Parts,
        body: Body,
        params: Vec<String>,
        share: Option<Share>,
        route: &'static Route,
    ) -> Call {
        let arriving = Arriving::new(server.budget.clone());
        let body_bytes_max = route.body_bytes_max.min(server.limits.body_bytes_max);
        let (body, weight) = (Mutex::new(body), Weight::default());
        let engine = caller.engine(&server.engine).in_trace(trace_context(&parts.headers));
        Call {
            server,
            caller,
            engine,
            parts,
            route,
            body,
            arriving,
            params,
            body_bytes_max,
            weight,
            concerned: None,
            _share: share,
        }
    }

    pub(crate) fn weight(&self) -> &Weight {
        &self.weight
    }

    /// Body as a stream, for calls that do not need it whole.
    pub fn take_body(&mut self) -> Body {
        std::mem::take(self.body.get_mut())
    }

    /// Next chunk of the body; `None` after the last.
    pub async fn body_piece(&mut self) -> Result<Option<Bytes>, BadBody> {
        let body = self.body.get_mut();
        self.arriving.piece(body).await
    }

    /// Announced length of the body. Not verified yet.
    pub fn body_bytes_announced(&mut self) -> u64 {
        let body = self.body.get_mut();
        http_body::Body::size_hint(body).lower()
    }

    pub fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// True if the caller may not see payloads.
    pub fn hides_payloads(&self) -> bool {
        !self.caller.role.sees_payloads(self.server.hide_payloads)
    }

    /// Waits until waiting calls of this caller should end: the server stops, or the caller's token was
    /// revoked or has expired.
    pub async fn wait_until_ended(&self) {
        self.server.wait_until_ended_for(&self.caller).await;
    }

    /// The n-th parameter of the path, decoded.
    pub fn param(&self, index: usize) -> &str {
        self.params.get(index).map_or("", String::as_str)
    }

    /// Parameters of the query, decoded.
    pub fn query(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        form_urlencoded::parse(self.parts.uri.query().unwrap_or_default().as_bytes())
    }

    /// Value of a query parameter, decoded.
    pub fn query_value(&self, name: &str) -> Option<String> {
        self.query().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }

    /// Tenant of the call: an admin may name another one in the query.
    pub fn tenant(&self) -> Result<Tenant, BadTenant> {
        self.caller.tenant_for(self.query_value("tenant").as_deref())
    }

    /// Encoding of the body by its header; `None` without one. `Err`: neither JSON nor MessagePack.
    pub fn body_encoding(&self) -> Result<Option<Encoding>, WrongType> {
        let Some(value) = self.headers().get(header::CONTENT_TYPE) else { return Ok(None) };
        let kind = value.to_str().unwrap_or("?").split(';').next().unwrap_or_default().trim();
        let is = |name: &str| kind.eq_ignore_ascii_case(name);
        if is("application/json") {
            Ok(Some(Encoding::Json))
        } else if ["application/msgpack", "application/x-msgpack", "application/vnd.msgpack"]
            .into_iter()
            .any(is)
        {
            Ok(Some(Encoding::Msgpack))
        } else {
            Err(WrongType { is_empty: kind.is_empty() })
        }
    }

    /// Encoding of the response: by `Accept`, else that of the body, else `usual`.
    pub fn reply_encoding(&self, usual: Encoding) -> Encoding {
        let accept = self.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
        match (accept.contains("msgpack"), accept.contains("json")) {
            (true, _) => Encoding::Msgpack,
            (false, true) => Encoding::Json,
            (false, false) => self.body_encoding().ok().flatten().unwrap_or(usual),
        }
    }

    /// Whole body, within the bound of the call.
    pub async fn read_body(&mut self) -> Result<Bytes, BadBody> {
        let body = self.take_body();
        let body = read_body(body, self.body_bytes_max, &mut self.arriving).await?;
        self.weight.add(body.len()).await;
        Ok(body)
    }
}

async fn read_body(mut body: Body, max: usize, arriving: &mut Arriving) -> Result<Bytes, BadBody> {
    let expected = http_body::Body::size_hint(&body).lower();
    if expected > max as u64 {
        return Err(BadBody::TooLarge { max });
    }
    arriving.cover(usize::try_from(expected).unwrap_or(max)).await?;
    let mut first = Bytes::new();
    let mut all: Option<Vec<u8>> = None;
    while let Some(data) = arriving.piece(&mut body).await? {
        let length = all.as_ref().map_or(first.len(), Vec::len);
        if length + data.len() > max {
            return Err(BadBody::TooLarge { max });
        }
        // Without an announced length a body is counted as it grows.
        if (length + data.len()) as u64 > expected {
            arriving.cover((length + data.len()).next_power_of_two()).await?;
        }
        // Most bodies arrive in one chunk, which is not copied.
        if length == 0 {
            first = data;
            continue;
        }
        let all = all.get_or_insert_with(|| {
            // The budget covers the announced length by now. The system allocates its pages as bytes arrive.
            let announced = usize::try_from(expected).unwrap_or(max);
            let mut all = Vec::with_capacity(announced.max(length * 2));
            all.extend_from_slice(&first);
            all
        });
        all.extend_from_slice(&data);
    }
    Ok(all.map_or(first, Bytes::from))
}

/// Values of the braced segments of `pattern` in `path`. `None`: a value is not UTF-8.
pub(crate) fn path_params(pattern: &str, path: &str) -> Option<Vec<String>> {
    pattern
        .split('/')
        .zip(path.split('/'))
        .filter(|(pattern, _)| pattern.starts_with('{'))
        .map(|(_, segment)| {
            percent_encoding::percent_decode_str(segment).decode_utf8().ok().map(Cow::into_owned)
        })
        .collect()
}

#[cfg(test)]
mod tests;
