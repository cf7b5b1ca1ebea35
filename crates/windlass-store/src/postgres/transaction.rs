//! One writer's connection, and how its transactions end. Where an answer got lost, the database is asked
//! whether the transaction was taken back; unless it was, its outcome is unknown.

use super::connection::{ANSWER_MAX, Connection, Door, Trouble, late};
use super::statements as sql;
use crate::error::StoreError;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::Row;
use tracing::warn;

/// How long a database that could not be reached is left alone; requests are refused meanwhile.
const LEAVE_ALONE: Duration = Duration::from_millis(250);
/// How long to go on asking what became of a transaction, and how often.
const FIND_OUT_MAX: Duration = Duration::from_secs(4);
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Times the same transaction is tried when others are in its way.
pub const TRIES_MAX: usize = 10;

/// Statements on their way together: sent in order, without waiting for one another.
pub type Sending<'a> = Vec<Pin<Box<dyn Future<Output = Result<Vec<Row>, Trouble>> + Send + 'a>>>;

/// Which transaction this is, as the database calls it.
#[derive(Clone, Debug)]
pub struct Name {
    xid: String,
    /// Of the database's history: after a failover the same number may be another transaction.
    timeline: String,
}

impl Name {
    pub fn of(rows: &[Row]) -> Option<Name> {
        rows.first().map(|row| Name { xid: row.get(0), timeline: row.get(1) })
    }
}

/// How a transaction ended.
pub enum End {
    /// Nothing of it happened.
    Undone(Trouble),
    Unknown(String),
}

pub struct Slot {
    door: Arc<Door>,
    connection: Option<Connection>,
    failed_at: Option<(Instant, String)>,
}

impl Slot {
    pub fn new(door: Arc<Door>) -> Slot {
        Slot { door, connection: None, failed_at: None }
    }

    /// Whether a connection that has been used before would be used again: it may have died since.
    pub fn is_used(&self) -> bool {
        self.connection.is_some()
    }

    pub async fn connection(&mut self) -> Result<&Connection, StoreError> {
        if self.door.is_closed() {
            return Err(StoreError::Closed);
        }
        if self.connection.as_ref().is_none_or(Connection::is_broken) {
            if let Some((at, why)) = &self.failed_at
                && at.elapsed() < LEAVE_ALONE
            {
                return Err(StoreError::Unavailable(why.clone()));
            }
            match self.door.connect().await {
                Ok(connection) => {
                    self.failed_at = None;
                    self.connection = Some(connection);
                }
                Err(trouble) => {
                    let error = trouble.not_done();
                    self.failed_at = Some((Instant::now(), error.to_string()));
                    return Err(error);
                }
            }
        }
        self.connection.as_ref().ok_or(StoreError::Closed)
    }

    pub fn throw_away(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.cut();
        }
    }

    /// Takes back what an unfinished transaction did.
    pub async fn roll_back(&mut self) {
        let Some(connection) = &self.connection else { return };
        let rolled_back = tokio::time::timeout(ANSWER_MAX, connection.say("ROLLBACK")).await;
        if !matches!(rolled_back, Ok(Ok(()))) {
            self.throw_away();
        }
    }

    /// Nothing was committed yet when this went wrong.
    pub async fn undo(&mut self, trouble: Trouble) -> Trouble {
        if trouble.is_lost() {
            self.throw_away();
        } else {
            self.roll_back().await;
        }
        trouble
    }

    /// After the last statements and the commit were sent together and something went wrong.
    pub async fn find_out(&mut self, name: &Name, trouble: Trouble) -> End {
        if !trouble.is_lost() {
            // One of the statements was refused, and the commit became a rollback.
            return End::Undone(trouble);
        }
        self.throw_away();
        let why = trouble.not_done().to_string();
        warn!("the answer to a commit was lost ({why}); asking what became of it");
        let began = Instant::now();
        while began.elapsed() < FIND_OUT_MAX && !self.door.is_closed() {
            match self.status(name).await {
                Ok(true) => return End::Undone(Trouble::Lost(why)),
                Ok(false) => return End::Unknown(why),
                Err(()) => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
        End::Unknown(why)
    }

    /// Whether it certainly did not happen. `Err`: ask again. "Committed" proves nothing: after a crash the number of a
    /// transaction that was lost may have been given to another.
    async fn status(&mut self, name: &Name) -> Result<bool, ()> {
        let connection = self.connection().await.map_err(drop)?;
        let params: super::connection::Params<'_> = &[&name.xid];
        let asked = connection.query(sql::XACT_STATUS, params);
        let answer = tokio::time::timeout(ANSWER_MAX, asked).await.unwrap_or_else(|_| Err(late()));
        let rows = match answer {
            Ok(rows) => rows,
            Err(trouble) if trouble.is_lost() => {
                self.throw_away();
                return Err(());
            }
            Err(_) => return Ok(false),
        };
        let (status, timeline): (Option<String>, String) = match rows.first() {
            Some(row) => (row.get(0), row.get(1)),
            None => return Ok(false),
        };
        match status.as_deref() {
            Some("in progress") => Err(()),
            Some("aborted") => Ok(timeline == name.timeline),
            _ => Ok(false),
        }
    }
}

/// Sends all, and waits for all answers; the first trouble counts.
pub async fn all(sending: Sending<'_>) -> Result<Vec<Vec<Row>>, Trouble> {
    all_within(ANSWER_MAX, sending).await
}

pub async fn all_within(time: Duration, sending: Sending<'_>) -> Result<Vec<Vec<Row>>, Trouble> {
    let answers = tokio::time::timeout(time, futures_util::future::join_all(sending)).await;
    answers.map_err(|_| late())?.into_iter().collect()
}

/// How long a write of this size may take on a slow machine.
pub fn patience(jobs: usize, bytes: usize) -> Duration {
    let for_jobs = Duration::from_millis(2).saturating_mul(u32::try_from(jobs).unwrap_or(u32::MAX));
    let for_bytes = Duration::from_micros(u64::try_from(bytes).unwrap_or(u64::MAX));
    ANSWER_MAX + for_jobs + for_bytes
}

/// BEGIN and the like, among the statements.
pub fn said<'a>(
    connection: &'a Connection,
    words: &'static str,
) -> Pin<Box<dyn Future<Output = Result<Vec<Row>, Trouble>> + Send + 'a>> {
    Box::pin(async move { connection.say(words).await.map(|()| Vec::new()) })
}
