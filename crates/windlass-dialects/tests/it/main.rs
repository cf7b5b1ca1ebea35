//! Tests of the real router on a loopback port.

#![allow(unreachable_pub)]
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests, too")]

mod access;
mod acting;
mod audit;
mod bedrock;
mod bedrock_query;
mod boundaries;
mod connections;
mod delivery;
mod description;
mod documents;
mod errors;
mod events;
mod growth;
mod hidden;
mod jobs;
mod journal;
mod journal_positions;
mod jq;
mod miniq;
mod msgpack;
mod onlookers;
mod operations;
mod pages;
#[path = "../../../windlass-store/tests/it/postgres_server.rs"]
mod postgres_server;
mod queuey;
mod quotas;
mod retention;
mod schedules;
mod scopes;
mod sidejob;
mod steps;
mod stores;
mod support;
mod tenants;
mod tokens;
mod trails;
mod triage;
