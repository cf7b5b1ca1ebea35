//! `windlass work`: claims jobs and runs a command for each.
//!
//! One thread claims, one sends heartbeats ([`held`]), and each job has a thread for its process
//! ([`process`]). They share one table of claimed jobs.

mod guard;
mod held;
mod process;
mod stderr;
mod verdict;

use crate::client::{Client, ClientError, Interrupter, ServerArgs};
use crate::fault::{Fault, Outcome};
use crate::human_time;
use crate::output;
use clap::Args;
use held::{Counted, Held, Run, Table};
use process::Job;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use verdict::{Entry, Failure, FatalCodes, Settled, Verdict};
use windlass_runners::process::ProcessEnd;

/// Duration of one long-poll claim: long enough to be cheap, short enough for proxies that cut idle
/// connections.
const WAIT_MS: u64 = 20_000;
/// First and longest backoff while the server is unreachable.
const AWAY_FIRST: Duration = Duration::from_millis(200);
const AWAY_MOST: Duration = Duration::from_secs(5);
/// Time to retry reporting a result to an unreachable server; the lease has expired long before.
const OFFER_FOR: Duration = Duration::from_secs(300);

/// Claim jobs and run a command for each
///
/// The command gets the payload on standard input, and WINDLASS_JOB_ID, WINDLASS_JOB_NAME, WINDLASS_JOB_QUEUE,
/// WINDLASS_JOB_ATTEMPT, WINDLASS_JOB_PRIORITY and WINDLASS_SERVER in its environment. Its standard output becomes the
/// result (JSON if it parses as JSON, otherwise text), except lines `::progress PERCENT NOTE`, which report progress.
/// The last lines of standard error are stored in the log of the job.
///
/// Exit code 0 finishes the job. 75 asks for another attempt, which does not count as a failure; it follows 10 seconds later
/// (--retry-delay). 65 fails the job for good (--fatal-exit-codes). Any other exit code, a death by a signal or an exceeded
/// --timeout is a failed attempt: the job is retried by its own rules (push --retry) and fails when no attempt is left. The
/// end of standard error is kept as the backtrace of the failure; its message is the exception that it names, or the last
/// line. WINDLASS_TOKEN is removed from the environment of the command.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass work mail -- ./send-mail
  windlass work '*' --queue reports --concurrency 8 -- python3 report.py
  windlass work resize --drain -- sh -c 'convert - -resize 50% out.png'
  windlass work import --fatal-exit-codes 65,70 -- ./import-row")]
pub(crate) struct WorkArgs {
    /// Pattern of the job names to claim, with *, ? and [a-z]
    #[arg(value_name = "GLOB")]
    name: String,
    /// Command to run for each job, with its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
    /// Claim jobs of this queue only; may be repeated [default: all queues]
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,
    /// Maximum number of jobs running at the same time
    #[arg(long, short = 'c', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
    /// Lease: without a heartbeat for this long, the server gives the job to another worker
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = human_time::parse_duration_ms)]
    lease: i64,
    /// Time limit of the command; an attempt that exceeds it fails
    #[arg(long, value_name = "DURATION", value_parser = human_time::parse_duration_ms)]
    timeout: Option<i64>,
    /// Time between SIGTERM and SIGKILL when a command is stopped
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = human_time::parse_duration_ms)]
    grace: i64,
    /// Delay before the next attempt [default: 10s after exit code 75, the backoff of the job after a failure]
    #[arg(long, value_name = "DURATION", value_parser = human_time::parse_duration_ms)]
    retry_delay: Option<i64>,
    /// Exit codes that fail the job for good, separated by commas, or none
    #[arg(long, value_name = "CODES", default_value = "65", value_parser = FatalCodes::parse)]
    fatal_exit_codes: FatalCodes,
    /// Exit after one job
    #[arg(long, conflicts_with = "drain")]
    once: bool,
    /// Exit when there is no job left to claim
    #[arg(long)]
    drain: bool,
    /// Name of this worker, shown with its jobs [default: host name and process id]
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// Print errors only
    #[arg(long, short)]
    quiet: bool,
    /// Print a JSON object per ended run on standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Deserialize)]
