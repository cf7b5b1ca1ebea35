//! Rigs: tests of the server's guarantees with the real program.
//!
//! | file | contents |
//! |---|---|
//! | `history` | requests of clients with times and responses |
//! | `load` | clients that use the whole API, and record the history |
//! | `check` | compares a history with the server's state afterwards, and reports violated invariants |
//! | `process` | the server as a process that may be killed, refused, or run under `strace` |
//! | `quiet` | load without faults, a clean stop, and draining |
//! | `kill` | `kill -9` under load, repeatedly, on the same data |
//! | `sweep` | kills before the first, second, third … system call that writes |
//! | `disk` | sync errors, full disks, slow disks |
//! | `rot` | flipped bits, cut, zeroed and missing files |
//! | `twice` | calls that take two commits |
//! | `cluster` | several servers on one PostgreSQL: killed, and with the database restarted, cut off, frozen |
//! | `clock` | steps of the system clock |
//! | `journal` | the journal on a failing disk, and after kills with an outdated `head` |
//! | `frozen` | workers that wake up after their lease |
//! | `power` | power cuts: data that was not synced is lost |
//!
//! In `cargo test` they are short. Longer: `WINDLASS_RIG_SECONDS` (load), `WINDLASS_KILLS`,
//! `WINDLASS_SWEEP=all`, `WINDLASS_ROT` (damages), `WINDLASS_CUTS`, `WINDLASS_SEED`. A violation prints the
//! seed and saves the history beside the build.

mod check;
mod clock;
pub mod cluster;
mod dice;
mod disk;
mod dump;
mod frozen;
mod history;
mod http;
mod journal;
mod kill;
mod load;
mod power;
pub mod process;
mod quiet;
mod rot;
mod scenario;
mod sweep;
mod twice;

/// Number from the environment, for longer runs of a rig.
fn setting(name: &str, short: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => short,
    }
}

/// Seed of a rig, printed with every finding; the same seed makes the same choices, though not the same
/// timing.
fn seed(rig: u64) -> u64 {
    setting("WINDLASS_SEED", 1) * 1_000 + rig
}

/// Prints a note on a run; shown with `--nocapture`.
#[expect(clippy::print_stdout, reason = "this is how tests speak")]
fn note(words: &str) {
    println!("{words}");
}
