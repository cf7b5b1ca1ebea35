//! Tests that run real handlers with the interpreters of this machine.

#![allow(unreachable_pub)]
#![expect(clippy::unwrap_used, reason = "in tests")]

mod calls;
mod cgroups;
mod hostile;
mod http;
mod https;
mod interpreters;
mod pool;
mod rig;
mod sh;
mod walls;
#[cfg(feature = "wasi")]
mod wasi;