struct Claimed {
    jobs: Vec<Job>,
}

pub(crate) fn run(args: WorkArgs) -> Outcome {
    let client = args.server.client()?;
    let settler = client.another();
    let worker = Worker::new(args, client);
    let table = worker.table.clone();
    stop_on_signals(table.clone(), worker.claims.interrupter())?;
    let keeper = held::Keeper::new(table.clone(), settler, worker.args.lease, worker.args.grace);
    let keeper = std::thread::spawn(move || keeper.run());
    let outcome = worker.run();
    table.wait_until_empty();
    table.close();
    let _ = keeper.join();
    let tally = table.tally();
    table.take_trouble().map_or(Ok(()), Err)?;
    outcome?;
    note(table.quiet, tally);
    Ok(())
}

fn note(quiet: bool, line: String) {
    if !quiet {
        output::note(line);
    }
}

struct Worker {
    args: Arc<WorkArgs>,
    claims: Client,
    table: Arc<Table>,
    name: String,
}

impl Worker {
    fn new(args: WorkArgs, claims: Client) -> Worker {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = args.worker.clone().unwrap_or_else(|| format!("{}-{}", host.trim(), std::process::id()));
        let table = Arc::new(Table::new(args.quiet));
        Worker { args: Arc::new(args), claims, table, name }
    }

