//! Checks before a dialect gets the request: host, origin, authentication, role.

use crate::auth::{Caller, Role, Tokens};
use crate::route::{Access, Refusal};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, Method, header};
use std::net::IpAddr;
use windlass_core::Timestamp;

#[cfg(test)]
mod tests;

/// Host names by which a browser may address an open server. A foreign page can point its own name at this
/// server's address and then send requests as if to its own server (DNS rebinding); it cannot fake the name
/// in `Host`.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// The server is reachable from this machine only, by loopback names and addresses. Otherwise addresses
    /// and names outside the public DNS are accepted, too.
    pub loopback_only: bool,
    /// Additional names.
    pub allowed: Vec<String>,
}

impl Default for Hosts {
    fn default() -> Self {
        Hosts { loopback_only: true, allowed: Vec::new() }
    }
}

impl Hosts {
    /// True if a `Host` header names this server.
    pub fn has(&self, host: &str) -> bool {
        let name = without_port(host).to_ascii_lowercase();
        let is_ours = match name.parse::<IpAddr>() {
            // An address cannot be rebound.
            Ok(ip) => ip.is_loopback() || !self.loopback_only,
            Err(_) => is_loopback_name(&name) || (!self.loopback_only && is_private_name(&name)),
        };
        is_ours || self.allowed.iter().any(|ours| ours.eq_ignore_ascii_case(&name))
    }
}

fn is_loopback_name(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Names of machines and containers on a local network. They cannot be registered for a web page.
fn is_private_name(name: &str) -> bool {
    const PRIVATE: [&str; 4] = [".local", ".internal", ".lan", ".home.arpa"];
    let is_one_word =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    is_one_word || PRIVATE.iter().any(|end| name.ends_with(end))
}

pub(crate) const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub(crate) fn check(
    parts: &Parts,
    (access, changes_state): (Access, bool),
    tokens: &Tokens,
    hosts: &Hosts,
    now: Timestamp,
) -> Result<Caller, Refusal> {
    let open = tokens.is_open();
    if open {
        check_host(&parts.headers, hosts)?;
    }
    if changes_state || !matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS) {
        check_origin(&parts.headers)?;
    }
    if changes_state && matches!(parts.method, Method::GET | Method::HEAD) {
        check_browser(&parts.headers)?;
    }
    check_encoding(&parts.headers)?;
    if open {
        return Ok(Caller::unnamed(Role::Admin));
    }
    let caller = bearer(&parts.headers).and_then(|token| tokens.check(token, now));
    match (access, caller) {
        (Access::Public, caller) => Ok(caller.unwrap_or_else(|| Caller::unnamed(Role::Viewer))),
        (Access::From(_), None) => Err(Refusal::NoToken),
        (Access::From(needed), Some(caller)) if caller.role < needed => {
            Err(Refusal::Role { needed, has: caller.role })
        }
        (Access::From(_), Some(caller)) => Ok(caller),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn check_host(headers: &HeaderMap, hosts: &Hosts) -> Result<(), Refusal> {
    // Only very old clients send none, and no browser does.
    let Some(host) = headers.get(header::HOST) else { return Ok(()) };
    let host = host.to_str().unwrap_or("?");
    if hosts.has(host) {
        return Ok(());
    }
    Err(Refusal::Host { host: without_port(host).chars().take(100).collect() })
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(v6),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// Refuses cross-origin requests of browsers. A foreign web page can make a browser send a request, but
/// cannot keep it from sending these headers.
fn check_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.get(SEC_FETCH_SITE).is_some_and(|site| site == "cross-site") {
        return Err(Refusal::Origin);
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let ours = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let theirs = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if ours.eq_ignore_ascii_case(theirs) => Ok(()),
        _ => Err(Refusal::Origin),
    }
}

/// Refuses state-changing GETs of browsers from foreign pages. A link or an image on any page can cause a GET
/// without an `Origin`. Most browsers send `Sec-Fetch-Site`; over plain HTTP to an address that is not
/// loopback they do not, and then nothing distinguishes the server's own pages from others.
fn check_browser(headers: &HeaderMap) -> Result<(), Refusal> {
    let is_browser = || {
        let agent = headers.get(header::USER_AGENT).map(|agent| agent.as_bytes());
        // Programs with a browser's user agent (PowerShell) send no `Accept-Language`.
        agent.is_some_and(|agent| agent.starts_with(b"Mozilla/"))
            && headers.contains_key(header::ACCEPT_LANGUAGE)
    };
    match headers.get(SEC_FETCH_SITE).map(|site| site.as_bytes()) {
        Some(b"none" | b"same-origin") => Ok(()),
        None if !is_browser() => Ok(()),
        _ => Err(Refusal::Origin),
    }
}

/// Refuses compressed bodies: decompression would turn a small request into a large one, and a local network
/// does not need it.
fn check_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => Err(Refusal::Compressed),
        _ => Ok(()),
    }
}
