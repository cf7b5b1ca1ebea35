//! One connection, and a few of them to share. A connection that failed is thrown away; the next user makes another.

use super::hosts::{Hosts, NoSession, Session};
use super::statements::{Query, Statements};
use crate::error::StoreError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row, Statement};
use tracing::{debug, warn};

/// Longest time for one request to the database; large writes get more. Nothing else the store asks takes a tenth of it on a
/// healthy one, and whoever asked should hear soon that it is not.
pub const ANSWER_MAX: Duration = Duration::from_secs(4);

/// What the database does with a session whose server was cut off or stopped: its transaction, and the rows that this
/// locks, must not stay for the hours that TCP takes to notice.
const WHEN_WE_ARE_GONE: &str = "SET idle_in_transaction_session_timeout = '15s'; SET tcp_keepalives_idle = 10; \
                                SET tcp_keepalives_interval = 3; SET tcp_keepalives_count = 3";

pub type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// How to connect; shared by everyone who does.
pub struct Door {
    pub hosts: Hosts,
    pub statements: Arc<Statements>,
    /// Named statements, prepared once per connection; not through a pooler that changes connections under us.
    pub prepares: bool,
    pub closed: AtomicBool,
}

impl Door {
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub async fn connect(self: &Arc<Self>) -> Result<Connection, Trouble> {
        self.connect_hearing(|message| {
            if let AsyncMessage::Notice(notice) = message {
                debug!("PostgreSQL says: {notice}");
            }
        })
        .await
    }

    /// `hear` gets what the database says unasked.
    pub async fn connect_hearing(
        self: &Arc<Self>,
        mut hear: impl FnMut(AsyncMessage) + Send + 'static,
    ) -> Result<Connection, Trouble> {
        let Session { client, mut traffic, host } = self.hosts.connect().await?;
        let moving = tokio::spawn(async move {
            while let Some(message) = std::future::poll_fn(|context| traffic.poll_message(context)).await {
                match message {
                    Ok(message) => hear(message),
                    Err(error) => {
                        debug!(%error, "a connection to PostgreSQL ended");
                        return;
                    }
                }
            }
        });
        let mut connection = Connection {
            client,
            host,
            door: Arc::clone(self),
            prepared: Vec::new(),
            moving: moving.abort_handle(),
        };
        if self.prepares {
            connection.prepare_all().await?;
        }
        Ok(connection)
    }
}

pub struct Connection {
    client: Client,
    /// Which of the hosts; see [`Hosts::is_current`].
    host: usize,
    door: Arc<Door>,
    prepared: Vec<Statement>,
    moving: tokio::task::AbortHandle,
}

impl Drop for Connection {
    /// The client's end ends the other in good order, unless the database is silent: nothing must wait for it.
    fn drop(&mut self) {
        if self.client.is_closed() {
            self.moving.abort();
        }
    }
}

