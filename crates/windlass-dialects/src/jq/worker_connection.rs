//! Connection pool of one worker, and the request that sends a job.

use ::http::{HeaderValue, Request};
use bytes::Bytes;
use http_body_util::Full;
use std::sync::Arc;
use windlass_core::Tenant;
use windlass_core::trace::TraceContext;
use windlass_http::{Allowed, BadUrl, CallError, Pool, Signer, Target};

/// Most connections to one worker. It answers as soon as it has accepted a job, so a few carry many jobs.
const CONNECTIONS_MAX: usize = 64;
/// Most bytes read of an answer: enough for an error message.
const ANSWER_BYTES_MAX: usize = 16 * 1_024;

/// Parses `http://host:port` with an optional path; the server calls `/worker-job` below it.
pub(super) fn parse_url(url: &str) -> Result<Target, String> {
    let target = Target::parse(url).map_err(|why| match why {
        BadUrl::NotAUrl => format!("`url` is not a URL: {url:?}"),
        BadUrl::Scheme => "`url` must begin with http://".to_owned(),
        BadUrl::NoHost => "`url` has no host".to_owned(),
        BadUrl::Credentials => "`url` must not contain a user name or password".to_owned(),
        BadUrl::OddHost => "`url` has an invalid host".to_owned(),
    })?;
    if target.is_https() {
        return Err("`url` must begin with http://".to_owned());
    }
    if target.path().query().is_some() {
        return Err("`url` must not have a query".to_owned());
    }
    let path = format!("{}/worker-job", target.path().path().trim_end_matches('/'));
    let path = path.parse().map_err(|_| "`url` has an invalid path")?;
    Ok(target.with_path(path))
}

/// Refuses a target that can never be called. A name that does not resolve now may resolve later.
pub(super) async fn check(target: &Target, allowed: &Allowed) -> Result<(), String> {
    match target.resolve(allowed).await {
        Ok(_) | Err(CallError::Lookup { .. }) => Ok(()),
        Err(error) => Err(in_words(&error, allowed)),
    }
}

fn in_words(error: &CallError, allowed: &Allowed) -> String {
    match error {
        CallError::NotAllowed { .. } => {
            format!("{error} (allowed: {allowed}); add the address to jq.worker_addresses")
        }
        error => error.to_string(),
    }
}

/// Answer of a worker to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub status: u16,
    pub body: Bytes,
}

pub(super) struct WorkerConnection {
    /// Header with the worker's id: another worker may listen at the address by now.
    worker: Option<HeaderValue>,
    pool: Pool,
}

impl WorkerConnection {
    /// Signs requests to the tenant's worker, if a signer is given.
    pub(super) fn new(
        worker: &str,
        target: Target,
        allowed: Arc<Allowed>,
        signer: Option<&Signer>,
        tenant: &Tenant,
    ) -> WorkerConnection {
        // A name from the configuration that is not a valid header value is left out.
        let worker = HeaderValue::from_str(worker).ok();
        WorkerConnection { worker, pool: Pool::new(target, CONNECTIONS_MAX, allowed).signed(signer, tenant) }
    }

    /// Host and port, for display.
    pub(super) fn address(&self) -> String {
        self.pool.target().to_string()
    }

    /// Calls the worker. After an error the job may have arrived all the same.
    pub(super) async fn post(&self, body: Bytes, trace: Option<TraceContext>) -> Result<Answer, String> {
        let _slot = self.pool.slot().await;
        let call = self.pool.send(self.request(body, trace)).await;
        let call = call.map_err(|error| in_words(&error, self.pool.allowed()))?;
        let status = call.status();
        // A connection with an unread rest of an answer is not reused.
        let body = call.bytes(ANSWER_BYTES_MAX).await.unwrap_or_default();
        Ok(Answer { status, body })
    }

    fn request(&self, body: Bytes, trace: Option<TraceContext>) -> Request<Full<Bytes>> {
        let mut request = self.pool.request(body, "application/msgpack");
        if let Some(worker) = &self.worker {
            request.headers_mut().insert("worker-id", worker.clone());
        }
        let trace = trace.and_then(|context| HeaderValue::from_str(&context.to_string()).ok());
        if let Some(trace) = trace {
            request.headers_mut().insert("traceparent", trace);
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_plain_http_with_a_host() {
        let target = parse_url("http://localhost:6401/base/").unwrap();
        assert_eq!(
            (target.to_string().as_str(), target.path().as_str()),
            ("localhost:6401", "/base/worker-job")
        );
        assert_eq!(parse_url("http://[::1]:9").unwrap().host(), "::1");
        assert_eq!(parse_url("http://a.example").unwrap().to_string(), "a.example:80");
        for bad in
            ["", "localhost:6401", "https://a.example", "http://", "ftp://a", "http://u:p@a", "http://a/?q"]
        {
            assert!(parse_url(bad).is_err(), "{bad}");
        }
    }
}
