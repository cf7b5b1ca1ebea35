//! Errors: refusal of a single entry ([`VerbError`], [`PushRefused`]), and failure of the whole call
//! ([`EngineError`]).

use windlass_core::{JobId, Refused, StateName};
use windlass_store::StoreError;

/// Failure of the whole call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the payload is {bytes} bytes long; the maximum is {max}")]
    TooLarge { bytes: usize, max: usize },
    #[error("the result or error is {bytes} bytes long; the maximum is {max}")]
    ReportTooLarge { bytes: usize, max: usize },
    #[error("the blob is larger than the maximum of {max} bytes (blobs.bytes_max)")]
    BlobTooLarge { max: u64 },
    #[error("{count} entries in one call; the maximum is {max}, send several calls")]
    TooMany { count: usize, max: usize },
    #[error("too many waiting claims; claim without waiting, or retry later")]
    TooManyWaiters,
    #[error(
        "this tenant has reached its quota of {max} {what}; retry when it uses less, or ask an admin \
         to raise the quota (PUT /api/v1/tenants/TENANT/quota)"
    )]
    Quota { what: &'static str, max: u64 },
    #[error(
        "this token has no access to {what}; an admin can create another token (`windlass token create \
     --queue`)"
    )]
    OutOfScope { what: String },
    /// Nothing was written: every commit lost to a concurrent change.
    #[error("the job is changed concurrently by others; retry")]
    Contended,
    #[error("the server is shutting down; retry in a moment")]
    ShuttingDown,
}

impl EngineError {
    /// Stable error code; part of the native API.
    pub fn code(&self) -> &'static str {
        match self {
            EngineError::Store(StoreError::Full(_)) => "store_full",
            EngineError::Store(StoreError::Unavailable(_)) => "store_unavailable",
            EngineError::Store(StoreError::Unknown(_)) => "outcome_unknown",
            EngineError::Store(StoreError::Corrupt(_)) => "store_damaged",
            EngineError::Store(StoreError::Open(_)) => "store_not_open",
            EngineError::Store(StoreError::Closed) | EngineError::ShuttingDown => "shutting_down",
            EngineError::Store(StoreError::Unsupported(_)) => "unsupported",
            EngineError::TooLarge { .. } | EngineError::ReportTooLarge { .. } => "payload_too_large",
            EngineError::BlobTooLarge { .. } => "blob_too_large",
            EngineError::TooMany { .. } => "batch_too_large",
            EngineError::TooManyWaiters => "too_many_waiters",
            EngineError::Quota { .. } => "quota_exceeded",
            EngineError::OutOfScope { .. } => "forbidden",
            EngineError::Contended => "contended",
        }
    }

    /// Error after a part of the call was committed: it must not claim that nothing was written.
    pub(crate) fn with_a_part_written(self) -> EngineError {
        let unknown = |why: &dyn std::fmt::Display| {
            StoreError::Unknown(format!("only part of the batch was written: {why}")).into()
        };
        match self {
            EngineError::Store(StoreError::Full(why) | StoreError::Unavailable(why)) => unknown(&why),
            EngineError::Store(StoreError::Closed) | EngineError::ShuttingDown | EngineError::Contended => {
                unknown(&self)
            }
            other => other,
        }
    }

    /// True if the same call may succeed later, unchanged.
    pub fn is_retryable(&self) -> bool {
        match self {
            EngineError::Store(StoreError::Full(_) | StoreError::Unavailable(_) | StoreError::Closed)
            | EngineError::TooManyWaiters
            | EngineError::Quota { .. }
            | EngineError::Contended
            | EngineError::ShuttingDown => true,
            EngineError::Store(
                StoreError::Unknown(_)
                | StoreError::Corrupt(_)
                | StoreError::Open(_)
                | StoreError::Unsupported(_),
            )
            | EngineError::TooLarge { .. }
            | EngineError::ReportTooLarge { .. }
            | EngineError::BlobTooLarge { .. }
            | EngineError::OutOfScope { .. }
            | EngineError::TooMany { .. } => false,
        }
    }
}

/// Refusal of one entry of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerbError {
    #[error("job not found")]
    NotFound,
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The run continues; its worker may report a smaller result.
    #[error(
        "the result or error is {bytes} bytes long; the maximum is {max}; you still hold the lease: \
         settle the job with less data, or store the data elsewhere"
    )]
    ReportTooLarge { bytes: usize, max: usize },
}

impl VerbError {
    pub fn code(self) -> &'static str {
        match self {
            VerbError::NotFound => "not_found",
            VerbError::Refused(refused) => refused.code(),
            VerbError::ReportTooLarge { .. } => "payload_too_large",
        }
    }
}

/// Reason why a push created no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushRefused {
    #[error("job {0} has this unique key")]
    Duplicate(JobId),
    #[error("parent job {0} not found")]
    NoParent(JobId),
    #[error("the parent is {0}; children can be added only to a running or waiting job")]
    ParentNotActive(StateName),
}

impl PushRefused {
    pub fn code(self) -> &'static str {
        match self {
            PushRefused::Duplicate(_) => "duplicate",
            PushRefused::NoParent(_) => "no_parent",
            PushRefused::ParentNotActive(_) => "parent_not_active",
        }
    }
}
