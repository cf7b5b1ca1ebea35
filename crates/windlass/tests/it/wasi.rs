//! WASI jobs: guest processes of the real program, and a runner that uses them.

mod children;
mod job_source;
mod page;
mod runner;
#[allow(dead_code, reason = "shared with the tests of the runners, which use the others")]
#[path = "../../../windlass-runners/src/wasi/samples.rs"]
mod samples;
mod whole_way;

use windlass_runners::wasi::child::GuestProgram;
use windlass_runners::wasi::message::Limits;

fn program() -> GuestProgram {
    GuestProgram { path: env!("CARGO_BIN_EXE_windlass").into(), args: vec!["run-wasi-guest".to_owned()] }
}

/// Time limit generous for a busy machine; tests of the time limit shorten it.
fn limits() -> Limits {
    Limits { time_limit_ms: 60_000, memory_bytes_max: 4 << 20, output_bytes_max: 1 << 20, cache_modules: 4 }
}
