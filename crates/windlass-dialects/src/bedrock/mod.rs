//! Bedrock::Jobs: scheduled and repeating jobs, parents and children, GLOB claims, workers that wait; text over TCP.
//!
//! | file | holds |
//! |---|---|
//! | [`wire`] | bytes to requests, replies to bytes |
//! | [`errors`] | every status line |
//! | [`profile`] | which Bedrock is spoken, `seed` or `current` |
//! | [`params`] | what a request may say |
//! | [`row`] | a job as a row of the `jobs` table |
//! | [`import`] | the jobs in a Bedrock database file |
//! | [`json`], [`times`] | texts that are changed or compared without being read |
//! | [`commands`] | the commands in the engine's verbs |
//! | [`query`] | SQL over the jobs |
//! | [`commits`] | the count of commits |
//! | [`browser`] | what is refused because a web page could have sent it |
//! | [`session`], [`later`] | one connection; commands nobody waits for |
//! | [`port`] | its keys, its port, what connections share |

pub mod browser;
pub mod commands;
pub mod commits;
pub mod deferred;
pub mod errors;
pub mod import;
pub mod json;
pub mod params;
pub mod port;
pub mod profile;
pub mod query;
pub mod row;
pub mod session;
pub mod times;
pub mod wire;

pub use port::{Bedrock, Settings};
pub use profile::Profile;
