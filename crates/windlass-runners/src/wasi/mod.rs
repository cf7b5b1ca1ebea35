//! WebAssembly modules as jobs: `wasi_snapshot_preview1` with standard input, output and error, and nothing else.
//!
//! ```text
//!   runner ──claims, tickles, settles──▶ desk (the server's own engine, or a server over HTTP)
//!     │
//!     ├── child ══ pipes ══ guest process: confine, then machine (compile once, run many)
//!     └── child ══ pipes ══ guest process …
//! ```
//!
//! A guest's code never runs in the process that holds the store and the tokens: `guest.rs` is the whole life of the
//! process it runs in, `../confine.rs` what that process gives up before it sees the first module.

pub mod child;
pub mod desk;
pub mod guest;
pub mod machine;
pub mod message;
pub mod preview1;
pub mod runner;

#[cfg(test)]
pub(crate) mod samples;
