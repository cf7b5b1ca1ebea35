//! WASI jobs: WebAssembly modules with `wasi_snapshot_preview1`, limited to standard input, output and error.
//!
//! ```text
//!   runner ──claim, heartbeat, settle──▶ source (the server's own engine, or a server over HTTP)
//!     │
//!     ├── child ══ pipes ══ guest process: confine, then machine (compile once, run many)
//!     └── child ══ pipes ══ guest process …
//! ```
//!
//! A guest's code never runs in the process that holds the store and the tokens: `guest.rs` is the main
//! function of the guest process, `../confine.rs` its confinement before it receives the first module.

pub mod child;
pub mod guest;
pub mod job_source;
pub mod machine;
pub mod message;
pub mod preview1;
pub mod runner;

#[cfg(test)]
pub(crate) mod samples;
