//! Wire protocols. A dialect translates requests into engine calls, and their results into responses.
//!
//! | module | holds |
//! |---|---|
//! | [`dialect`] | traits of a dialect: its name, keys, calls and port; its running state |
//! | [`server`] | start and stop of the dialects on their ports |
//! | [`settings`] | configuration keys and their values |
//! | `http` | routing and authorization of calls |
//! | `problem` | error responses, in the format of each dialect |
//! | [`route`] | description of a call: method, path, role, handler |
//! | `audit` | record of the calls of operators and admins |
//! | [`auth`] | tokens, roles, tenants |
//! | [`blobs`] | blobs that a job refers to |
//! | [`guard`] | checks before a dialect gets the request |
//! | [`listener`], [`tls`] | connections, with limits on everything |
//! | [`arrivals`], [`budget`], [`pace`] | connections per address, memory for requests, minimum rate of uploads |
//! | [`codec`] | JSON and MessagePack without a tree in between |
//! | [`ingest`] | moves journaled jobs into the store |
//! | [`registered_handlers`], [`registered_workers`] | handlers and workers of the dialects |
//! | [`runners`] | traits of the runners of handlers |
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
mod audit;
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
pub mod tls;
mod weight;

pub(crate) use windlass_engine::query;

/// All dialects. The first one answers requests to paths that no dialect has.
pub const ALL: Dialects =
    &[&native::Native, &bedrock::Bedrock, &jq::Jq, &queuey::Queuey, &sidejob::SideJob, &miniq::Miniq];

pub use auth::{Role, TokenRecord, Tokens, generate_token};
pub use dialect::{Dialect, Dialects};
pub use server::{OwnPort, Ports, ServerOptions, Started, serve};
