//! Calls of the HTTP dialects: routing, authorization, and the headers of every response.

mod cross_origin;
pub(crate) mod meters;

use crate::arrivals::Arrival;
use crate::audit;
use crate::auth::Role;
use crate::dialect::{Dialect, Running};
use crate::guard;
use crate::route::{Access, Call, Refusal, Route, path_params};
use crate::server::Server;
use ::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::any;
use meters::RouteMeter;
use std::sync::Arc;
use std::time::Instant;

/// All calls of one path.
struct PathRoutes {
    dialect: &'static dyn Dialect,
    running: Arc<dyn Running>,
    routes: Vec<&'static Route>,
    /// Meter of each route.
    meters: Vec<Arc<RouteMeter>>,
    /// Meter of the methods that the path does not have.
    other: Arc<RouteMeter>,
    allow: String,
}

impl PathRoutes {
    fn meter(&self, method: &Method) -> &RouteMeter {
        let found = self.meters.iter().find(|meter| meter.method == route_method(method));
        found.unwrap_or(&self.other)
    }
}

/// HEAD has the access of GET; the connection leaves out the body.
fn route_method(method: &Method) -> &str {
    if *method == Method::HEAD { "GET" } else { method.as_str() }
}

/// Router with the calls of all running dialects, or of one of them, and the paths of `extra`.
pub(crate) fn router(server: &Arc<Server>, only: Option<&str>, extra: Vec<(&'static str, Router)>) -> Router {
    let counted = |(route, router)| count_requests(router, server.http_meters.of(route, "GET"));
    let mut app = extra.into_iter().map(counted).fold(Router::new(), Router::merge);
    let wanted = server.running().filter(|(dialect, _)| only.is_none_or(|only| only == dialect.name()));
    for place in wanted.flat_map(|(dialect, running)| places(server, dialect, running)) {
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
    // The first dialect answers requests to paths that no dialect has.
    let first = server.running().next().map(|(dialect, _)| dialect);
    let unknown = server.http_meters.of("other", "other");
    app.fallback(move |request: Request| async move {
        let started = Instant::now();
        let path: String = request.uri().path().chars().take(200).collect();
        let refusal = Refusal::NoRoute { path };
        let response =
            with_standard_headers(first.map(|dialect| dialect.refuse(&refusal)).unwrap_or_default());
        unknown.record(response.status(), started.elapsed());
        response
    })
}

/// Counts the requests of a router without routes of ours.
fn count_requests(router: Router, meter: Arc<RouteMeter>) -> Router {
    router.layer(axum::middleware::from_fn(move |request: Request, next: Next| {
        let meter = Arc::clone(&meter);
        async move {
            let started = Instant::now();
            let response = next.run(request).await;
            meter.record(response.status(), started.elapsed());
            response
        }
    }))
}

fn places(server: &Server, dialect: &'static dyn Dialect, running: &Arc<dyn Running>) -> Vec<PathRoutes> {
    let mut places: Vec<PathRoutes> = Vec::new();
    for route in dialect.routes() {
        let meter = server.http_meters.of(route.path, route.method);
        match places.iter_mut().find(|place| place.routes[0].path == route.path) {
            Some(place) => {
                place.routes.push(route);
                place.meters.push(meter);
                place.allow = format!("{}, {}", place.allow, route.method);
            }
            None => {
                let (running, allow) = (Arc::clone(running), route.method.to_string());
                let (routes, meters) = (vec![route], vec![meter]);
                let other = server.http_meters.of(route.path, "other");
                places.push(PathRoutes { dialect, running, routes, meters, other, allow });
            }
        }
    }
    places
}

/// Answers a request and counts it.
async fn answer(server: Arc<Server>, place: &PathRoutes, request: Request) -> Response {
    let started = Instant::now();
    let meter = place.meter(request.method());
    let response = respond(server, place, request).await;
    meter.record(response.status(), started.elapsed());
    response
}

async fn respond(server: Arc<Server>, place: &PathRoutes, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let origin = cross_origin::allowed_origin(&*place.running, &parts);
    if origin.is_some() && parts.method == Method::OPTIONS {
        return with_standard_headers(cross_origin::add_cors_headers(
            Response::default(),
            origin,
            &place.allow,
        ));
    }
    if origin.is_some() {
        cross_origin::strip_origin_headers(&mut parts);
    }
    let response = match admit(server, place, parts, body) {
        Ok((route, call)) => handle(route, call).await,
        Err(refusal) => {
            let mut response = place.dialect.refuse(&refusal);
            if let (Refusal::Method { .. }, Ok(allow)) = (&refusal, HeaderValue::from_str(&place.allow)) {
                response.headers_mut().insert(header::ALLOW, allow);
            }
            if let Refusal::Connections(_) = refusal {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    };
    with_standard_headers(cross_origin::add_cors_headers(response, origin, &place.allow))
}

/// Runs the handler of a call. A call that is recorded runs to its end even if the caller hangs up: what it
/// does would happen all the same, and be missing in the audit log.
async fn handle(route: &'static Route, mut call: Call) -> Response {
    let weight = call.weight().clone();
    let Some(note) = audit::Note::of(&call) else { return weight.carry((route.handle)(call)).await };
    call.concerned = Some(Arc::clone(&note.concerns));
    let server = Arc::clone(&call.server);
    let recorded = async move {
        let mut response = weight.carry((route.handle)(call)).await;
        audit::record(&server, note, &mut response).await;
        response
    };
    match tokio::spawn(recorded).await {
        Ok(response) => response,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime ends, and this call with it.
        Err(_) => std::future::pending().await,
    }
}

fn admit(
    server: Arc<Server>,
    place: &PathRoutes,
    mut parts: ::http::request::Parts,
    body: Body,
) -> Result<(&'static Route, Call), Refusal> {
    // Removed from the call, which may outlive its connection.
    let arrival = parts.extensions.remove::<Arc<Arrival>>();
    let method = route_method(&parts.method);
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
    if let (Access::From(needed), Some(arrival)) = (route.access, arrival) {
        // Admins set quotas, so quotas do not lock them out; without tokens there is only one tenant.
        let is_exempt = needed == Role::Admin || server.tokens.is_open();
        let bound = arrival.bind(&server.engine, &caller.tenant, is_exempt);
        bound.map_err(|error| Refusal::Connections(error.to_string()))?;
        arrival.admit();
    }
    let params = match route.path.contains('{') {
        true => path_params(route.path, parts.uri.path()).ok_or(Refusal::Path)?,
        false => Vec::new(),
    };
    let share = match route.access {
        // Admins set quotas, so quotas do not lock them out.
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

/// Keeps other sites from embedding the response.
const SAME_ORIGIN: (HeaderName, HeaderValue) =
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin"));

/// Adds the headers of every response: no content sniffing, no embedding by other sites, no caching.
fn with_standard_headers(mut response: Response) -> Response {
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
