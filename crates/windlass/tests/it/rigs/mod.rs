//! The rigs: the promises of the server, put to the proof on the real program.
//!
//! | file | does |
//! |---|---|
//! | `history` | what clients asked, when, and what they were told |
//! | `load` | clients that ask for everything the API offers, and write the history |
//! | `check` | reads a history and what the server holds afterwards, and says which promise was broken |
//! | `process` | the server as a process that may be killed, refused, or run under `strace` |
//! | `quiet` | load without trouble, a clean stop, and everything drained |
//! | `kill` | `kill -9` under load, again and again, on the same data |
//! | `sweep` | killed before the first, second, third … call of the kernel that writes |
//! | `disk` | sync errors, full disks, slow disks |
//! | `rot` | flipped bits, cut, zeroed and missing files |
//! | `twice` | calls that take two commits |
//! | `cluster` | several servers on one PostgreSQL: killed, and with the database restarted, cut off, frozen |
//! | `clock` | the machine's clock is set |
//! | `journal` | the journal on a disk that fails |
//! | `frozen` | workers that wake up after their lease |
//! | `power` | the power is cut: what was not synced is lost |
//!
//! In `cargo test` they are short. Longer: `WINDLASS_RIG_SECONDS` (load), `WINDLASS_KILLS`, `WINDLASS_SWEEP=all`,
//! `WINDLASS_ROT` (damages), `WINDLASS_CUTS`, `WINDLASS_SEED`. A broken promise prints the seed and leaves the history beside the build.

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

/// A number from the environment, to make a rig run longer.
fn setting(name: &str, short: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => short,
    }
}

/// Printed with every finding; the same seed makes the same choices, though not the same timing.
fn seed(rig: u64) -> u64 {
    setting("WINDLASS_SEED", 1) * 1_000 + rig
}

/// For the record of a run; shown with `--nocapture`.
#[expect(clippy::print_stdout, reason = "this is how tests speak")]
fn note(words: &str) {
    println!("{words}");
}
