//! Connections and a connection pool. A failed connection is discarded; the next user opens another.

use super::hosts::{Hosts, NoSession, Session};
use super::statements::{Query, Statements};
use crate::error::StoreError;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row, Statement};
use tracing::{debug, warn};

/// Time limit of one request to the database; large writes get more. On a healthy database no other request
/// takes a tenth of it, and a caller should learn soon that the database is not healthy.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(4);

/// Session settings for a server that was stopped or cut off: its open transaction and row locks must not
/// stay for the hours that TCP takes to detect it.
const WHEN_WE_ARE_GONE: &str = "SET idle_in_transaction_session_timeout = '15s'; SET tcp_keepalives_idle = 10; \
                                SET tcp_keepalives_interval = 3; SET tcp_keepalives_count = 3";

pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Settings for new connections, shared by all users of the database.
pub(super) struct Connector {
    pub hosts: Hosts,
    pub statements: Arc<Statements>,
    /// Uses prepared statements; false behind a pooler in transaction mode.
    pub prepares: bool,
    pub closed: AtomicBool,
}

impl Connector {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) async fn connect(self: &Arc<Self>) -> Result<Connection, Trouble> {
        self.connect_hearing(|message| {
            if let AsyncMessage::Notice(notice) = message {
                debug!("notice from PostgreSQL: {notice}");
            }
        })
        .await
    }

    /// Opens a connection; `hear` receives its asynchronous messages.
    pub(super) async fn connect_hearing(
        self: &Arc<Self>,
        mut hear: impl FnMut(AsyncMessage) + Send + 'static,
    ) -> Result<Connection, Trouble> {
        let Session { client, mut traffic, host } = self.hosts.connect().await?;
        let moving = tokio::spawn(async move {
            while let Some(message) = std::future::poll_fn(|context| traffic.poll_message(context)).await {
                match message {
                    Ok(message) => hear(message),
                    Err(error) => {
                        debug!(%error, "a connection to PostgreSQL was closed");
                        return;
                    }
                }
            }
        });
        let mut connection = Connection {
            client,
            host,
            connector: Arc::clone(self),
            prepared: Vec::new(),
            moving: moving.abort_handle(),
        };
        if self.prepares {
            connection.prepare_all().await?;
        }
        Ok(connection)
    }
}

pub(super) struct Connection {
    client: Client,
    /// Index of the host; see [`Hosts::is_current`].
    host: usize,
    connector: Arc<Connector>,
    prepared: Vec<Statement>,
    moving: tokio::task::AbortHandle,
}

impl Drop for Connection {
    /// Dropping the client closes the session properly. If the connection is already closed, the I/O task is
    /// aborted instead, because it may wait for a silent database.
    fn drop(&mut self) {
        if self.client.is_closed() {
            self.moving.abort();
        }
    }
}

impl Connection {
    /// Prepares all statements in one pipelined round trip.
    async fn prepare_all(&mut self) -> Result<(), Trouble> {
        let statements = Arc::clone(&self.connector.statements);
        let tidying = self.client.batch_execute(WHEN_WE_ARE_GONE);
        let preparing = statements
            .all()
            .map(|query| self.client.prepare_typed(statements.text(query), statements.types(query)));
        let preparing = futures_util::future::try_join_all(preparing);
        let both = futures_util::future::try_join(tidying, preparing);
        let prepared = tokio::time::timeout(ANSWER_MAX, both).await.map_err(|_| late())?;
        self.prepared = prepared?.1;
        Ok(())
    }

    pub(super) async fn query(&self, query: Query, params: Params<'_>) -> Result<Vec<Row>, Trouble> {
        let statements = &self.connector.statements;
        if self.connector.prepares && !statements.is_planned_anew(query) {
            return Ok(self.client.query(&self.prepared[query.place()], params).await?);
        }
        let typed: Vec<(&(dyn ToSql + Sync), Type)> =
            params.iter().copied().zip(statements.types(query).iter().cloned()).collect();
        Ok(self.client.query_typed(statements.text(query), &typed).await?)
    }

    /// Like [`Connection::say`], with a time limit.
    pub(super) async fn say_in_time(&self, sql: &str) -> Result<(), Trouble> {
        tokio::time::timeout(ANSWER_MAX, self.say(sql)).await.unwrap_or_else(|_| Err(late()))
    }

    /// Runs SQL without parameters, such as BEGIN.
    pub(super) async fn say(&self, sql: &str) -> Result<(), Trouble> {
        Ok(self.client.batch_execute(sql).await?)
    }

    /// True also if another host is the primary by now: this host may be silent, or accept writes that are
    /// lost.
    pub(super) fn is_broken(&self) -> bool {
        self.client.is_closed() || !self.connector.hosts.is_current(self.host)
    }

    /// Closes the connection at once; requests in flight are lost.
    pub(super) fn cut(&self) {
        self.moving.abort();
    }
}

/// Failure of a request, classified by the reaction to it.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Conflict with another transaction; a retry may succeed.
    Conflict(String),
    /// The connection is unusable.
    Lost(String),
    /// Same, after a timeout: another connection would most likely time out too.
    Silent(String),
    Refused(StoreError),
}

