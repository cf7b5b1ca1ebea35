//! Subcommands that open a store directly.

pub(super) mod backup;
pub(super) mod check;
pub(super) mod compact;
pub(super) mod copy;
pub(super) mod migrate;
pub(super) mod restore;
pub(super) mod upgrade_check;