impl Connection {
    /// All sent at once: whoever waits for the connection waits for one answer, not for each in turn.
    async fn prepare_all(&mut self) -> Result<(), Trouble> {
        let statements = Arc::clone(&self.door.statements);
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

    pub async fn query(&self, query: Query, params: Params<'_>) -> Result<Vec<Row>, Trouble> {
        let statements = &self.door.statements;
        if self.door.prepares && !statements.is_planned_anew(query) {
            return Ok(self.client.query(&self.prepared[query.place()], params).await?);
        }
        let typed: Vec<(&(dyn ToSql + Sync), Type)> =
            params.iter().copied().zip(statements.types(query).iter().cloned()).collect();
        Ok(self.client.query_typed(statements.text(query), &typed).await?)
    }

    /// As [`Connection::say`], with an answer in time.
    pub async fn say_in_time(&self, sql: &str) -> Result<(), Trouble> {
        tokio::time::timeout(ANSWER_MAX, self.say(sql)).await.unwrap_or_else(|_| Err(late()))
    }

    /// Words without parameters: BEGIN and the like.
    pub async fn say(&self, sql: &str) -> Result<(), Trouble> {
        Ok(self.client.batch_execute(sql).await?)
    }

    /// Also when the primary is another host by now: this one may be silent, or may take writes that nobody will see.
    pub fn is_broken(&self) -> bool {
        self.client.is_closed() || !self.door.hosts.is_current(self.host)
    }

    /// Ends the connection without a word: what is on its way is lost.
    pub fn cut(&self) {
        self.moving.abort();
    }
}

/// What went wrong with a request, by what there is to do about it.
#[derive(Debug)]
pub enum Trouble {
    /// Another transaction was in the way; the same again may work.
    Conflict(String),
    /// The connection is of no use any more.
    Lost(String),
    /// The same, after waiting in vain: another connection would most likely be silent too.
    Silent(String),
    Refused(StoreError),
}

impl Trouble {
    /// What a caller is told whose request certainly did not happen.
    pub fn not_done(self) -> StoreError {
        match self {
            Trouble::Conflict(why) | Trouble::Lost(why) | Trouble::Silent(why) => {
                StoreError::Unavailable(why)
            }
            Trouble::Refused(error) => error,
        }
    }

    pub fn is_lost(&self) -> bool {
        matches!(self, Trouble::Lost(_) | Trouble::Silent(_))
    }
}

pub fn late() -> Trouble {
    Trouble::Silent(format!("PostgreSQL did not answer within {} s", ANSWER_MAX.as_secs()))
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
            // The driver keeps what happened to the connection one level down.
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
            // A pooler gave us a connection that never saw our statements, or a server that cannot be written to; or this
            // process stood still for so long that the database has given the session up.
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

/// A few connections for whoever needs one for a moment.
pub struct Pool {
    door: Arc<Door>,
    idle: Mutex<Vec<Connection>>,
    room: Semaphore,
}

impl Pool {
    pub fn new(door: Arc<Door>, size: usize) -> Pool {
        Pool { door, idle: Mutex::default(), room: Semaphore::new(size) }
    }

    pub async fn get(&self) -> Result<Borrowed<'_>, StoreError> {
        let room = tokio::time::timeout(ANSWER_MAX, self.room.acquire()).await;
        let room = room.map_err(|_| late().not_done())?.map_err(|_| StoreError::Closed)?;
        if self.door.is_closed() {
            return Err(StoreError::Closed);
        }
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = match idle {
                Some(connection) if connection.is_broken() => continue,
                Some(connection) => connection,
                None => self.door.connect().await.map_err(Trouble::not_done)?,
            };
            return Ok(Borrowed { pool: self, connection: Some(connection), _room: room });
        }
    }

    /// One question on any connection. A connection may have died while it lay idle, so a question that only reads is asked
    /// a second time on a new one.
    pub async fn read(&self, query: Query, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        let mut is_second = false;
        loop {
            let mut borrowed = self.get().await?;
            let asked = borrowed.connection()?.query(query, params);
            match tokio::time::timeout(ANSWER_MAX, asked).await.unwrap_or_else(|_| Err(late())) {
                Ok(rows) => return Ok(rows),
                Err(trouble) => {
                    borrowed.throw_away();
                    if trouble.is_lost() {
                        // The others are most likely no better.
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

    /// One small write, by itself. Repeating any of these does no harm, so a lost answer is no mystery.
    pub async fn write(&self, query: Query, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        self.read(query, params).await.inspect_err(|error| warn!(%error, "writing to PostgreSQL"))
    }

    pub fn forget_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

pub struct Borrowed<'p> {
    pool: &'p Pool,
    connection: Option<Connection>,
    _room: SemaphorePermit<'p>,
}

impl Borrowed<'_> {
    pub fn connection(&self) -> Result<&Connection, StoreError> {
        self.connection.as_ref().ok_or(StoreError::Closed)
    }

    pub fn throw_away(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.cut();
        }
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && !connection.is_broken()
            && !self.pool.door.is_closed()
        {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}
