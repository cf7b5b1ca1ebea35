//! Subcommands that open a store directly.

pub mod backup;
pub mod check;
pub mod compact;
pub mod copy;
pub mod migrate;
