//! Pushes with SQL, inside a transaction of the caller.

use crate::error::Error;
use crate::wire::NewJob;

/// Statement and parameters of a push with SQL. The job exists if and only if the transaction commits.
///
/// The three parameters are texts, so that every driver can bind them. The statement returns the id of the job,
/// a `bigint`. It needs the PostgreSQL store.
///
/// With sqlx:
///
/// ```text
/// let push = send.with().sql(&mail)?;
/// let id: i64 = sqlx::query_scalar(&push.statement())
///     .bind(&push.name).bind(&push.payload).bind(&push.options)
///     .fetch_one(&mut *transaction).await?;
/// ```
///
/// With tokio-postgres:
///
/// ```text
/// let push = send.with().sql(&mail)?;
/// let row = transaction.query_one(&push.statement(), &[&push.name, &push.payload, &push.options]).await?;
/// let id: i64 = row.get(0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqlPush {
    /// First parameter: the name of the task.
    pub name: String,
    /// Second parameter: the payload as JSON.
    pub payload: String,
    /// Third parameter: the options as JSON.
    pub options: String,
    schema: String,
}

impl SqlPush {
    pub(crate) fn new(job: NewJob) -> Result<SqlPush, Error> {
        let options = serde_json::to_string(&job.options)
            .map_err(|source| Error::Value { what: "the options of the push".to_owned(), source })?;
        let payload = job.payload.get().to_owned();
        Ok(SqlPush { name: job.name, payload, options, schema: "windlass".to_owned() })
    }

    /// Schema of the server's tables (`store.schema`); `windlass` unless given.
    #[must_use]
    pub fn in_schema(mut self, schema: impl Into<String>) -> SqlPush {
        self.schema = schema.into();
        self
    }

    /// Statement with the parameters `$1`, `$2` and `$3`.
    #[must_use]
    pub fn statement(&self) -> String {
        let schema = self.schema.replace('"', "\"\"");
        format!("SELECT \"{schema}\".push($1::text, $2::text::jsonb, $3::text::jsonb)")
    }
}