impl Trouble {
    /// Error for a caller whose request was certainly not applied.
    pub(super) fn not_done(self) -> StoreError {
        match self {
            Trouble::Conflict(why) | Trouble::Lost(why) | Trouble::Silent(why) => {
                StoreError::Unavailable(why)
            }
            Trouble::Refused(error) => error,
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Trouble::Lost(_) | Trouble::Silent(_))
    }
}

pub(super) fn late() -> Trouble {
    Trouble::Silent(format!("PostgreSQL did not respond within {} s", ANSWER_MAX.as_secs()))
}

impl From<NoSession> for Trouble {
    fn from(failure: NoSession) -> Trouble {
        match failure {
            NoSession::Error(error) => error.into(),
            NoSession::Silent(why) => Trouble::Silent(why),
            NoSession::Refused { said, .. } => {
                Trouble::Lost(format!("the connection to PostgreSQL is lost: {said}"))
            }
        }
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Trouble {
        let Some(said) = error.as_db_error() else {
            // The driver keeps the cause one level down.
            let why = std::error::Error::source(&error)
                .map_or(error.to_string(), |cause| format!("{error}: {cause}"));
            return Trouble::Lost(format!("the connection to PostgreSQL is lost: {why}"));
        };
        let why = format!("PostgreSQL: {}", said.message());
        let code = said.code();
        match code.code().get(..2) {
            _ if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED => {
                Trouble::Conflict(why)
            }
            _ if *code == SqlState::DISK_FULL => Trouble::Refused(StoreError::Full(why)),
            // A pooler assigned a connection without our prepared statements, the server is read-only, or
            // this process was suspended for so long that the database ended the session.
            _ if *code == SqlState::INVALID_SQL_STATEMENT_NAME
                || *code == SqlState::READ_ONLY_SQL_TRANSACTION
                || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT =>
            {
                Trouble::Lost(why)
            }
            Some("08" | "57" | "53") => Trouble::Lost(why),
            Some("XX") => Trouble::Refused(StoreError::Corrupt(format!("{why} ({})", code.code()))),
            _ => Trouble::Refused(StoreError::Unavailable(format!("{why} ({})", code.code()))),
        }
    }
}

/// Connection pool for short requests.
pub(super) struct Pool {
    connector: Arc<Connector>,
    idle: Mutex<Vec<Connection>>,
    room: Semaphore,
}

impl Pool {
    pub(super) fn new(connector: Arc<Connector>, size: usize) -> Pool {
        Pool { connector, idle: Mutex::default(), room: Semaphore::new(size) }
    }

    pub(super) async fn get(&self) -> Result<Borrowed<'_>, StoreError> {
        let room = tokio::time::timeout(ANSWER_MAX, self.room.acquire()).await;
        let room = room.map_err(|_| late().not_done())?.map_err(|_| StoreError::Closed)?;
        if self.connector.is_closed() {
            return Err(StoreError::Closed);
        }
        loop {
            let idle = self.idle.lock().pop();
            let connection = match idle {
                Some(connection) if connection.is_broken() => continue,
                Some(connection) => connection,
                None => self.connector.connect().await.map_err(Trouble::not_done)?,
            };
            return Ok(Borrowed { pool: self, connection: Some(connection), _room: room });
        }
    }

    /// Runs one query on any connection. An idle connection may have been lost, so a lost query is repeated
    /// once on a new one; the query must be idempotent.
    pub(super) async fn read(&self, query: Query, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        let mut is_second = false;
        loop {
            let mut borrowed = self.get().await?;
            let asked = borrowed.connection()?.query(query, params);
            match tokio::time::timeout(ANSWER_MAX, asked).await.unwrap_or_else(|_| Err(late())) {
                Ok(rows) => return Ok(rows),
                Err(trouble) => {
                    borrowed.throw_away();
                    if trouble.is_lost() {
                        // The other idle connections are most likely lost too.
                        self.forget_idle();
                    }
                    if is_second || !matches!(trouble, Trouble::Lost(_)) {
                        return Err(trouble.not_done());
                    }
                    is_second = true;
                }
            }
        }
    }

    /// Runs one small idempotent write in its own transaction; repeating it after a lost reply does no harm.
    pub(super) async fn write(&self, query: Query, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        self.read(query, params).await.inspect_err(|error| warn!(%error, "cannot write to PostgreSQL"))
    }

    pub(super) fn forget_idle(&self) {
        self.idle.lock().clear();
    }
}

pub(super) struct Borrowed<'p> {
    pool: &'p Pool,
    connection: Option<Connection>,
    _room: SemaphorePermit<'p>,
}

impl Borrowed<'_> {
    pub(super) fn connection(&self) -> Result<&Connection, StoreError> {
        self.connection.as_ref().ok_or(StoreError::Closed)
    }

    pub(super) fn throw_away(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.cut();
        }
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && !connection.is_broken()
            && !self.pool.connector.is_closed()
        {
            self.pool.idle.lock().push(connection);
        }
    }
}
