//! Wire protocols. A dialect turns bytes into the engine's verbs and the engine's answers back into bytes.
//!
//! | module | holds |
//! |---|---|
//! | [`http`] | `serve`: all HTTP dialects on one port |
//! | [`route`] | what a dialect lists for each of its calls: method, path, who may, what it does |
//! | [`auth`] | tokens, roles, tenants |
//! | [`blobs`] | which blobs a job names |
//! | [`guard`] | what is refused before a dialect sees the request |
//! | [`listener`], [`tls`] | connections, with limits on everything |
//! | [`arrivals`], [`budget`], [`pace`] | connections by address, memory for requests, how slowly they may come |
//! | [`codec`] | JSON and MessagePack without a tree in between |
//! | [`journal`] | lines that are kept before the store has them |
//! | [`outgoing`] | which addresses the server may call by itself |
//! | [`signature`] | how those who are called know that it was the server |
//! | [`bedrock`] | Bedrock::Jobs on a port of its own |
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
pub mod guard;
pub mod handbook;
pub mod http;
pub mod journal;
pub mod jq;
pub mod listener;
pub mod miniq;
pub mod native;
pub mod outgoing;
pub mod pace;
pub mod queuey;
pub mod route;
pub mod sidejob;
pub mod signature;
pub mod staff;
pub mod tls;
mod weight;

pub(crate) use windlass_engine::query;

use axum::response::Response;
use route::{Refusal, Route};

/// One protocol over HTTP.
pub trait Dialect: Send + Sync {
    fn name(&self) -> &'static str;

    /// Every call it answers. The router, the authorisation and the API description are made from this list.
    fn routes(&self) -> &'static [Route];

    /// Says in this dialect's words that a request was refused before its handler was asked.
    fn refuse(&self, refusal: &Refusal) -> Response;

    /// Whether web pages from this origin may make calls; by default only our own may.
    fn lets_in(&self, _server: &http::Server, _origin: &str) -> bool {
        false
    }
}

pub const ALL: &[&dyn Dialect] =
    &[&native::Native, &jq::Jq, &queuey::Queuey, &miniq::Miniq, &sidejob::SideJob];

pub use auth::{Role, TokenRecord, Tokens, generate_token};
pub use http::{HttpOptions, QueueyDoor, serve};
