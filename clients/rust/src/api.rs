//! Calls of the native API.

use crate::error::Error;
use crate::http::{Ask, CallError, Http};
use crate::random;
use crate::wire::{self, ErrorAnswer};
use ::http::Method;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::Instant;

const JSON: &str = "application/json";
/// Timeout of calls that the server answers at once.
pub(crate) const WITHIN: Duration = Duration::from_secs(10);
/// Longest time for which a call is repeated while the server is unavailable.
const REPEAT_WITHIN: Duration = Duration::from_secs(30);
/// Longest wait of one call for the result of a job.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Pauses between repeated calls: 0.1 s, doubling to 5 s, with jitter.
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(5);

    pub(crate) fn new() -> Backoff {
        Backoff { next: Backoff::FIRST }
    }

    /// Next pause, between half of its nominal length and all of it.
    pub(crate) fn pause(&mut self) -> Duration {
        let nominal = self.next;
        self.next = (nominal * 2).min(Backoff::LONGEST);
        nominal.mul_f64(0.5 + random::fraction() / 2.0)
    }

    pub(crate) fn reset(&mut self) {
        self.next = Backoff::FIRST;
    }
}

/// Calls that may be repeated while the server is unavailable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The second call has no further effect: any outage.
    Always,
    /// The second call has an effect of its own: only if the first cannot have had one.
    Unsent,
}

/// Failed call.
struct Failed {
    error: Error,
    /// False if the server cannot have acted on the call.
    may_have_acted: bool,
}

pub(crate) struct Api {
    http: Http,
}

impl Api {
    pub(crate) fn new(url: &str, token: Option<&str>) -> Result<Api, Error> {
        Ok(Api { http: Http::new(url, token)? })
    }

    pub(crate) fn url(&self) -> &str {
        self.http.url()
    }

    /// Makes a call once.
    pub(crate) async fn call<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        within: Duration,
    ) -> Result<A, Error> {
        self.attempt(method, path, body, within).await.map_err(|failed| failed.error)
    }

    async fn attempt<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        within: Duration,
    ) -> Result<A, Failed> {
        let ask = Ask { method, path, media: JSON, header: None, body, within };
        let reply = self.http.call(ask).await.map_err(|error| {
            let may_have_acted = matches!(error, CallError::Unreachable { may_be_sent: true, .. });
            Failed { error: error.into(), may_have_acted }
        })?;
        match reply.status {
            200..=299 => serde_json::from_slice(&reply.body)
                .map_err(|e| Failed { error: Error::Answer(e.to_string()), may_have_acted: true }),
            status => {
                let said = serde_json::from_slice::<ErrorAnswer>(&reply.body).map(|it| it.error);
                let said = said.unwrap_or_default();
                let error = Error::refused(status, said.code, said.message);
                Err(Failed { error, may_have_acted: status != 503 })
            }
        }
    }

    /// Makes a POST call once.
    pub(crate) async fn post<A: DeserializeOwned>(
        &self,
        path: &str,
        ask: &impl Serialize,
        within: Duration,
    ) -> Result<A, Error> {
        self.call(Method::POST, path, encode(ask)?, within).await
    }

    /// Makes a call that may be repeated, for up to 30 s while the server is unavailable.
    pub(crate) async fn repeat<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        within: Duration,
    ) -> Result<A, Error> {
        self.repeat_if(Repeat::Always, method, path, body, within).await
    }

    async fn repeat_if<A: DeserializeOwned>(
        &self,
        repeat: Repeat,
        method: Method,
        path: &str,
        body: Bytes,
        within: Duration,
    ) -> Result<A, Error> {
        let until = Instant::now() + REPEAT_WITHIN;
        let mut backoff = Backoff::new();
        loop {
            let error = match self.attempt(method.clone(), path, body.clone(), within).await {
                Ok(answer) => return Ok(answer),
                Err(Failed { may_have_acted: true, error }) if repeat == Repeat::Unsent => return Err(error),
                Err(Failed { error, .. }) => error,
            };
            if !error.is_outage() {
                return Err(error);
            }
            let pause = backoff.pause();
            if Instant::now() + pause > until {
                return Err(error);
            }
            tracing::debug!(%error, path, "the server is unavailable; the call is repeated");
            tokio::time::sleep(pause).await;
        }
    }

    pub(crate) async fn push(&self, jobs: &[wire::NewJob]) -> Result<wire::PushAnswer, Error> {
        let body = encode(&wire::PushAsk { jobs })?;
        self.repeat(Method::POST, "/api/v1/jobs", body, WITHIN * 3).await
    }

    /// State of a job, and its outcome once it is settled. Waits up to a minute for the end.
    pub(crate) async fn result(&self, id: u64, wait: Duration) -> Result<wire::JobResult, Error> {
        let wait = wait.min(WAIT_MAX);
        let path = format!("/api/v1/jobs/{id}/result?wait_ms={}", wire::ms(wait));
        self.repeat(Method::GET, &path, Bytes::new(), WITHIN + wait).await
    }

    pub(crate) async fn children(&self, id: u64) -> Result<Vec<wire::JobResult>, Error> {
        let (mut found, mut query) = (Vec::new(), String::new());
        loop {
            let path = format!("/api/v1/jobs/{id}/children{query}");
            let page: wire::ChildrenAnswer =
                self.repeat(Method::GET, &path, Bytes::new(), WITHIN * 3).await?;
            found.extend(page.jobs);
            match page.next {
                Some(cursor) => query = format!("?cursor={cursor}"),
                None => return Ok(found),
            }
        }
    }

    /// Sends `POST /api/v1/jobs/{id}/{verb}`.
    pub(crate) async fn act<A: DeserializeOwned>(
        &self,
        id: u64,
        verb: &str,
        body: Bytes,
        repeat: Repeat,
    ) -> Result<A, Error> {
        self.repeat_if(repeat, Method::POST, &format!("/api/v1/jobs/{id}/{verb}"), body, WITHIN).await
    }
}

pub(crate) fn encode(value: &(impl Serialize + ?Sized)) -> Result<Bytes, Error> {
    let text = serde_json::to_vec(value)
        .map_err(|source| Error::Value { what: "cannot write the request".to_owned(), source })?;
    Ok(text.into())
}

/// Segment of a path, with every byte that is not plain escaped.
pub(crate) fn segment(text: &str) -> String {
    let mut path = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => path.push(byte.into()),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_five_seconds() {
        let mut backoff = Backoff::new();
        for nominal in [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
            let pause = backoff.pause().as_millis();
            assert!((nominal / 2..=nominal).contains(&pause), "{pause} of {nominal}");
        }
        backoff.reset();
        assert!(backoff.pause() <= Backoff::FIRST);
    }

    #[test]
    fn a_segment_keeps_no_separator() {
        assert_eq!(segment("a/b c?é"), "a%2Fb%20c%3F%C3%A9");
    }
}
