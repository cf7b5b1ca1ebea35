//! `windlass queues`: job counts per queue; pause and resume.

use crate::client::{Client, ServerArgs, escaped};
use crate::fault::Outcome;
use crate::human_time;
use crate::output::{self, Colour, Style, Table};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

/// List queues; pause or resume a queue
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass queues
  windlass queues pause mail
  windlass queues resume mail")]
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
    Pause {
        /// Name of the queue
        name: String,
    },
    /// Hand out jobs of a paused queue again
    Resume {
        /// Name of the queue
        name: String,
    },
}

pub(crate) fn run(args: QueuesArgs) -> Outcome {
    let mut client = args.server.client()?;
    match &args.action {
        None => show(&mut client, args.json),
        Some(Action::Pause { name }) => switch(&mut client, name, "pause", args.json),
        Some(Action::Resume { name }) => switch(&mut client, name, "resume", args.json),
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