    /// Claims until shutdown. Jobs still running when it returns are in the table.
    fn run(mut self) -> Outcome {
        let mut away = AWAY_FIRST;
        let mut reached = false;
        loop {
            let free = self.table.wait_for_room(self.limit());
            if free == 0 {
                return Ok(());
            }
            // Read before the claim: a job that ends after the claim may have pushed another.
            let ends = self.table.ends();
            match self.claim(free, reached) {
                Ok(jobs) if jobs.is_empty() && self.args.drain => {
                    if !self.table.wait_for_an_end(ends) {
                        return Ok(());
                    }
                }
                Ok(jobs) => self.start(jobs),
                Err(ClientError::Interrupted) => return Ok(()),
                Err(error) if reached && error.is_passing() => {
                    note(self.args.quiet, format!("{error}; retrying"));
                    self.table.sleep(away);
                    away = (away * 2).min(AWAY_MOST);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            if !reached {
                note(
                    self.args.quiet,
                    format!("connected to {}; claiming jobs named {}", self.claims.server(), self.args.name),
                );
            }
            reached = true;
            away = AWAY_FIRST;
            if self.args.once && self.table.has_started() {
                return Ok(());
            }
        }
    }

    fn limit(&self) -> usize {
        if self.args.once { 1 } else { usize::from(self.args.concurrency) }
    }

    /// Claims jobs. The first claim does not wait, so that an unreachable server is reported at once.
    fn claim(&mut self, limit: usize, may_wait: bool) -> Result<Vec<Job>, ClientError> {
        let wait_ms = if self.args.drain || !may_wait { 0 } else { WAIT_MS };
        let ask = json!({
            "queues": self.args.queues, "name": self.args.name, "limit": limit, "wait_ms": wait_ms,
            "lease_ms": self.args.lease, "worker": self.name,
        });
        let answer = self.claims.call("POST", "/api/v1/claim", Some(&ask.to_string()), wait_ms)?;
        Ok(answer.read::<Claimed>()?.jobs)
    }

    fn start(&self, jobs: Vec<Job>) {
        for job in jobs {
            let deadline_ms = self.args.timeout.and_then(|ms| u64::try_from(ms).ok());
            let held = Held::new(job.id, job.token.clone(), deadline_ms.map(Duration::from_millis));
            let run = self.table.insert(held);
            let (args, table, client) = (self.args.clone(), self.table.clone(), self.claims.another());
            std::thread::spawn(move || see_through(job, run, &args, &table, client));
        }
    }
}

/// Runs one job and reports its outcome.
fn see_through(job: Job, run: Run, args: &WorkArgs, table: &Arc<Table>, mut client: Client) {
    let ended = process::run(&job, run, &args.command, &client.server(), table);
    if let ProcessEnd::NotStarted(reason) = &ended {
        table.give_up(Fault::failed(reason.clone()));
    }
    let verdict = Verdict::of(ended, table.why_stopped(run), &args.fatal_exit_codes);
    let counted = verdict.counted();
    let messages = table.last_messages(run);
    if !messages.is_empty() && !matches!(verdict, Verdict::Lost) {
        // An error is ignored: the log is informational.
        let _ = client.post(&held::log_path(job.id), &held::log_body(&job.token, &messages));
    }
    let words = verdict.words();
    let entry = verdict.entry(&job, args.retry_delay);
    let (words, counted) = match entry.map(|entry| offer(&mut client, &entry, table)) {
        None => (words, counted),
        Some(Ok(settled)) => (settled.words(words, counted, human_time::now_ms()), counted),
        Some(Err(NotTaken::TooLarge)) => (without_result(&job, table, &mut client), Counted::Failed),
        Some(Err(NotTaken::Otherwise(reason))) => (format!("{words}, but {reason}"), counted),
    };
    note(table.quiet, format!("job {} {} {}", job.id, output::harmless(&job.name), output::harmless(&words)));
    if args.json {
        // A closed output is no reason to stop working.
        let _ = output::say(ended_run(&job, counted, &words).to_string());
    }
    table.remove(run, counted);
}

/// Line of `--json` for one run.
fn ended_run(job: &Job, counted: Counted, words: &str) -> Value {
    json!({
        "id": job.id, "name": job.name, "queue": job.queue, "attempt": job.attempt,
        "outcome": counted.as_str(), "message": words,
    })
}

/// Fails a job whose result the server refuses as too large, instead of holding it until the lease expires.
fn without_result(job: &Job, table: &Table, client: &mut Client) -> String {
    let message = "the result is larger than the server's limit (limits.payload_bytes)".to_string();
    let failed = Verdict::Fail(Failure::new(message, Some(0), true));
    let words = failed.words();
    match failed.entry(job, None).map(|entry| offer(client, &entry, table)) {
        None | Some(Ok(_)) => words,
        Some(Err(NotTaken::TooLarge)) => format!("{words}, but the server did not accept the report"),
        Some(Err(NotTaken::Otherwise(reason))) => format!("{words}, but {reason}"),
    }
}

enum NotTaken {
    TooLarge,
    Otherwise(String),
}

/// Reports an outcome, and retries while the server is unreachable and no shutdown is urgent.
fn offer(client: &mut Client, entry: &Entry, table: &Table) -> Result<Settled, NotTaken> {
    let started = std::time::Instant::now();
    let mut away = AWAY_FIRST;
    loop {
        match client.post("/api/v1/settle", &BTreeMap::from([("settle", [entry])])) {
            Ok(mut answer) if answer["settled"][0]["ok"] == true => {
                return Ok(serde_json::from_value(answer["settled"][0].take()).unwrap_or_default());
            }
            Ok(answer) => {
                let error = &answer["settled"][0]["error"];
                return Err(match error["code"] == "payload_too_large" {
                    true => NotTaken::TooLarge,
                    false => NotTaken::Otherwise(format!(
                        "the server did not accept the report: {}",
                        output::plain(&error["message"])
                    )),
                });
            }
            Err(error) if error.is_passing() && started.elapsed() < OFFER_FOR && !table.is_urgent() => {
                std::thread::sleep(away);
                away = (away * 2).min(AWAY_MOST);
            }
            Err(ClientError::Refused { status: 413, .. }) => return Err(NotTaken::TooLarge),
            Err(error) => return Err(NotTaken::Otherwise(error.to_string())),
        }
    }
}

/// Handles signals: the first lets running jobs finish, the second stops and releases them, the third exits
/// at once.
fn stop_on_signals(table: Arc<Table>, claims: Interrupter) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupts, mut terms) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            for round in 1.. {
                tokio::select! {
                    _ = interrupts.recv() => {}
                    _ = terms.recv() => {}
                }
                if round > 2 {
                    std::process::exit(1);
                }
                let count = table.leave(round == 2);
                claims.cut();
                if count > 0 && round == 1 {
                    output::note(format!(
                        "stopping after {count} running jobs; send the signal again to stop and release \
                     them"
                    ));
                }
            }
        });
    });
    Ok(())
}
