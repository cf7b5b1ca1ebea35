//! `windlass queues`: job counts per queue; pause and resume.

mod keep;

use crate::cli::confirm::confirm;
use crate::client::{Client, ServerArgs, escaped};
use crate::fault::{Fault, Outcome};
use crate::human_time;
use crate::output::{self, Colour, Style, Table};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

/// Queues that an error names.
const NAMED_MAX: usize = 10;

/// List queues; pause or resume a queue, or set how long its jobs are kept
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass queues
  windlass queues pause mail
  windlass queues resume mail
  windlass queues pause nightly --yes        before its first job
  windlass queues keep mail --completed 7d")]
pub(crate) struct QueuesArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print the server's response as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Stop handing out jobs of a queue; running jobs continue
    ///
    /// A queue exists while it has jobs or is paused. To pause a queue before its first job, confirm the question or give
    /// --yes.
    #[command(after_help = "Examples:\n  windlass queues pause mail\n  windlass queues pause nightly --yes")]
    Pause {
        /// Name of the queue
        name: String,
        /// Pause the queue even if it does not exist yet, without a question
        #[arg(long)]
        yes: bool,
    },
    /// Hand out jobs of a paused queue again
    #[command(after_help = "Example:\n  windlass queues resume mail")]
    Resume {
        /// Name of the queue
        name: String,
    },
    Keep(Box<keep::KeepArgs>),
}

pub(crate) fn run(args: QueuesArgs) -> Outcome {
    let mut client = args.server.client()?;
    match &args.action {
        None => show(&mut client, args.json),
        Some(Action::Keep(keep)) => keep::run(&mut client, keep, args.json),
        Some(Action::Pause { name, yes }) => {
            if let Some(missing) = missing(&mut client, name)? {
                confirm(&format!("{missing}; pause it before its first job?"), *yes)?;
            }
            switch(&mut client, name, "pause", args.json)
        }
        Some(Action::Resume { name }) => match missing(&mut client, name)? {
            Some(missing) => Err(Fault::failed(missing)),
            None => switch(&mut client, name, "resume", args.json),
        },
    }
}

fn show(client: &mut Client, json: bool) -> Outcome {
    let answer = client.get("/api/v1/queues")?;
    if json {
        return output::say_json(&answer);
    }
    match answer["queues"].as_array().map(Vec::as_slice).unwrap_or_default() {
        [] => {
            output::note("no queues yet; a queue appears with its first job: windlass push hello");
            Ok(())
        }
        queues => queue_table(queues).print(Style::of_stdout()),
    }
}

/// Sentence that the queue does not exist, with the names of those that do; `None`: it exists.
fn missing(client: &mut Client, name: &str) -> Outcome<Option<String>> {
    // An admin sees the queues of all tenants, but pauses those of its own.
    let tenant = output::plain(&client.get("/api/v1/me")?["tenant"]);
    let answer = client.get(&format!("/api/v1/queues?tenant={}", escaped(&tenant)))?;
    let queues = answer["queues"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<&str> = queues.iter().filter_map(|queue| queue["queue"].as_str()).collect();
    Ok((!names.contains(&name)).then(|| no_such_queue(name, &names)))
}

fn no_such_queue(name: &str, names: &[&str]) -> String {
    let known = match names {
        [] => "there are no queues yet".to_string(),
        names if names.len() > NAMED_MAX => {
            format!("{} and {} more exist", names[..NAMED_MAX].join(", "), names.len() - NAMED_MAX)
        }
        [one] => format!("only {one} exists"),
        names => format!("{} exist", names.join(", ")),
    };
    output::harmless(&format!("there is no queue {name} ({known})")).into_owned()
}

fn switch(client: &mut Client, name: &str, verb: &str, json: bool) -> Outcome {
    let answer = client.post(&format!("/api/v1/queues/{}/{verb}", escaped(name)), &json!({}))?;
    match json {
        true => output::say_json(&answer),
        false => output::say(format!("queue {} {verb}d", output::harmless(name))),
    }
}

pub(crate) fn queue_table(queues: &[Value]) -> Table {
    let heads = [
        "QUEUE",
        ">READY",
        ">DELAYED",
        ">RETRYING",
        ">RUNNING",
        ">WAITING",
        ">COMPLETED",
        ">FAILED",
        ">CANCELLED",
        ">OLDEST",
        "",
    ];
    let mut table = Table::new(&heads);
    for queue in queues {
        let count = |key: &str, colour: Colour| {
            let number = queue[key].as_u64().unwrap_or(0);
            (number.to_string(), if number == 0 { Colour::Dim } else { colour })
        };
        let oldest =
            queue["oldest_ms"].as_i64().map(human_time::show_duration).unwrap_or_else(|| "-".to_string());
        let paused = queue["paused"].as_bool().unwrap_or(false);
        let waiting = queue["waiting"].as_u64().unwrap_or(0) + queue["suspended"].as_u64().unwrap_or(0);
        table.row(vec![
            (queue_name(queue), Colour::Bold),
            count("ready", Colour::Cyan),
            count("delayed", Colour::Cyan),
            count("retrying", Colour::Yellow),
            count("running", Colour::Blue),
            (waiting.to_string(), if waiting == 0 { Colour::Dim } else { Colour::Plain }),
            count("completed", Colour::Green),
            count("failed", Colour::Red),
            count("cancelled", Colour::Yellow),
            (oldest, Colour::Plain),
            (if paused { "paused".to_string() } else { String::new() }, Colour::Yellow),
        ]);
    }
    table
}

/// Queue name, prefixed with the tenant unless it is the default one.
fn queue_name(queue: &Value) -> String {
    let name = output::plain(&queue["queue"]);
    match queue["tenant"].as_str() {
        None | Some("default") => name,
        Some(tenant) => format!("{tenant}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::no_such_queue;

    #[test]
    fn a_missing_queue_is_said_with_the_queues_that_exist() {
        let many: Vec<String> = (0..12).map(|n| format!("q{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (names, said) in [
            (&[][..], "there is no queue mial (there are no queues yet)"),
            (&["mail"][..], "there is no queue mial (only mail exists)"),
            (&["a", "mail"][..], "there is no queue mial (a, mail exist)"),
            (&many[..], "there is no queue mial (q0, q1, q2, q3, q4, q5, q6, q7, q8, q9 and 2 more exist)"),
        ] {
            assert_eq!(no_such_queue("mial", names), said);
        }
    }
}
