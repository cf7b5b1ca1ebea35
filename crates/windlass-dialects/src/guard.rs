//! What is refused before a dialect sees the request.

use crate::auth::{Caller, Role, Tokens};
use crate::route::{Access, Refusal};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, Method, header};
use std::net::IpAddr;
use windlass_core::Timestamp;

#[cfg(test)]
mod tests;

/// Which names a browser may know an open server by. A page elsewhere can point its own name at a loopback address and
/// then speak to us as if we were its server; it cannot fake the name in `Host`.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// Off: the operator has opened the server to everyone on purpose.
    pub check: bool,
    /// Beside localhost and loopback addresses.
    pub allowed: Vec<String>,
}

impl Default for Hosts {
    fn default() -> Self {
        Hosts { check: true, allowed: Vec::new() }
    }
}

pub(crate) const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub(crate) fn check(
    parts: &Parts,
    access: Access,
    tokens: &Tokens,
    hosts: &Hosts,
    now: Timestamp,
) -> Result<Caller, Refusal> {
    let open = tokens.is_open();
    if open && hosts.check {
        check_host(&parts.headers, &hosts.allowed)?;
    }
    if !matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS) {
        check_origin(&parts.headers)?;
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

fn check_host(headers: &HeaderMap, allowed: &[String]) -> Result<(), Refusal> {
    // Only very old clients send none, and browsers are not among them.
    let Some(host) = headers.get(header::HOST) else { return Ok(()) };
    let host = host.to_str().unwrap_or("?");
    let name = without_port(host);
    let is_ours = name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        || allowed.iter().any(|ours| ours.eq_ignore_ascii_case(name));
    if is_ours { Ok(()) } else { Err(Refusal::Host { host: name.chars().take(100).collect() }) }
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(v6),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// A web page elsewhere may make a browser send a request here. It cannot keep the browser from saying so.
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

/// Unpacking would let a small request become a large one; nobody needs it on a local network.
fn check_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => Err(Refusal::Compressed),
        _ => Ok(()),
    }
}
