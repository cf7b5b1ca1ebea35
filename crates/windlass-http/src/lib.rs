//! Outgoing HTTP calls of the server: to workers that jobs are pushed to, to the URLs of http handlers, and to a
//! collector of traces and metrics.
//!
//! | module | content |
//! |---|---|
//! | [`outgoing`] | addresses that the server may call |
//! | [`signature`] | signatures that prove to the receiver who calls |
//! | [`target`] | parsed URL, resolved to allowed addresses |
//! | [`pool`] | kept connections to one URL; the only place that connects |
//!
//! Every connection goes through the same steps: resolve the name, keep the allowed addresses, connect to one of
//! these, then TLS. The address that is checked is the address that is connected to, so a name that changes its
//! address in between reaches nothing that is not allowed.

pub mod outgoing;
pub mod pool;
pub mod signature;
pub mod target;

pub use outgoing::Allowed;
pub use pool::{Call, CallError, Pool, Slot};
pub use signature::Signer;
pub use target::{BadUrl, Target};
