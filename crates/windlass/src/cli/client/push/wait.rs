//! Waits for a pushed job: shows its progress on a terminal, then its result.

use crate::cli::client::result;
use crate::client::{Accepted, Client};
use crate::fault::{Fault, Outcome};
use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Duration of one long poll: long enough to be cheap, short enough for proxies that cut idle connections.
const WAIT_MS: u64 = 20_000;
/// Interval between progress requests.
const LOOK_EVERY: Duration = Duration::from_millis(250);

pub(super) fn until_settled(client: &mut Client, id: u64, timeout_ms: Option<i64>, json: bool) -> Outcome {
    let watcher = std::io::stderr().is_terminal().then(|| Watcher::start(client.another(), id));
    let settled = wait(client, id, timeout_ms);
    if let Some(watcher) = watcher {
        watcher.stop();
    }
    result::print(id, &settled?, json)
}

fn wait(client: &mut Client, id: u64, timeout_ms: Option<i64>) -> Outcome<Accepted> {
    let patience = timeout_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
    let started = Instant::now();
    loop {
        let left_ms = patience.map(|patience| patience.saturating_sub(started.elapsed()).as_millis() as u64);
        let wait_ms = left_ms.unwrap_or(WAIT_MS).min(WAIT_MS);
        let path = format!("/api/v1/jobs/{id}/result?wait_ms={wait_ms}");
        let answer = client.call("GET", &path, None, wait_ms)?;
        if answer.status == 200 {
            return Ok(answer);
        }
        if left_ms == Some(0) {
            let state = output::plain(&answer.value()?["state"]);
            return Err(Fault::failed(format!("timed out: job {id} is still {state}, and is not affected")));
        }
    }
}

/// Shows the progress over a second connection, because the first is blocked by the long poll.
struct Watcher {
    done: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watcher {
    fn start(mut client: Client, id: u64) -> Watcher {
        let done = Arc::new(AtomicBool::new(false));
        let stop = done.clone();
        let thread = std::thread::spawn(move || {
            let bar = ProgressBar::new(100);
            if let Ok(style) =
                ProgressStyle::with_template("{prefix} {bar:30} {percent:>3}% {wide_msg} {elapsed}")
            {
                bar.set_style(style);
            }
            bar.set_prefix(format!("job {id}"));
            while !stop.load(Ordering::Relaxed) {
                if let Ok(job) = client.get(&format!("/api/v1/jobs/{id}")) {
                    show(&bar, &job);
                }
                std::thread::park_timeout(LOOK_EVERY);
            }
            bar.finish_and_clear();
        });
        Watcher { done, thread }
    }

    fn stop(self) {
        self.done.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let _ = self.thread.join();
    }
}

fn show(bar: &ProgressBar, job: &Value) {
    bar.set_position(job["progress"]["percent"].as_u64().unwrap_or(0));
    let note = job["progress"]["note"].as_str().or(job["state"].as_str()).unwrap_or_default();
    bar.set_message(output::harmless(note).into_owned());
}
