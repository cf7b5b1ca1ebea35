//! Trouble with a store. What a caller did wrong is not trouble: that is `Refused` or a `Verdict`.

#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing of the request happened. Space has to be made; until then nothing is acknowledged.
    #[error("the disk is full: {0}; free some space, the server goes on by itself")]
    Full(String),
    /// Nothing of the request happened; worth trying again.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The request may have happened or not.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// What is stored does not fit together; nothing was deleted.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    #[error("opening the store: {0}")]
    Open(String),
    #[error("the store is closed: the server is shutting down")]
    Closed,
    #[error("this store cannot do that: {0}")]
    Unsupported(String),
}
