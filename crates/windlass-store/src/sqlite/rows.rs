//! Decoding of jobs from rows; used by the writer and by the readers.

use super::statement::Statement;
use crate::error::StoreError;
use crate::row::{self, AskedColumns, Sharing};
use rusqlite::{Connection, OptionalExtension, Row};
use std::sync::Arc;
use windlass_core::{Job, JobId};

macro_rules! columns {
    () => {
        "id, version, state, at, moves, tenant, queue, name, priority, created_at, format, payload, asked, asked_crc"
    };
}

pub(super) const COLUMNS: &str = columns!();

pub(super) struct Rows<'c> {
    one: Statement<'c>,
    parts: Parts<'c>,
}

/// Statements for the parts of a job in other tables.
pub(super) struct Parts<'c> {
    payload: Statement<'c>,
    body: Statement<'c>,
    sharing: Sharing,
}

impl<'c> Rows<'c> {
    pub(super) fn new(connection: &'c Connection) -> Rows<'c> {
        let one = concat!("SELECT ", columns!(), " FROM jobs WHERE id = ?1");
        Rows { one: Statement::new(connection, one), parts: Parts::new(connection) }
    }

    /// Continues with the shared names and policies of an earlier reader.
    pub(super) fn sharing(self, sharing: Sharing) -> Rows<'c> {
        Rows { parts: Parts { sharing, ..self.parts }, ..self }
    }

    pub(super) fn into_sharing(self) -> Sharing {
        self.parts.sharing
    }

    /// Fails if a table does not have the expected columns.
    pub(super) fn prepare_all(&mut self) -> Result<(), StoreError> {
        let all = [&mut self.one, &mut self.parts.payload, &mut self.parts.body];
        all.into_iter().try_for_each(|statement| statement.prepare().map(drop)).map_err(read_error)
    }

    pub(super) fn load(&mut self, id: JobId) -> Result<Option<Job>, StoreError> {
        let mut rows = self.one.query([id.get() as i64]).map_err(read_error)?;
        match rows.next().map_err(read_error)? {
            Some(row) => self.parts.job(row).map(Some),
            None => Ok(None),
        }
    }
}

impl<'c> Parts<'c> {
    pub(super) fn new(connection: &'c Connection) -> Parts<'c> {
        let prepare = |sql| Statement::new(connection, sql);
        Parts {
            payload: prepare("SELECT bytes FROM payloads WHERE id = ?1"),
            body: prepare("SELECT bytes, crc FROM bodies WHERE id = ?1"),
            sharing: Sharing::default(),
        }
    }

    /// Decodes a job from a row with `COLUMNS` and verifies every checksum.
    pub(super) fn job(&mut self, row: &Row<'_>) -> Result<Job, StoreError> {
        let number: i64 = row.get(0).map_err(read_error)?;
        let id = u64::try_from(number)
            .ok()
            .and_then(JobId::new)
            .ok_or_else(|| StoreError::Corrupt(format!("invalid job id {number}; restore a backup")))?;
        self.job_of(id, row).map_err(|error| match error {
            ReadError::Sqlite(error) => at_job(id, error),
            ReadError::Store(error) => error,
        })
    }

    fn job_of(&mut self, id: JobId, row: &Row<'_>) -> Result<Job, ReadError> {
        let version = row.get::<_, i64>(1)? as u64;
        let moves = row::read_moves(id, version, row.get(2)?, row.get(3)?, row.get_ref(4)?.as_blob()?)?;
        let inline = row.get_ref(11)?.as_blob_or_null()?;
        let apart: Option<Vec<u8>> = match inline {
            Some(_) => None,
            None => self.payload.query_row([id.get() as i64], |row| row.get(0)).optional()?,
        };
        let payload = inline.or(apart.as_deref());
        let payload = payload.ok_or_else(|| row::damaged(id, "its payload is missing"))?;
        let columns = AskedColumns {
            tenant: row.get_ref(5)?.as_str()?,
            queue: row.get_ref(6)?.as_str()?,
            name: row.get_ref(7)?.as_str()?,
            priority: row.get(8)?,
            created_at: row.get(9)?,
            format: row.get(10)?,
            payload,
            asked: row.get_ref(12)?.as_blob_or_null()?,
            crc: Some(row.get(13)?),
        };
        let spec = self.sharing.spec(id, &columns)?;
        let body = match moves.has_body {
            false => None,
            true => {
                let read = |row: &Row<'_>| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, u32>(1)?));
                let found = self.body.query_row([id.get() as i64], read).optional()?;
                let (bytes, crc) = found.ok_or_else(|| row::damaged(id, "its results are missing"))?;
                Some(row::read_body(id, &bytes, Some(crc))?)
            }
        };
        Ok(Job::from_parts(id, version, Arc::new(spec), moves.progress, body, moves.state))
    }
}

enum ReadError {
    Sqlite(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        ReadError::Sqlite(error)
    }
}

impl From<rusqlite::types::FromSqlError> for ReadError {
    fn from(error: rusqlite::types::FromSqlError) -> Self {
        ReadError::Sqlite(rusqlite::Error::from(error))
    }
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        ReadError::Store(error)
    }
}

/// A value of the wrong type in a column is damage; an SQLite error code is a failure of the file.
fn at_job(id: JobId, error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(_) => read_error(error),
        None => row::damaged(id, &error.to_string()),
    }
}

pub(super) fn read_error(error: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Corrupt(format!("{error}; nothing was changed, restore a backup"))
        }
        Some(ErrorCode::DiskFull) => StoreError::Full(error.to_string()),
        _ => StoreError::Unavailable(error.to_string()),
    }
}
