//! Things that execute jobs. A runner knows how to run one thing to its end and what to make of that end; where jobs come
//! from and whom their outcome is told is its caller's business.

pub mod confine;
pub mod handlers;
pub mod process;
pub mod spawn;
#[cfg(feature = "wasi")]
pub mod wasi;
