//! URL of a call, and the addresses it stands for.

use crate::outgoing::Allowed;
use crate::pool::CallError;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use std::fmt;
use std::net::SocketAddr;

/// Parsed `http://` or `https://` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    is_https: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    authority: HeaderValue,
    path: PathAndQuery,
}

/// Reason why a URL cannot be called. The caller knows its own name for the URL and words the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadUrl {
    NotAUrl,
    Scheme,
    NoHost,
    /// User or password in the URL.
    Credentials,
    OddHost,
}

impl Target {
    pub fn parse(url: &str) -> Result<Target, BadUrl> {
        let uri: Uri = url.parse().map_err(|_| BadUrl::NotAUrl)?;
        let is_https = uri.scheme() == Some(&Scheme::HTTPS);
        if !is_https && uri.scheme() != Some(&Scheme::HTTP) {
            return Err(BadUrl::Scheme);
        }
        let authority = uri.authority().ok_or(BadUrl::NoHost)?;
        if authority.host().is_empty() {
            return Err(BadUrl::NoHost);
        }
        if authority.as_str().contains('@') {
            return Err(BadUrl::Credentials);
        }
        Ok(Target {
            is_https,
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(if is_https { 443 } else { 80 }),
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| BadUrl::OddHost)?,
            path: uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")),
        })
    }

    /// The same server with another path.
    pub fn with_path(self, path: PathAndQuery) -> Target {
        Target { path, ..self }
    }

    pub fn is_https(&self) -> bool {
        self.is_https
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    /// Path and query.
    pub fn path(&self) -> &PathAndQuery {
        &self.path
    }

    pub(crate) fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// Addresses that the name stands for now and that may be called; never an empty list.
    pub async fn resolve(&self, allowed: &Allowed) -> Result<Vec<SocketAddr>, CallError> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let found = found.map_err(|source| CallError::Lookup { host: self.host.clone(), source })?;
        let usable = allowed.of(found);
        match usable.is_empty() {
            true => Err(CallError::NotAllowed { host: self.host.clone() }),
            false => Ok(usable),
        }
    }
}

/// `HOST:PORT`, for people to read.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gives_host_port_and_path() {
        for (url, is_https, host, port, path) in [
            ("http://localhost:8080/run?x=1", false, "localhost", 8080, "/run?x=1"),
            ("http://localhost:6401/base/", false, "localhost", 6401, "/base/"),
            ("http://[::1]", false, "::1", 80, "/"),
            ("https://hooks.example.org", true, "hooks.example.org", 443, "/"),
        ] {
            let target = Target::parse(url).unwrap();
            let seen = (target.is_https, target.host.as_str(), target.port, target.path.as_str());
            assert_eq!(seen, (is_https, host, port, path), "{url}");
        }
    }

    #[test]
    fn a_url_that_cannot_be_called_is_refused_with_the_reason() {
        for (url, reason) in [
            ("", BadUrl::NotAUrl),
            ("not a url", BadUrl::NotAUrl),
            ("http://", BadUrl::NotAUrl),
            ("/path", BadUrl::Scheme),
            ("localhost:6401", BadUrl::Scheme),
            ("ftp://host/", BadUrl::Scheme),
            ("http://user:word@host/", BadUrl::Credentials),
        ] {
            assert_eq!(Target::parse(url), Err(reason), "{url:?}");
        }
    }

    #[tokio::test]
    async fn only_allowed_addresses_are_returned() {
        let target = Target::parse("http://127.0.0.1:9").unwrap();
        let loopback = Allowed::parse(["loopback"]).unwrap();
        assert_eq!(target.resolve(&loopback).await.unwrap(), ["127.0.0.1:9".parse().unwrap()]);
        let refused = target.resolve(&Allowed::parse(["10.0.0.0/8"]).unwrap()).await.unwrap_err();
        assert!(matches!(&refused, CallError::NotAllowed { host } if host == "127.0.0.1"), "{refused}");
    }
}
