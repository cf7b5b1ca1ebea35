//! Connection of one writer, and the end of its transactions. If the reply to a commit was lost, the database
//! is asked whether the transaction was aborted; unless it was, the outcome is unknown.

use super::connection::{ANSWER_MAX, Connection, Connector, Trouble, late};
use super::statements as sql;
use crate::error::StoreError;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::Row;
use tracing::warn;

/// Pause after a failed connection attempt; requests are refused meanwhile.
const LEAVE_ALONE: Duration = Duration::from_millis(250);
/// Time limit and interval for finding out the outcome of a transaction.
const FIND_OUT_MAX: Duration = Duration::from_secs(4);
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Tries of a transaction that conflicts with others.
pub(super) const TRIES_MAX: usize = 10;

/// Pipelined statements: sent in order, without waiting for each reply.
pub(super) type Sending<'a> = Vec<Pin<Box<dyn Future<Output = Result<Vec<Row>, Trouble>> + Send + 'a>>>;

/// Identity of a transaction in the database.
#[derive(Clone, Debug)]
pub(super) struct Name {
    xid: String,
    /// Timeline of the database: after a failover the same xid may be another transaction.
    timeline: String,
}

impl Name {
    pub(super) fn of(rows: &[Row]) -> Option<Name> {
        rows.first().map(|row| Name { xid: row.get(0), timeline: row.get(1) })
    }
}

/// Outcome of a failed transaction.
pub(super) enum End {
    /// Not applied.
    Undone(Trouble),
    Unknown(String),
}

pub(super) struct Slot {
    connector: Arc<Connector>,
    connection: Option<Connection>,
    failed_at: Option<(Instant, String)>,
}

impl Slot {
    pub(super) fn new(connector: Arc<Connector>) -> Slot {
        Slot { connector, connection: None, failed_at: None }
    }

    /// True if an existing connection would be used, which may have been lost since.
    pub(super) fn is_used(&self) -> bool {
        self.connection.is_some()
    }

    pub(super) async fn connection(&mut self) -> Result<&Connection, StoreError> {
        if self.connector.is_closed() {
            return Err(StoreError::Closed);
        }
        if self.connection.as_ref().is_none_or(Connection::is_broken) {
            if let Some((at, why)) = &self.failed_at
                && at.elapsed() < LEAVE_ALONE
            {
                return Err(StoreError::Unavailable(why.clone()));
            }
            match self.connector.connect().await {
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

    pub(super) fn throw_away(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.cut();
        }
    }

    /// Rolls back an open transaction.
    pub(super) async fn roll_back(&mut self) {
        let Some(connection) = &self.connection else { return };
        let rolled_back = tokio::time::timeout(ANSWER_MAX, connection.say("ROLLBACK")).await;
        if !matches!(rolled_back, Ok(Ok(()))) {
            self.throw_away();
        }
    }

    /// Ends the transaction after a failure before the commit was sent.
    pub(super) async fn undo(&mut self, trouble: Trouble) -> Trouble {
        if trouble.is_lost() {
            self.throw_away();
        } else {
            self.roll_back().await;
        }
        trouble
    }

    /// Determines the outcome after a failure of the last statements and the commit, which were sent
    /// together.
    pub(super) async fn find_out(&mut self, name: &Name, trouble: Trouble) -> End {
        if !trouble.is_lost() {
            // A statement failed, so the commit became a rollback.
            return End::Undone(trouble);
        }
        self.throw_away();
        let why = trouble.not_done().to_string();
        warn!("the response to a commit was lost ({why}); querying its outcome");
        let began = Instant::now();
        while began.elapsed() < FIND_OUT_MAX && !self.connector.is_closed() {
            match self.status(name).await {
                Ok(true) => return End::Undone(Trouble::Lost(why)),
                Ok(false) => return End::Unknown(why),
                Err(()) => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
        End::Unknown(why)
    }

    /// True if the transaction was certainly not applied. `Err`: ask again. "Committed" proves nothing: after
    /// a crash the xid of a lost transaction may have been reused.
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

/// Sends all statements and awaits all replies; returns the first failure.
pub(super) async fn all(sending: Sending<'_>) -> Result<Vec<Vec<Row>>, Trouble> {
    all_within(ANSWER_MAX, sending).await
}

pub(super) async fn all_within(time: Duration, sending: Sending<'_>) -> Result<Vec<Vec<Row>>, Trouble> {
    let answers = tokio::time::timeout(time, futures_util::future::join_all(sending)).await;
    answers.map_err(|_| late())?.into_iter().collect()
}

/// Time limit of a write of this size on a slow machine.
pub(super) fn patience(jobs: usize, bytes: usize) -> Duration {
    let for_jobs = Duration::from_millis(2).saturating_mul(u32::try_from(jobs).unwrap_or(u32::MAX));
    let for_bytes = Duration::from_micros(u64::try_from(bytes).unwrap_or(u64::MAX));
    ANSWER_MAX + for_jobs + for_bytes
}

/// SQL without parameters, such as BEGIN, among the pipelined statements.
pub(super) fn said<'a>(
    connection: &'a Connection,
    words: &'static str,
) -> Pin<Box<dyn Future<Output = Result<Vec<Row>, Trouble>> + Send + 'a>> {
    Box::pin(async move { connection.say(words).await.map(|()| Vec::new()) })
}
