//! All HTTP dialects on one port.

mod cross_origin;

use crate::arrivals::Arrival;
use crate::auth::{Caller, Role, Tokens};
use crate::budget::Budget;
use crate::guard::{self, Hosts};
use crate::handbook::Handbook;
use crate::journal::ingest::Ingest;
use crate::journal::pushes::Pushes;
use crate::journal::{self, Journal};
use crate::listener::{self, Limits, Phase};
use crate::miniq::running::Runners;
use crate::native::history::{self, History};
use crate::native::rates::Rates;
use crate::route::{Access, Call, Refusal, Route, path_params};
use crate::staff::Staff;
use crate::tls::Tls;
use crate::{ALL, Dialect};
use crate::{jq, miniq, queuey, sidejob};
use ::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::any;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use windlass_engine::Engine;

pub struct HttpOptions {
    pub tokens: Arc<Tokens>,
    pub hosts: Hosts,
    pub tls: Option<Arc<Tls>>,
    pub limits: Limits,
    /// Memory for requests, shared with the other ports.
    pub budget: Budget,
    /// File descriptors that this process may have, where that is known.
    pub descriptors_max: Option<u64>,
    /// Served beside the dialects, without their guard: the web UI's files.
    pub extra: Option<Router>,
    pub jq: jq::Settings,
    pub queuey: queuey::Settings,
    pub queuey_door: Option<QueueyDoor>,
    pub sidejob: sidejob::Settings,
    pub miniq: miniq::Settings,
    /// What runs the handlers of miniq's clients; without it their jobs wait.
    pub runners: Option<Arc<dyn Runners>>,
    pub journal: journal::Settings,
    /// Pushes of the native API go into the journal, too, and are acknowledged from there.
    pub journal_native: bool,
    /// Told when somebody who may has asked the server to end.
    pub quit: Arc<Notify>,
    /// Told once when calls are answered.
    pub opened: Arc<Notify>,
    /// Viewers see that there are jobs, and not what is in them.
    pub hide_payloads: bool,
    /// Other doors to the same jobs, by dialect: shown to those who want to know how to come in.
    pub doors: Vec<(&'static str, SocketAddr)>,
    /// Which store this is, for people: shown in the statistics.
    pub store: String,
    pub version: &'static str,
}

impl Default for HttpOptions {
    fn default() -> Self {
        HttpOptions {
            tokens: Tokens::open(),
            hosts: Hosts::default(),
            tls: None,
            limits: Limits::default(),
            budget: Budget::default(),
            descriptors_max: None,
            extra: None,
            jq: jq::Settings::default(),
            queuey: queuey::Settings::default(),
            queuey_door: None,
            sidejob: sidejob::Settings::default(),
            miniq: miniq::Settings::default(),
            runners: None,
            journal: journal::Settings::default(),
            journal_native: false,
            quit: Arc::default(),
            opened: Arc::default(),
            hide_payloads: false,
            doors: Vec::new(),
            store: String::new(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// A port for queuey-queue's calls alone, beside the one for everything.
pub struct QueueyDoor {
    pub listener: TcpListener,
    pub tls: Option<Arc<Tls>>,
}

/// What handlers share.
pub struct Server {
    pub engine: Engine,
    pub tokens: Arc<Tokens>,
    pub hosts: Hosts,
    pub limits: Limits,
    pub budget: Budget,
    pub descriptors_max: Option<u64>,
    pub started: Instant,
    pub rates: Rates,
    pub jq: jq::Master,
    pub history: History,
    pub queuey: queuey::State,
    pub sidejob: sidejob::State,
    pub miniq: Arc<miniq::State>,
    pub journal: Journal,
    pub journal_native: bool,
    pub quit: Arc<Notify>,
    pub hide_payloads: bool,
    pub doors: Vec<(&'static str, SocketAddr)>,
    pub store: String,
    pub version: &'static str,
    phase: watch::Receiver<Phase>,
}

impl Server {
    /// Every dialect that keeps handlers.
    pub fn handbooks(&self) -> [&dyn Handbook; 1] {
        [&*self.miniq]
    }

    /// Every dialect that workers register with.
    pub fn staffs(&self) -> [&dyn Staff; 1] {
        [&self.jq]
    }

    pub fn is_stopping(&self) -> bool {
        *self.phase.borrow() >= Phase::Draining
    }

    /// Until the server wants to stop, or the caller would be refused: whatever waits for them should then answer.
    pub async fn farewell(&self, caller: &Caller) {
        tokio::select! {
            () = self.stopping() => {}
            () = self.tokens.refused(caller, &self.engine) => {}
        }
    }

    /// Until the server wants to stop.
    async fn stopping(&self) {
        // The sender is gone only when the server is.
        let _ = self.phase.clone().wait_for(|phase| *phase >= Phase::Draining).await;
    }
}

/// Serves until `shutdown` is done, then answers what it has taken and closes. The engine is left running: the caller
/// may have other doors to it.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    options: HttpOptions,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    // Fails early where the socket is unusable, instead of in the loop.
    listener.local_addr()?;
    let (phase, watching) = watch::channel(Phase::Serving);
    let HttpOptions {
        tokens,
        hosts,
        tls,
        limits,
        budget,
        extra,
        jq,
        queuey,
        sidejob,
        hide_payloads,
        doors,
        store,
        version,
        ..
    } = options;
    let jq = jq::Master::start(engine.clone(), jq).await.map_err(io::Error::other)?;
    let journal = Journal::open(options.journal).map_err(io::Error::other)?;
    let miniq = miniq::State::start(engine.clone(), journal.clone(), options.miniq, options.runners)?;
    let (stop_ingest, stopping_ingest) = watch::channel(false);
    let ingest = Ingest {
        engine: engine.clone(),
        journal: journal.clone(),
        readers: vec![Arc::new(miniq.lines()), Arc::new(Pushes)],
    };
    let ingest = tokio::spawn(ingest.run(stopping_ingest));
    let _behind = Behind { miniq: Arc::clone(&miniq), ingest: ingest.abort_handle() };
    let grace = limits.grace;
    let server = Arc::new(Server {
        engine,
        tokens,
        hosts,
        limits: limits.clone(),
        budget,
        descriptors_max: options.descriptors_max,
        started: Instant::now(),
        rates: Rates::default(),
        jq,
        history: History::default(),
        queuey: queuey::State::new(queuey),
        sidejob: sidejob::State::new(sidejob),
        miniq,
        journal,
        journal_native: options.journal_native,
        quit: options.quit,
        hide_payloads,
        doors,
        store,
        version,
        phase: watching,
    });
    let app = router(&server, ALL, extra);
    let queuey_listening = listen_for_queuey(&server, options.queuey_door, limits.clone(), phase.clone());
    options.opened.notify_one();
    let listening = listener::run(listener, tls, app, limits, phase.clone());
    let listening = futures_util::future::join(listening, queuey_listening);
    let told = OnceLock::new();
    let stopping = async {
        shutdown.await;
        let _ = told.set(Instant::now());
        phase.send_replace(Phase::Draining);
        server.miniq.start_no_more();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = listening => {}
        () = stopping => {}
        () = history::keep_sampling(&server) => {}
    }
    server.jq.stop().await;
    // One time for connections and for what runs, not one after the other.
    let used = told.get().map_or(Duration::ZERO, Instant::elapsed);
    server.miniq.stop(grace.saturating_sub(used)).await;
    stop_ingest.send_replace(true);
    let _ = ingest.await;
    server.journal.close().await;
    server.history.read(&server.engine);
    if let Err(error) = server.history.write(&server.engine).await {
        tracing::debug!(%error, "the last minute of the history is lost");
    }
    Ok(())
}

async fn listen_for_queuey(
    server: &Arc<Server>,
    door: Option<QueueyDoor>,
    limits: Limits,
    phase: watch::Sender<Phase>,
) {
    const DIALECTS: &[&dyn Dialect] = &[&queuey::Queuey];
    let Some(QueueyDoor { listener, tls }) = door else { return };
    listener::run(listener, tls, router(server, DIALECTS, None), limits, phase).await;
}

/// What works behind the calls: gone with them, also when whoever serves is dropped halfway.
struct Behind {
    miniq: Arc<miniq::State>,
    ingest: AbortHandle,
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.miniq.abandon();
        self.ingest.abort();
    }
}

/// All calls at one path.
struct Place {
    dialect: &'static dyn Dialect,
    routes: Vec<&'static Route>,
    allow: String,
}

fn router(server: &Arc<Server>, dialects: &'static [&'static dyn Dialect], extra: Option<Router>) -> Router {
    let mut app = extra.unwrap_or_default();
    for place in dialects.iter().flat_map(|dialect| places(*dialect)) {
        let (server, place) = (Arc::clone(server), Arc::new(place));
        let path = place.routes[0].path;
        app = app.route(
            path,
            any(move |request: Request| {
                let (server, place) = (Arc::clone(&server), Arc::clone(&place));
                async move { answer(server, &place, request).await }
            }),
        );
    }
    app.fallback(|request: Request| async move {
        let path: String = request.uri().path().chars().take(200).collect();
        // A path nobody owns is answered in the native words.
        sealed(crate::native::Native.refuse(&Refusal::NoRoute { path }))
    })
}

fn places(dialect: &'static dyn Dialect) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for route in dialect.routes() {
        match places.iter_mut().find(|place| place.routes[0].path == route.path) {
            Some(place) => {
                place.routes.push(route);
                place.allow = format!("{}, {}", place.allow, route.method);
            }
            None => places.push(Place { dialect, routes: vec![route], allow: route.method.to_string() }),
        }
    }
    places
}

async fn answer(server: Arc<Server>, place: &Place, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let guest = cross_origin::guest(&server, place.dialect, &parts);
    if guest.is_some() && parts.method == Method::OPTIONS {
        return sealed(cross_origin::welcome(Response::default(), guest, &place.allow));
    }
    if guest.is_some() {
        cross_origin::count_as_ours(&mut parts);
    }
    let response = match admit(server, place, parts, body) {
        Ok((route, call)) => {
            let weight = call.weight().clone();
            weight.carry((route.handle)(call)).await
        }
        Err(refusal) => {
            let mut response = place.dialect.refuse(&refusal);
            if let (Refusal::Method { .. }, Ok(allow)) = (&refusal, HeaderValue::from_str(&place.allow)) {
                response.headers_mut().insert(header::ALLOW, allow);
            }
            response
        }
    };
    sealed(cross_origin::welcome(response, guest, &place.allow))
}

fn admit(
    server: Arc<Server>,
    place: &Place,
    parts: ::http::request::Parts,
    body: Body,
) -> Result<(&'static Route, Call), Refusal> {
    // Whoever may ask for the whole may ask for the head of it; the connection leaves the body out.
    let method = if parts.method == Method::HEAD { "GET" } else { parts.method.as_str() };
    let Some(route) = place.routes.iter().find(|route| route.method == method) else {
        return Err(Refusal::Method { method: parts.method.to_string(), allow: place.allow.clone() });
    };
    let caller = guard::check(
        &parts,
        (route.access, route.changes_state),
        &server.tokens,
        &server.hosts,
        server.engine.now(),
    )?;
    if let (Access::From(_), Some(arrival)) = (route.access, parts.extensions.get::<Arc<Arrival>>()) {
        arrival.admit();
    }
    let params = match route.path.contains('{') {
        true => path_params(route.path, parts.uri.path()).ok_or(Refusal::Path)?,
        false => Vec::new(),
    };
    let share = match route.access {
        // Whoever sets quotas is not kept out by them.
        Access::Public | Access::From(Role::Admin) => None,
        Access::From(_) => {
            let begun = server.engine.begin_request(&caller.tenant);
            Some(begun.map_err(|error| Refusal::Quota(error.to_string()))?)
        }
    };
    Ok((route, Call::new(server, caller, parts, body, params, share, route)))
}

const NOSNIFF: (HeaderName, HeaderValue) =
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

/// Other web pages may not show or run it either.
const SAME_ORIGIN: (HeaderName, HeaderValue) =
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin"));

/// What every answer carries: nothing of it is to be guessed at, framed, embedded elsewhere or kept.
fn sealed(mut response: Response) -> Response {
    let is_refused_for_now = response.status() == StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    headers.insert(NOSNIFF.0, NOSNIFF.1);
    if !headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
        headers.insert(SAME_ORIGIN.0, SAME_ORIGIN.1);
    }
    if is_refused_for_now {
        headers.entry(header::RETRY_AFTER).or_insert(HeaderValue::from_static("1"));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
