//! Failures of a store. A mistake of the caller is no failure: that is `Refused` or a `Verdict`.

#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The request was not applied. Disk space has to be freed; until then no write is acknowledged.
    #[error("the disk is full: {0}; free some space, and the server resumes by itself")]
    Full(String),
    /// The request was not applied; a retry is worthwhile.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The request may have been applied or not.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// The stored data is inconsistent; nothing was deleted.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    #[error("cannot open the store: {0}")]
    Open(String),
    #[error("the store is closed: the server is shutting down")]
    Closed,
    #[error("not supported by this store: {0}")]
    Unsupported(String),
}
