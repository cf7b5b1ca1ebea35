//! Bedrock::Jobs: scheduled and repeating jobs, parents and children, GLOB claims, workers that wait; text over TCP.
//!
//! | file | holds |
//! |---|---|
//! | [`wire`] | bytes to requests, replies to bytes |
//! | [`errors`] | every status line |
//! | [`profile`] | which Bedrock is spoken, `seed` or `current` |
//! | [`row`] | a job as a row of the `jobs` table |
//! | [`query`] | SQL over the jobs |
//! | [`json`], [`times`] | texts that are changed or compared without being read |

pub mod errors;
pub mod json;
pub mod profile;
pub mod query;
pub mod row;
pub mod times;
pub mod wire;

pub use profile::Profile;
