//! Tests of the real command against a real server, as a user would run them.

#![allow(unreachable_pub)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod audit;
mod bedrock;
mod bench;
mod browser;
mod bulk;
mod clients;
mod commands;
mod concepts;
mod copy;
mod dev;
mod discovery;
mod dist;
mod docs;
mod doctor;
mod documents;
mod failures;
mod families;
mod flood;
mod guide;
mod import;
mod init;
mod interrupts;
mod jq;
mod limits;
mod metrics;
mod miniq;
mod otel;
mod pages;
mod push;
mod queuey;
mod readme;
mod restore;
mod retention;
mod rigs;
mod schedules;
mod secrecy;
mod serve;
mod server;
mod sidejob;
mod signatures;
mod steps;
#[cfg(feature = "wasi")]
mod supply;
mod tidy;
mod tls;
mod transcripts;
mod triage;
mod upgrade_check;
mod walkthrough;
mod wasi;
mod watch;
mod work;
