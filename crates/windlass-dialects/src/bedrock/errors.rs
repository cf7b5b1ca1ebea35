//! Status lines of all refusals in this dialect.

use super::wire::Reply;
use std::borrow::Cow;
use windlass_engine::{EngineError, Stop, VerbError};

/// Refusal. The reply consists of its status line only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusLine(pub Cow<'static, str>);

/// Defines constants with the exact text of the protocol.
macro_rules! statuses {
    ($($name:ident = $text:literal;)*) => {
        $(pub const $name: StatusLine = StatusLine(Cow::Borrowed($text));)*
    };
}

statuses! {
    QUEUED = "202 Successfully queued";
    UNIQUE_VIOLATION = "400 Unique Constraints Violation";
    INVALID_JSON = "401 Invalid JSON";
    UNAUTHORIZED = "401 Unauthorized";
    TOKEN_NEEDED = "401 Unauthorized: send a valid token in the header token";
    MISSING_NAME = "402 Missing name";
    MALFORMED_NAME = "402 Malformed name";
    MISSING_JOB_ID = "402 Missing jobID";
    MALFORMED_JOB_ID = "402 Malformed jobID";
    INVALID_PRIORITY = "402 Invalid priority value";
    MALFORMED_REPEAT = "402 Malformed repeat";
    MALFORMED_RETRY_AFTER = "402 Malformed retryAfter";
    RECURRING_RETRY = "402 Recurring auto-retrying jobs are not supported";
    UNIQUE_RETRY = "402 Unique auto-retrying jobs are not supported";
    NOT_AN_OBJECT = "402 Data is not a valid JSON Object";
    MISSING_DATA = "402 Missing data";
    MALFORMED_DATA = "402 Malformed data";
    MISSING_NUM_RESULTS = "402 Missing numResults";
    NUM_RESULTS_WITH_GET_JOB = "402 Cannot use numResults with GetJob; try GetJobs";
    NEGATIVE_DELAY = "402 Must specify a non-negative delay when retrying";
    MALFORMED_DELAY = "402 Malformed delay";
    TOO_LARGE_UNKNOWN = "413 Request too large: a request of more than 64 KiB must contain a valid token in its first 64 \
     KiB";
    BUSY = "503 Busy with other large requests; retry later";
    NO_JOB_FOUND = "404 No job found";
    NO_SUCH_JOB = "404 No job with this jobID";
    NO_PARENT = "404 parentJobID does not exist";
    OTHER_PARENT = "404 Trying to create a child that already exists, but it is tied to a different parent";
    CANCEL_WITH_CHILDREN = "404 Invalid jobID - Cannot cancel a job with children";
    CANCEL_WITHOUT_PARENT = "404 Invalid jobID - Cannot cancel a job without a parent";
    PARENT_NOT_ACTIVE = "405 Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED";
    OTHERWISE_MOCKED = "405 Parent and child jobs must have matching mockRequest setting";
    GRANDCHILDREN = "405 Cannot create grandchildren";
    NOT_OUT = "405 Can only retry/finish RUNNING and RUNQUEUED jobs";
    PARENT_NOT_PAUSED = "405 Can only retry/finish child job when parent is PAUSED";
    FAIL_NOT_OUT = "405 Can only fail RUNNING or RUNQUEUED jobs";
    DELETE_RUNNING = "405 Can't delete a RUNNING job";
    DELETE_PAUSED = "405 Can't delete a parent jobs with children running";
    UNRECOGNIZED = "430 Unrecognized command";
    MOCK_MISMATCH = "500 Mock Mismatch";
    SHUTTING_DOWN = "503 Shutting down";
    TIMEOUT = "555 Timeout";
    TIMEOUT_PEEKING = "555 Timeout peeking command";
    TIMEOUT_PROCESSING = "555 Timeout processing command";
}

impl From<StatusLine> for Reply {
    fn from(status: StatusLine) -> Reply {
        Reply::new(status.0)
    }
}

impl From<StatusLine> for Stop<StatusLine> {
    fn from(status: StatusLine) -> Stop<StatusLine> {
        Stop::Refuse(status)
    }
}

/// Errors of the engine. The reason is part of the status line, because the protocol has no other place for
/// it.
impl From<EngineError> for StatusLine {
    fn from(error: EngineError) -> StatusLine {
        match error {
            EngineError::ShuttingDown => SHUTTING_DOWN,
            EngineError::Quota { what, max } => StatusLine(Cow::Owned(format!(
                "429 Too many: this tenant has reached its quota of {max} {what}"
            ))),
            EngineError::OutOfScope { what } => {
                StatusLine(Cow::Owned(format!("403 Forbidden: this token has no access to {what}")))
            }
            EngineError::Contended => TIMEOUT_PROCESSING,
            EngineError::TooManyWaiters => StatusLine(Cow::Borrowed("503 Too many waiting workers")),
            EngineError::TooLarge { .. }
            | EngineError::ReportTooLarge { .. }
            | EngineError::BlobTooLarge { .. } => MALFORMED_DATA,
            EngineError::TooMany { max, .. } => {
                StatusLine(Cow::Owned(format!("402 Too many jobs; at most {max}")))
            }
            EngineError::Store(error) => {
                tracing::error!(%error, "a Bedrock command failed");
                StatusLine(Cow::Borrowed("502 Query failed"))
            }
        }
    }
}

/// Status of a verb that can only be refused because another client changed the job after it was checked.
pub fn conflict_status(error: VerbError, refused: StatusLine) -> StatusLine {
    match error {
        VerbError::NotFound => NO_SUCH_JOB,
        VerbError::Refused(_) => refused,
        VerbError::ReportTooLarge { .. } => MALFORMED_DATA,
    }
}
