//! Settings of the export to an OpenTelemetry collector.

use super::BadConfig;
use axum::http::{HeaderName, HeaderValue};
use std::path::PathBuf;
use std::time::Duration;
use windlass_dialects::settings::Values;
use windlass_http::{BadUrl, Target};

#[derive(Clone, Debug)]
pub(crate) struct Otel {
    /// URL as configured, for messages.
    pub endpoint: String,
    pub traces: Target,
    pub metrics: Target,
    /// Their values are secret.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub service_name: String,
    /// Share of the jobs without a trace context for which the server begins a trace.
    pub sample: f64,
    pub interval: Duration,
    pub ca: Option<PathBuf>,
}

impl Otel {
    /// `None`: no collector is configured.
    pub(super) fn from_values(values: &Values) -> Result<Option<Otel>, BadConfig> {
        let Some(endpoint) = values.optional("otel.endpoint") else { return Ok(None) };
        let headers = values.list("otel.headers");
        let headers = headers.iter().map(|entry| header(entry)).collect::<Option<_>>().ok_or_else(|| {
            values.bad("otel.headers", "each header must be NAME=VALUE, with a percent-encoded value")
        })?;
        // Not repeated in the error: the URL may contain a password.
        let bad = |why: &str| values.bad("otel.endpoint", format_args!("the URL {why}"));
        let target = |signal: &str| target(endpoint, signal).map_err(bad);
        Ok(Some(Otel {
            traces: target("traces")?,
            metrics: target("metrics")?,
            endpoint: endpoint.to_string(),
            headers,
            service_name: values.optional("otel.service_name").unwrap_or("windlass").to_string(),
            sample: values.share("otel.sample"),
            interval: values.seconds("otel.interval_s"),
            ca: values.optional("otel.ca").map(PathBuf::from),
        }))
    }
}

/// URL of a signal below the endpoint.
fn target(endpoint: &str, signal: &str) -> Result<Target, &'static str> {
    if endpoint.contains(['?', '#']) {
        return Err("must not have a query");
    }
    if !endpoint.contains("://") {
        return Err("does not start with http:// or https://");
    }
    let url = format!("{}/v1/{signal}", endpoint.trim_end_matches('/'));
    Target::parse(&url).map_err(|why| match why {
        BadUrl::NotAUrl => "is not a URL",
        BadUrl::Scheme => "does not start with http:// or https://",
        BadUrl::NoHost | BadUrl::OddHost => "has no valid host",
        BadUrl::Credentials => "must not contain a user name or password; use otel.headers",
    })
}

/// Parses `NAME=VALUE`.
fn header(entry: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = entry.split_once('=')?;
    let mut value = HeaderValue::from_bytes(&percent_decoded(value.trim())?).ok()?;
    value.set_sensitive(true);
    Some((name.trim().parse().ok()?, value))
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            decoded.push(*byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        rest = after;
        let digit = |digit: u8| char::from(digit).to_digit(16);
        decoded.push(u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()?);
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_names_and_encoded_values() {
        for (entry, expected) in [
            ("api-key=abc", Some(("api-key", "abc"))),
            (" Authorization = Bearer%20x%3D ", Some(("authorization", "Bearer x="))),
            ("a=b=c", Some(("a", "b=c"))),
            ("a=", Some(("a", ""))),
            ("a", None),
            ("=b", None),
            ("two words=b", None),
            ("a=%2", None),
            ("a=%zz", None),
            ("a=%0a", None),
        ] {
            let parsed = header(entry);
            let seen = parsed.as_ref().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
            assert_eq!(seen, expected, "{entry:?}");
            assert!(!format!("{parsed:?}").contains("abc"), "values are secret");
        }
    }

    #[test]
    fn signals_have_paths_below_the_endpoint() {
        for (endpoint, expected) in [
            ("http://localhost:4318", Ok("/v1/traces")),
            ("http://localhost:4318/", Ok("/v1/traces")),
            ("https://otel.example.org/base/", Ok("/base/v1/traces")),
            ("localhost:4318", Err("does not start with http:// or https://")),
            ("grpc://localhost:4317", Err("does not start with http:// or https://")),
            ("http://user:word@localhost", Err("must not contain a user name or password; use otel.headers")),
            ("http://localhost?x", Err("must not have a query")),
            ("http://not a url", Err("is not a URL")),
        ] {
            let path = target(endpoint, "traces").map(|target| target.path().to_string());
            assert_eq!(path, expected.map(str::to_owned), "{endpoint}");
        }
    }
}
