//! Notifications between the servers on one database: positions of newly claimable jobs, and limits with free
//! capacity. A lost notification only delays a job until the next poll.
//!
//! Notifications are sent after the commit, on a separate connection: PostgreSQL serialises the commits of
//! all transactions that call NOTIFY, and job transactions should not wait for that. Entries that accumulate
//! during a send go out together.

use super::lanes::{LaneId, Place};
use super::polling;
use super::shared::Shared;
use super::statements as sql;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio_postgres::AsyncMessage;
use tracing::{debug, info};

/// PostgreSQL's limit for one payload is 8,000 bytes.
const WORD_BYTES_MAX: usize = 7_500;
/// Delay before a reconnect.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notification {
    /// A job entered the lane at this position.
    Entered(LaneId, Place),
    /// A job of this lane, which has limits, stopped running.
    Freed(LaneId),
}

#[derive(Default)]
pub(super) struct Outbox {
    /// False: no other server is connected, and nothing is collected.
    has_company: AtomicBool,
    gathered: Mutex<Gathered>,
    something: Notify,
}

#[derive(Default)]
struct Gathered {
    entered: FxHashMap<LaneId, Place>,
    freed: BTreeSet<LaneId>,
}

impl Outbox {
    pub(super) fn set_company(&self, has_company: bool) {
        self.has_company.store(has_company, Ordering::Relaxed);
    }

    pub(super) fn put(&self, news: Vec<Notification>) {
        if news.is_empty() || !self.has_company.load(Ordering::Relaxed) {
            return;
        }
        let mut gathered = self.gathered.lock();
        for one in news {
            match one {
                // The first job of a lane is enough: a server that queries the lane sees the others.
                Notification::Entered(lane, place) => {
                    let first = gathered.entered.entry(lane).or_insert(place);
                    *first = (*first).min(place);
                }
                Notification::Freed(lane) => drop(gathered.freed.insert(lane)),
            }
        }
        self.something.notify_one();
    }

    fn take(&self) -> Vec<Notification> {
        let gathered = std::mem::take(&mut *self.gathered.lock());
        let entered = gathered.entered.into_iter().map(|(lane, place)| Notification::Entered(lane, place));
        entered.chain(gathered.freed.into_iter().map(Notification::Freed)).collect()
    }
}

/// Channel of a schema; `windlass.push` notifies on it too.
pub(super) fn channel(schema: &str) -> String {
    format!("{schema}_jobs")
}

/// Encodes as `SENDER e LANE AT ID f LANE …`, in as few payloads as possible.
fn written(sender: &str, news: &[Notification]) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = sender.to_owned();
    for one in news {
        if word.len() > WORD_BYTES_MAX {
            words.push(std::mem::replace(&mut word, sender.to_owned()));
        }
        // Writing to a string cannot fail.
        let _ = match one {
            Notification::Entered(lane, (at, id)) => write!(word, " e {lane} {at} {id}"),
            Notification::Freed(lane) => write!(word, " f {lane}"),
        };
    }
    words.push(word);
    words
}

/// Decodes a payload. `None`: another format or truncated; the receiver then polls.
fn read(word: &str) -> Option<(&str, Vec<Notification>)> {
    let mut parts = word.split(' ');
    let sender = parts.next()?;
    let mut news = Vec::new();
    while let Some(kind) = parts.next() {
        let lane = parts.next()?.parse().ok()?;
        news.push(match kind {
            "e" => Notification::Entered(lane, (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?)),
            "f" => Notification::Freed(lane),
            _ => return None,
        });
    }
    Some((sender, news))
}

