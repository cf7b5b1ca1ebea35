//! Wire protocols. A dialect turns bytes into the engine's verbs and the engine's answers back into bytes.
//!
//! | module | holds |
//! |---|---|
//! | [`dialect`] | what a dialect is: its name, keys, calls and port; what it is when it runs |
//! | [`server`] | starts and stops the dialects on their ports |
//! | [`settings`] | configuration keys and their values |
//! | `http` | which call is meant, who may make it |
//! | `problem` | refusals over HTTP, in the words of each dialect |
//! | [`route`] | what a dialect lists for each of its calls: method, path, who may, what it does |
//! | [`auth`] | tokens, roles, tenants |
//! | [`blobs`] | which blobs a job names |
//! | [`guard`] | what is refused before a dialect sees the request |
//! | [`listener`], [`tls`] | connections, with limits on everything |
//! | [`arrivals`], [`budget`], [`pace`] | connections by address, memory for requests, how slowly they may come |
//! | [`codec`] | JSON and MessagePack without a tree in between |
//! | [`ingest`] | jobs that were acknowledged by the journal, on their way into the store |
//! | [`outgoing`] | which addresses the server may call by itself |
//! | [`signature`] | how those who are called know that it was the server |
//! | [`registered_handlers`], [`registered_workers`] | what dialects run jobs by, and whom they give them to |
//! | [`runners`] | what runs handlers, as dialects see it |
//! | [`native`] | the API under `/api/v1` |
//! | [`queuey`] | queuey-queue: `/jobs`, `/blob`, `/ping` |
//! | [`bedrock`] | Bedrock::Jobs over TCP |
//! | [`miniq`] | miniq: clients, lines, handlers: `/{client}/job`, `/{client}/handler` |
//! | [`jq`] | JQ: MessagePack jobs pushed to workers, under `/jq` |
//! | [`sidejob`] | SideJob: long-lived jobs with ports, under `/sidejob` |
//!
//! Adding a dialect is a folder and a line in [`ALL`].

mod answer;
pub mod arrivals;
pub mod auth;
pub mod bedrock;
pub mod blobs;
pub mod budget;
pub mod codec;
pub mod dialect;
pub mod guard;
mod http;
pub mod ingest;
pub mod jq;
pub mod listener;
pub mod miniq;
pub mod native;
pub mod outgoing;
pub mod pace;
mod problem;
pub mod queuey;
pub mod registered_handlers;
pub mod registered_workers;
pub mod route;
pub mod runners;
pub mod server;
pub mod settings;
pub mod sidejob;
pub mod signature;
pub mod tls;
mod weight;

pub(crate) use windlass_engine::query;

/// Every dialect there is. The first answers for paths that belong to none.
pub const ALL: Dialects =
    &[&native::Native, &bedrock::Bedrock, &jq::Jq, &queuey::Queuey, &sidejob::SideJob, &miniq::Miniq];

pub use auth::{Role, TokenRecord, Tokens, generate_token};
pub use dialect::{Dialect, Dialects};
pub use server::{OwnPort, Ports, ServerOptions, Started, serve};
