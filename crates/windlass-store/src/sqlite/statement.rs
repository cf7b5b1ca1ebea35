//! SQL statement that is prepared at its first use: a commit needs few of them.

use rusqlite::{CachedStatement, Connection, Params, Row, Rows};

pub(super) struct Statement<'c> {
    connection: &'c Connection,
    sql: &'static str,
    ready: Option<CachedStatement<'c>>,
}

impl<'c> Statement<'c> {
    pub(super) fn new(connection: &'c Connection, sql: &'static str) -> Statement<'c> {
        Statement { connection, sql, ready: None }
    }

    /// Fails if the tables do not have the expected columns.
    pub(super) fn prepare(&mut self) -> rusqlite::Result<&mut CachedStatement<'c>> {
        let prepared = match self.ready.take() {
            Some(prepared) => prepared,
            None => self.connection.prepare_cached(self.sql)?,
        };
        Ok(self.ready.insert(prepared))
    }

    pub(super) fn execute(&mut self, params: impl Params) -> rusqlite::Result<usize> {
        self.prepare()?.execute(params)
    }

    pub(super) fn query(&mut self, params: impl Params) -> rusqlite::Result<Rows<'_>> {
        self.prepare()?.query(params)
    }

    pub(super) fn query_row<T>(
        &mut self,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.prepare()?.query_row(params, read)
    }
}
