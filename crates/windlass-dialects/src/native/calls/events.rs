//! `GET /api/v1/events`: live changes of jobs, as server-sent events.

use crate::auth::Caller;
use crate::codec::{Encoding, Out};
use crate::native::reply::{Answer, encode};
use crate::native::request::Params;
use crate::native::wire::{Id, Time};
use crate::route::Call;
use crate::server::Server;
use ::http::{HeaderValue, header};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::Frame;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::broadcast::{self, error::RecvError, error::TryRecvError};
use tokio::sync::mpsc;
use windlass_core::{JobId, Tenant};
use windlass_engine::{FeedEvent, FeedKind};

/// Interval of keep-alive comments; most proxies and clients time out after a minute of silence.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Chunks buffered for a slow client. Further events wait in the feed, and are dropped when it overflows.
const AHEAD_MAX: usize = 16;
/// Events per chunk if many are pending.
const PIECE_EVENTS_MAX: usize = 256;

/// Shortest and longest interval of summaries.
const SUMMARY_MS: (u64, u64) = (100, 60_000);
const GREETING: &[u8] = b"retry: 1000\n: listening\n\n";

/// Subscriber and its filter.
struct Wanted {
    caller: Caller,
    tenant: Option<Tenant>,
    job: Option<JobId>,
}

impl Wanted {
    fn fits(&self, event: &FeedEvent) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| *tenant == event.tenant)
            && self.job.is_none_or(|job| job == event.id)
            && self.caller.scope.allows(&event.queue, &event.name)
    }

    /// Number of missed events reported to a subscriber. The count covers all tenants, so a subscriber of one
    /// tenant only learns that some were missed.
    fn missed(&self, count: u64) -> u64 {
        if self.tenant.is_none() { count } else { count.min(1) }
    }
}

