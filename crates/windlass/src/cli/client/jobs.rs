//! `windlass jobs`: search, and actions on all jobs found.

mod bulk;
mod query;

pub(crate) use query::Query;

use crate::cli::client::view;
use crate::client::{Client, ServerArgs};
use crate::fault::{Fault, Outcome};
use crate::human_time;
use crate::output::{self, Style};
use bulk::ActionArgs;
use clap::Args;
use serde_json::{Value, json};
use std::io::IsTerminal;

/// Jobs per request: the server's page limit.
const PAGE: usize = 1000;

/// List and search jobs, newest first; act on all jobs found
///
/// Search terms: state:failed, queue:mail, name:GLOB, tag:TAG, id:42, alias:NAME, error:TEXT or error:GLOB (the last error),
/// class:GLOB (its class), args.user_id:42 (a value in the payload), worker:NAME, age>1h and age<5m (since the push),
/// ended<1h and ended>1d (since the end of the last run). A job must match all terms. Any other word is searched for in
/// the payload; an unknown key is an error. Quotes keep words together: 'queue:"mail out"'. The search box of the web UI
/// accepts the same terms.
///
/// An action such as --retry counts the jobs that match and asks before it changes them; --yes skips the question. At the
/// end it says how many were changed, and why others were not; the exit code is then 1.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass jobs
  windlass jobs state:failed name:mail* ann@example.org
  windlass jobs args.user_id:42 'age>1h'
  windlass jobs 'state:failed ended<1h'
  windlass jobs --queue reports --state ready,running --json
  windlass jobs state:failed --all --json | jq .id
  windlass jobs 'state:failed error:SMTP*' --retry
  windlass jobs queue:old --queue-to new --yes")]
pub(crate) struct JobsArgs {
    /// Search terms, or text to find in payloads
    words: Vec<String>,
    /// Only jobs in these states, separated by commas
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only jobs in this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only jobs whose name matches this pattern
    #[arg(long, value_name = "GLOB")]
    name: Option<String>,
    /// Only jobs with this tag
    #[arg(long)]
    tag: Option<String>,
    /// Maximum number of jobs to show
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20, conflicts_with = "action")]
    limit: usize,
    /// Show all matching jobs; with an action and no search terms: act on every job
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    #[command(flatten)]
    action: ActionArgs,
    /// Act without a question
    #[arg(long, requires = "action", help_heading = "Actions on all found jobs")]
    yes: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn run(args: JobsArgs) -> Outcome {
    let mut query = Query::default();
    query.narrow("state", args.state.as_deref());
    query.narrow("queue", args.queue.as_deref());
    query.narrow("name", args.name.as_deref());
    query.narrow("tag", args.tag.as_deref());
    query.add(&args.words);
    let mut client = args.server.client()?;
    if let Some(action) = args.action.action() {
        if query.words().is_empty() && !args.all {
            return Err(Fault::usage("give search terms, such as state:failed, or --all for every job"));
        }
        return bulk::run(&mut client, &query, &action, args.yes, args.json);
    }
    let wanted = if args.all { usize::MAX } else { args.limit };
    if args.json {
        let more = each_page(&mut client, &query, wanted, print_json)?;
        return hint(more, args.json);
    }
    // Column widths are computed per page, so that the first page is printed without waiting for all rows.
    let mut widths = Vec::new();
    let more = each_page(&mut client, &query, wanted, |jobs| {
        view::job_table(jobs, human_time::now_ms()).print_page(Style::of_stdout(), &mut widths)
    })?;
    if widths.is_empty() {
        output::note("no jobs found");
    }
    hint(more, args.json)
}

fn print_json(jobs: &[Value]) -> Outcome {
    for job in jobs {
        output::say(job.to_string())?;
    }
    Ok(())
}

fn hint(more: bool, json: bool) -> Outcome {
    if more && !json && std::io::stdout().is_terminal() {
        output::note("more jobs match; show them with --limit N or --all");
    }
    Ok(())
}

/// Calls `show` with each non-empty page. Returns true if there are more jobs than `wanted`.
fn each_page(
    client: &mut Client,
    query: &Query,
    wanted: usize,
    mut show: impl FnMut(&[Value]) -> Outcome,
) -> Outcome<bool> {
    let mut left = wanted;
    let mut cursor = None;
    loop {
        let path = query.path(left.min(PAGE), cursor.as_deref());
        let mut answer = client.get(&path)?;
        let jobs = answer["jobs"].take();
        let jobs = jobs.as_array().map(Vec::as_slice).unwrap_or_default();
        if !jobs.is_empty() {
            show(jobs)?;
        }
        left = left.saturating_sub(jobs.len());
        cursor = answer["next"].as_str().map(str::to_string);
        // A page may be short or empty because the server limits the time of a search; the cursor shows
        // whether more follow.
        if cursor.is_none() || left == 0 {
            return Ok(cursor.is_some());
        }
    }
}

/// Running jobs, for `top`.
pub(crate) fn running(client: &mut Client, limit: usize) -> Outcome<Value> {
    let mut query = Query::default();
    query.narrow("state", Some("running"));
    let mut answer = client.get(&query.path(limit, None))?;
    match answer["jobs"].take() {
        Value::Null => Ok(json!([])),
        jobs => Ok(jobs),
    }
}
