//! Loads the jobs that a statement can concern, page by page.

use super::Failure;
use super::message;
use super::narrow::Candidates;
use super::sandbox::{Accesses, COLUMNS, QueryError, Row, size};
use crate::bedrock::row;
use crate::query::Filter;
use rusqlite::types::Value;
use std::io;
use std::sync::Arc;
use windlass_core::{Job, JobId, Tenant};
use windlass_engine::Engine;

/// Jobs that one statement may read. They are copied; a million takes seconds and a few hundred megabytes.
const JOBS_MAX: usize = 1_000_000;
/// Bytes that one statement may copy.
const BYTES_MAX: usize = 256 << 20;
/// Jobs per page, as many as a store returns at once.
const PAGE: usize = 1_000;

pub(super) struct Loader<'a> {
    engine: &'a Engine,
    tenant: &'a Tenant,
    /// Ids still to load, if the statement names ids.
    ids: Option<Vec<JobId>>,
    filter: Filter,
    /// Replaces `data` by an empty object, for callers that may not see payloads.
    pub hides_data: bool,
    is_done: bool,
    jobs: usize,
    bytes: usize,
}

impl<'a> Loader<'a> {
    pub(super) fn new(engine: &'a Engine, tenant: &'a Tenant, candidates: Candidates) -> Loader<'a> {
        let Candidates { ids, names, states } = candidates;
        let ids = ids.map(|ids| {
            let mut ids: Vec<JobId> = ids.into_iter().filter_map(JobId::new).collect();
            ids.sort_unstable();
            ids.dedup();
            ids
        });
        let defaults = Filter::default();
        let filter = Filter {
            tenant: Some(tenant.clone()),
            names: names.unwrap_or(defaults.names.clone()),
            states: states.unwrap_or_default(),
            limit: PAGE,
            ..defaults
        };
        Loader { engine, tenant, ids, filter, hides_data: false, is_done: false, jobs: 0, bytes: 0 }
    }

    /// Returns the next page; `None`: no more jobs.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Arc<Job>>>, Failure> {
        if self.is_done {
            return Ok(None);
        }
        let jobs = match &mut self.ids {
            Some(ids) => {
                let some = ids.split_off(ids.len().saturating_sub(PAGE));
                self.is_done = ids.is_empty();
                self.engine.get(self.tenant, some).await?.into_iter().flatten().collect()
            }
            None => {
                let page = self.engine.list(self.filter.clone()).await?;
                self.filter.before = page.next;
                self.is_done = page.next.is_none();
                page.jobs
            }
        };
        self.jobs += jobs.len();
        if self.jobs > JOBS_MAX {
            let why =
                format!("the query reads more than {JOBS_MAX} jobs; restrict it by jobID, name or state");
            return Err(QueryError::TooLarge(why).into());
        }
        Ok(Some(jobs))
    }

    /// Writes a row for the process. Columns that the statement does not read are zero.
    pub(super) fn put_row(
        &mut self,
        job: &Job,
        wants: &Accesses,
        out: &mut Vec<u8>,
    ) -> io::Result<Result<(), QueryError>> {
        let mut seen = row::Row::of(job);
        if self.hides_data {
            seen.data = row::HIDDEN_DATA.into();
        }
        let mut row = cells(&seen);
        for (place, value) in row.iter_mut().enumerate() {
            if !wants.columns.contains(&place) && COLUMNS[place] != "jobID" {
                *value = Value::Integer(0);
            }
            self.bytes += size(value);
        }
        if self.bytes > BYTES_MAX {
            let limit = BYTES_MAX >> 20;
            let why = format!("the query reads more than {limit} MiB; restrict it, or select fewer columns");
            return Ok(Err(QueryError::TooLarge(why)));
        }
        message::put_row(&row, out).map(Ok)
    }
}

/// Values in the order of the table's columns.
pub(super) fn cells(row: &row::Row<'_>) -> Row {
    let text = |text: &str| Value::Text(text.to_owned());
    let number = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    [
        text(&row.created),
        number(row.job_id),
        text(row.state.as_str()),
        text(row.name),
        text(&row.next_run),
        row.last_run.as_deref().map_or(Value::Null, text),
        text(row.repeat),
        text(&row.data),
        Value::Integer(row.priority),
        number(row.parent_job_id),
        text(row.retry_after),
    ]
}
