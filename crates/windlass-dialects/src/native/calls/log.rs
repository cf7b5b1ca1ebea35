//! `POST /api/v1/jobs/{id}/log`: log lines of a run.

use super::extend::ExtendedEntry;
use crate::codec::Text;
use crate::native::commands::within;
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, ok};
use crate::native::request::{Body, find};
use crate::native::wire;
use crate::route::{Call, Examples};
use schemars::JsonSchema;
use windlass_core::history::LOG_LINES_MAX;
use windlass_core::{Holder, Token};
use windlass_engine::{LogEntry, VerbError};

/// Lines per call, as many as are kept with a job.
const LINES_MAX: usize = LOG_LINES_MAX;

pub(super) const EXAMPLES: Examples = &[(
    "two",
    "two lines of output",
    r#"{"token":65537,"lines":["reading mail.csv","12 rows"],"source":"stderr"}"#,
)];

/// Log lines of a run; the last ones are kept with the job.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LogLines")]
pub(super) struct LogAsk<'a> {
    /// Lease token from the claim.
    #[schemars(with = "u64")]
    pub token: Token,
    /// Lines.
    #[serde(borrow)]
    pub lines: Vec<Text<'a>>,
    /// Source, such as stderr.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = wire::LABEL_BYTES_MAX))]
    pub source: Option<Text<'a>>,
}

pub(super) async fn log(mut call: Call) -> Answer {
    // Authorization comes first: errors about the body must not reveal anything to a caller that may not see
    // the job.
    let (tenant, job) = find(&call).await?;
    let body = Body::of(&mut call).await?;
    let ask: LogAsk<'_> = body.read()?;
    if ask.lines.len() > LINES_MAX {
        return Err(ApiError::bad_request(format!(
            "too many lines; the maximum per call is {LINES_MAX}, send several calls"
        )));
    }
    if let Some(source) = &ask.source {
        within("source", source, wire::LABEL_BYTES_MAX).map_err(ApiError::bad_request)?;
    }
    let entry = LogEntry {
        id: job.id,
        by: Some(Holder::Token(ask.token)),
        source: ask.source.as_deref().map(Into::into),
        lines: ask.lines.iter().map(|line| line.to_string()).collect(),
    };
    let mut answers = call.engine.log(&tenant, vec![entry]).await?;
    let extended = answers.pop().unwrap_or(Err(VerbError::NotFound))?;
    ok(&call, &ExtendedEntry::new(job.id, Ok(extended)))
}