/// Sends and receives notifications until the store is closed.
pub(super) async fn exchange(shared: Weak<Shared>, channel: String) {
    let mut was_well = true;
    loop {
        let Some(strong) = shared.upgrade().filter(|shared| !shared.connector.is_closed()) else { return };
        let why = match talk(strong, &shared, &channel).await {
            Ok(()) => return,
            Err(why) => why,
        };
        if was_well {
            info!("notifications of other servers are interrupted; reconnecting: {why}");
        }
        was_well = false;
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// Sends and receives on one connection; returns `Ok` when the store is closed.
async fn talk(strong: Arc<Shared>, shared: &Weak<Shared>, channel: &str) -> Result<(), String> {
    let (ear, mut heard) = mpsc::unbounded_channel();
    let hear = move |message: AsyncMessage| {
        if let AsyncMessage::Notification(notification) = message {
            let _ = ear.send(notification.payload().to_owned());
        }
    };
    let shown = |trouble: super::connection::Trouble| trouble.not_done().to_string();
    let connection = strong.connector.connect_hearing(hear).await.map_err(shown)?;
    // Notifications may be lost with the machine, together with their receivers.
    connection.say_in_time("SET synchronous_commit = off").await.map_err(shown)?;
    connection.say_in_time(&format!("LISTEN {}", super::statements::quote(channel))).await.map_err(shown)?;
    // Notifications sent before LISTEN were missed, so poll once.
    polling::poll_once(&strong).await.map_err(|error| error.to_string())?;
    let mut strong = Some(strong);
    loop {
        let Some(held) =
            strong.take().or_else(|| shared.upgrade()).filter(|shared| !shared.connector.is_closed())
        else {
            return Ok(());
        };
        tokio::select! {
            word = heard.recv() => match word {
                Some(word) => understand(&held, &word).await,
                None => return Err("the connection was closed".to_owned()),
            },
            () = held.outbox.something.notified() => {
                for word in written(&held.server, &held.outbox.take()) {
                    let params: super::connection::Params<'_> = &[&channel, &word];
                    let saying = connection.query(sql::NOTIFY, params);
                    let said = tokio::time::timeout(super::connection::ANSWER_MAX, saying).await;
                    said.map_err(|_| "PostgreSQL does not respond".to_owned())?.map_err(shown)?;
                }
            }
            // Checks whether the store was closed or another host became the primary.
            () = tokio::time::sleep(Duration::from_secs(1)) => if connection.is_broken() {
                return Err("another host is the primary now".to_owned());
            },
        }
    }
}

async fn understand(shared: &Arc<Shared>, word: &str) {
    let Some((sender, news)) = read(word) else {
        if let Err(error) = polling::poll_once(shared).await {
            debug!(%error, "cannot poll for changes");
        }
        return;
    };
    if sender == shared.server {
        return;
    }
    let lane_of = |one: &Notification| match one {
        Notification::Entered(lane, _) | Notification::Freed(lane) => *lane,
    };
    if let Err(error) = shared.learn_unknown(news.iter().map(lane_of)).await {
        debug!(%error, "cannot read new lanes");
    }
    let now = polling::now(shared);
    {
        let mut lanes = shared.lanes();
        for one in &news {
            match one {
                Notification::Entered(lane, place) => lanes.entered(*lane, *place, now, None),
                Notification::Freed(lane) => {
                    let keys = lanes.words(*lane).map(|words| words.limit_keys.clone()).unwrap_or_default();
                    lanes.unpark(|held| keys.contains(&held.key));
                }
            }
        }
    }
    shared.tell_news();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let news: Vec<Notification> = (0..1_000)
            .flat_map(|n| {
                [Notification::Entered(n, (i64::MIN + i64::from(n), i64::MAX)), Notification::Freed(n)]
            })
            .collect();
        let words = written("me", &news);
        assert!(words.len() > 1 && words.iter().all(|word| word.len() < 8_000));
        let mut heard = Vec::new();
        for word in &words {
            let (sender, news) = read(word).unwrap();
            assert_eq!(sender, "me");
            heard.extend(news);
        }
        assert_eq!(heard, news);
    }

    #[test]
    fn other_words_are_not_understood() {
        for word in ["x e", "x e 1 2", "x q 1", "x e a 1 2"] {
            assert_eq!(read(word), None, "{word:?}");
        }
        assert_eq!(read("- e 1 -2 3"), Some(("-", vec![Notification::Entered(1, (-2, 3))])));
    }
}