/// Streams events. There is no replay: `Last-Event-ID` is accepted, and the stream starts with the next
/// event. A client that reconnects must read the jobs once, as after a restart of the server.
pub(super) async fn events(call: Call) -> Answer {
    let params = Params::of(&call)?;
    let wanted = Wanted {
        caller: call.caller.clone(),
        tenant: call.caller.tenants_for(params.tenant())?,
        job: params.number("job")?.and_then(JobId::new),
    };
    let every_ms = params.number::<u64>("summary_ms")?;
    let feed = call.engine.events();
    let (sender, receiver) = mpsc::channel(AHEAD_MAX);
    let server = Arc::clone(&call.server);
    match every_ms.map(|ms| Duration::from_millis(ms.clamp(SUMMARY_MS.0, SUMMARY_MS.1))) {
        None => drop(tokio::spawn(forward(server, feed, wanted, sender))),
        Some(every) => drop(tokio::spawn(summarise(server, feed, wanted, every, sender))),
    }
    let mut response = Response::new(Body::new(Pieces(receiver)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

async fn forward(
    server: Arc<Server>,
    mut feed: broadcast::Receiver<Arc<FeedEvent>>,
    wanted: Wanted,
    sender: mpsc::Sender<Bytes>,
) {
    // Confirms the subscription and sets the client's reconnect delay.
    let mut piece = Bytes::from_static(GREETING);
    let mut sent = 0;
    loop {
        if !piece.is_empty() && sender.send(piece).await.is_err() {
            return;
        }
        piece = tokio::select! {
            event = feed.recv() => match next_piece(event, &mut feed, &wanted, &mut sent) {
                Some(piece) => piece,
                None => return,
            },
            () = tokio::time::sleep(HEARTBEAT) => Bytes::from_static(b": alive\n\n"),
            () = sender.closed() => return,
            () = server.wait_until_ended_for(&wanted.caller) => return,
        };
    }
}

/// Sends at most one summary per interval, if there were events. A client learns when to read again, at a
/// cost that does not grow with the number of events.
async fn summarise(
    server: Arc<Server>,
    mut feed: broadcast::Receiver<Arc<FeedEvent>>,
    wanted: Wanted,
    every: Duration,
    sender: mpsc::Sender<Bytes>,
) {
    let mut piece = Bytes::from_static(GREETING);
    loop {
        if !piece.is_empty() && sender.send(piece).await.is_err() {
            return;
        }
        let first = tokio::select! {
            event = feed.recv() => event,
            () = tokio::time::sleep(HEARTBEAT) => {
                piece = Bytes::from_static(b": alive\n\n");
                continue;
            }
            () = sender.closed() => return,
            () = server.wait_until_ended_for(&wanted.caller) => return,
        };
        let mut tally = Tally::default();
        let mut next = Some(first);
        while let Some(event) = next {
            match event {
                Ok(event) if wanted.fits(&event) => tally.add(event.kind),
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => tally.missed += wanted.missed(missed),
                Err(RecvError::Closed) => return,
            }
            next = already_there(&mut feed);
        }
        piece = tally.piece();
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = sender.closed() => return,
            () = server.wait_until_ended_for(&wanted.caller) => return,
        }
    }
}

#[derive(Default)]
struct Tally {
    counts: BTreeMap<&'static str, u64>,
    /// Events dropped by the feed, possibly of other tenants; see [`Wanted::missed`].
    missed: u64,
}

impl Tally {
    fn add(&mut self, kind: FeedKind) {
        *self.counts.entry(kind.as_str()).or_default() += 1;
    }

    /// Formats the summary; empty: no matching event.
    fn piece(&self) -> Bytes {
        if self.counts.is_empty() && self.missed == 0 {
            return Bytes::new();
        }
        let mut out = Out::new(Encoding::Json, 128);
        out.begin_map();
        for (kind, count) in
            self.counts.iter().map(|(kind, count)| (*kind, *count)).chain([("missed", self.missed)])
        {
            out.key(kind);
            out.uint(count);
        }
        out.end_map();
        let mut text = b"event: summary\ndata: ".to_vec();
        text.extend_from_slice(&out.into_bytes());
        text.extend_from_slice(b"\n\n");
        Bytes::from(text)
    }
}

/// Formats the event and the pending ones after it. `None`: the feed has ended.
fn next_piece(
    first: Result<Arc<FeedEvent>, RecvError>,
    feed: &mut broadcast::Receiver<Arc<FeedEvent>>,
    wanted: &Wanted,
    sent: &mut u64,
) -> Option<Bytes> {
    let mut text = Vec::new();
    let mut next = Some(first);
    let mut events = 0;
    while let Some(event) = next {
        match event {
            Ok(event) if wanted.fits(&event) => {
                *sent += 1;
                write_event(&mut text, &event, *sent);
            }
            Ok(_) => {}
            Err(RecvError::Lagged(missed)) => {
                let missed = wanted.missed(missed);
                text.extend_from_slice(
                    format!("event: lagged\ndata: {{\"missed\":{missed}}}\n\n").as_bytes(),
                );
            }
            Err(RecvError::Closed) if text.is_empty() => return None,
            Err(RecvError::Closed) => break,
        }
        events += 1;
        next = if events < PIECE_EVENTS_MAX { already_there(feed) } else { None };
    }
    Some(Bytes::from(text))
}

fn already_there(
    feed: &mut broadcast::Receiver<Arc<FeedEvent>>,
) -> Option<Result<Arc<FeedEvent>, RecvError>> {
    match feed.try_recv() {
        Ok(event) => Some(Ok(event)),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Lagged(missed)) => Some(Err(RecvError::Lagged(missed))),
        Err(TryRecvError::Closed) => Some(Err(RecvError::Closed)),
    }
}

/// Data of a server-sent event; the event type is the kind of change.
#[derive(Serialize, JsonSchema)]
pub(super) struct Event<'a> {
    /// Id of the job.
    id: Id,
    /// Tenant that owns it.
    tenant: &'a str,
    /// Queue.
    queue: &'a str,
    /// Kind of job.
    name: &'a str,
    /// State after the event.
    state: &'a str,
    /// Time of the event.
    at: Time,
}

/// `number` counts the events of this stream only: a global counter would reveal the activity of other
/// tenants.
fn write_event(text: &mut Vec<u8>, event: &FeedEvent, number: u64) {
    let data = Event {
        id: Id(event.id),
        tenant: event.tenant.as_str(),
        queue: event.queue.as_str(),
        name: event.name.as_str(),
        state: event.state.as_str(),
        at: event.at.into(),
    };
    text.extend_from_slice(format!("event: {}\nid: {}\ndata: ", event.kind.as_str(), number).as_bytes());
    // JSON escapes line ends, so the data is always one line.
    text.extend(encode(Encoding::Json, 128, &data).unwrap_or_default());
    text.extend_from_slice(b"\n\n");
}

/// Stream as a response body. Dropping it, when the connection ends, stops the forwarding.
struct Pieces(mpsc::Receiver<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
