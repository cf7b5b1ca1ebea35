//! `windlass failures`: failed and retrying jobs, grouped by error and name.

use crate::cli::client::jobs::Query;
use crate::client::{ServerArgs, escaped};
use crate::fault::Outcome;
use crate::human_time;
use crate::output::{self, Colour, Style, Table};
use clap::{Args, ValueEnum};
use serde_json::Value;
use std::io::IsTerminal;

/// Show failed and retrying jobs, grouped by error and name
///
/// A group has the jobs with the same name and the same class of error, or the same message apart from numbers, ids and
/// quoted texts. With --json, each group has the search that finds its jobs, for `windlass jobs SEARCH --retry`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass failures
  windlass failures --sort last queue:mail
  windlass failures --state failed --json | jq -r '.groups[].search'")]
pub(crate) struct FailuresArgs {
    /// Search terms, as of `windlass jobs`
    words: Vec<String>,
    /// Only failed or only retrying jobs
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only jobs in this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only jobs whose name matches this pattern
    #[arg(long, value_name = "GLOB")]
    name: Option<String>,
    /// Order of the groups: by number of jobs, or by the latest error
    #[arg(long, value_enum, default_value = "count")]
    sort: Sort,
    /// Maximum number of groups to show
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print the server's response as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sort {
    Count,
    Last,
}

pub(crate) fn run(args: FailuresArgs) -> Outcome {
    let answer = args.server.client()?.get(&args.path())?;
    if args.json {
        return output::say_json(&answer);
    }
    let groups = answer["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
    if groups.is_empty() {
        output::note("no failed or retrying jobs");
        return Ok(());
    }
    group_table(groups, human_time::now_ms()).print(Style::of_stdout())?;
    for line in remarks(&answer, groups.len()) {
        output::note(line);
    }
    if std::io::stderr().is_terminal() {
        let search = output::plain(&groups[0]["search"]);
        let search = output::harmless(&search).replace('\'', "'\\''");
        output::note(format!("retry the first group: windlass jobs '{search}' --retry"));
    }
    Ok(())
}

impl FailuresArgs {
    fn path(&self) -> String {
        let mut search = Query::default();
        search.narrow("queue", self.queue.as_deref());
        search.narrow("name", self.name.as_deref());
        search.add(&self.words);
        let sort = match self.sort {
            Sort::Count => "count",
            Sort::Last => "last",
        };
        let mut path = format!("/api/v1/failures?sort={sort}&limit={}", self.limit);
        for (key, value) in [("state", self.state.as_deref().unwrap_or_default()), ("search", search.words())]
        {
            if !value.is_empty() {
                path.push_str(&format!("&{key}={}", escaped(value)));
            }
        }
        path
    }
}

fn group_table(groups: &[Value], now_ms: i64) -> Table {
    let mut table = Table::new(&[">FAILED", ">RETRYING", "NAME", "FIRST", "LAST", "ERROR", "MESSAGE"]);
    for group in groups {
        let count = |key: &str, colour: Colour| {
            let number = group[key].as_u64().unwrap_or(0);
            (number.to_string(), if number == 0 { Colour::Dim } else { colour })
        };
        let when = |key: &str| {
            let at = group[key].as_i64();
            (at.map(|ms| human_time::show_relative(ms, now_ms)).unwrap_or_default(), Colour::Dim)
        };
        table.row(vec![
            count("failed", Colour::Red),
            count("retrying", Colour::Yellow),
            (output::plain(&group["name"]), Colour::Bold),
            when("first_at"),
            when("last_at"),
            (output::plain(&group["title"]), Colour::Plain),
            (output::plain(&group["sample"]["message"]), Colour::Plain),
        ]);
    }
    table
}

/// Limits of the answer.
fn remarks(answer: &Value, shown: usize) -> Vec<String> {
    let number = |key: &str| answer[key].as_u64().unwrap_or(0);
    let mut lines = Vec::new();
    if number("groups_total") > shown as u64 {
        lines.push(format!("{shown} of {} groups; show more with --limit N", number("groups_total")));
    }
    if answer["partial"] == true {
        lines.push(format!("counted the newest {} of {} jobs", number("looked_at"), number("total")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use serde_json::json;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        failures: FailuresArgs,
    }

    #[test]
    fn flags_and_words_become_parameters() {
        for (line, path) in [
            (&[][..], "sort=count&limit=20"),
            (&["--sort", "last", "-n", "5"], "sort=last&limit=5"),
            (
                &["--state", "failed", "class:Timeout"],
                "sort=count&limit=20&state=failed&search=class%3ATimeout",
            ),
            (&["--queue", "mail out"], "sort=count&limit=20&search=queue%3A%22mail%20out%22"),
        ] {
            let args = Line::parse_from([&["failures"], line].concat()).failures;
            assert_eq!(args.path(), format!("/api/v1/failures?{path}"));
        }
    }

    #[test]
    fn an_answer_that_is_not_whole_says_so() {
        assert!(remarks(&json!({"groups_total": 2, "partial": false}), 2).is_empty());
        let part = json!({"groups_total": 9, "partial": true, "looked_at": 7, "total": 30});
        assert_eq!(
            remarks(&part, 2),
            ["2 of 9 groups; show more with --limit N", "counted the newest 7 of 30 jobs"]
        );
    }
}
