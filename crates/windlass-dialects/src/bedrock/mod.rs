//! Bedrock::Jobs: scheduled and repeating jobs, parents and children, GLOB claims, long-polling workers; text
//! over TCP.
//!
//! | file | contents |
//! |---|---|
//! | [`wire`] | framing: bytes to requests, replies to bytes |
//! | [`errors`] | status lines |
//! | [`profile`] | differences between the profiles `seed` and `current` |
//! | [`params`] | parameters of a request |
//! | [`row`] | a job as a row of the `jobs` table |
//! | [`import`] | reader of a Bedrock database file |
//! | [`json`], [`times`] | JSON and timestamps, edited and compared as text |
//! | [`commands`] | the commands as engine calls |
//! | [`query`] | SQL over the jobs |
//! | [`commits`] | the commit counter in replies |
//! | [`browser`] | protection against requests forged by web pages |
//! | [`session`], [`deferred`] | one connection; commands run without a waiting client |
//! | [`port`] | configuration keys, port, state shared by connections |

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
