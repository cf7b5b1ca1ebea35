//! `windlass audit`: who did what to which job, queue, limit, token, and when.

use crate::client::{Client, ServerArgs, escaped};
use crate::fault::Outcome;
use crate::human_time;
use crate::output::{self, Colour, Style, Table};
use clap::Args;
use serde_json::Value;
use std::time::Duration;

/// Entries per call.
const PAGE: usize = 500;
/// Interval of the calls with `--follow`.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Show the actions of operators and admins, newest first
///
/// Lists who cancelled, changed or deleted jobs, paused queues, set limits and quotas, created and revoked tokens, set
/// handlers. Needs the role operator; an admin sees all tenants. Calls of workers are not recorded.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass audit
  windlass audit --job 42
  windlass audit --who ann --action queue -n 100
  windlass audit --follow --json")]
pub(crate) struct AuditArgs {
    /// Only actions of this token, by its note
    #[arg(long)]
    who: Option<String>,
    /// Only this action, such as job.cancel, or actions on this kind of target, such as queue
    #[arg(long)]
    action: Option<String>,
    /// Only actions on this job
    #[arg(long, value_name = "ID", conflicts_with_all = ["action", "target"])]
    job: Option<u64>,
    /// Only actions on the target with this name or id
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Number of entries
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Keep printing new entries, oldest first, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn run(args: AuditArgs) -> Outcome {
    let mut client = args.server.client()?;
    let mut entries = args.newest(&mut client, args.limit, 0)?;
    if !args.follow {
        return args.print(&entries, &mut Vec::new());
    }
    let mut above = Vec::new();
    let mut last = 0;
    loop {
        entries.reverse();
        args.print(&entries, &mut above)?;
        last = entries.last().and_then(|entry| entry["id"].as_u64()).unwrap_or(last);
        std::thread::sleep(LOOK_EVERY);
        entries = args.newest(&mut client, usize::MAX, last)?;
    }
}

impl AuditArgs {
    /// Entries newer than `after`, newest first, at most `limit`.
    fn newest(&self, client: &mut Client, limit: usize, after: u64) -> Outcome<Vec<Value>> {
        let mut found: Vec<Value> = Vec::new();
        let mut cursor = None;
        while found.len() < limit {
            let page = client.get(&self.path(cursor.as_deref(), PAGE.min(limit - found.len())))?;
            let entries = page["entries"].as_array().cloned().unwrap_or_default();
            let is_new = |entry: &Value| entry["id"].as_u64().unwrap_or_default() > after;
            let count = entries.len();
            found.extend(entries.into_iter().take_while(is_new));
            cursor = page["next"].as_str().map(str::to_owned);
            if cursor.is_none() || count == 0 || !found.last().is_some_and(is_new) {
                break;
            }
        }
        Ok(found)
    }

    fn path(&self, cursor: Option<&str>, limit: usize) -> String {
        let job = self.job.map(|id| id.to_string());
        let params = [
            ("who", self.who.as_deref()),
            ("action", self.action.as_deref()),
            ("job", job.as_deref()),
            ("target", self.target.as_deref()),
            ("cursor", cursor),
        ];
        let given =
            params.into_iter().filter_map(|(name, value)| Some(format!("&{name}={}", escaped(value?))));
        format!("/api/v1/audit?limit={limit}{}", given.collect::<String>())
    }

    fn print(&self, entries: &[Value], above: &mut Vec<usize>) -> Outcome {
        if self.json {
            return entries.iter().try_for_each(|entry| output::say(entry.to_string()));
        }
        if entries.is_empty() && !self.follow {
            output::note("no entries");
            return Ok(());
        }
        let mut table = Table::new(&["WHEN", "WHO", "ROLE", "ACTION", "TARGET", "DETAIL"]);
        for entry in entries {
            let at = entry["at"].as_i64().map(human_time::show_time).unwrap_or_default();
            let cell = |key: &str| output::plain(&entry[key]);
            table.row(vec![
                (at, Colour::Dim),
                (cell("who"), Colour::Bold),
                (cell("role"), Colour::Plain),
                (cell("action"), Colour::Plain),
                (cell("target"), Colour::Plain),
                (cell("detail"), Colour::Plain),
            ]);
        }
        table.print_page(Style::of_stdout(), above)
    }
}
