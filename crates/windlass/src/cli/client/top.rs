//! `windlass top`: live view, redrawn every second.

mod screen;

use crate::cli::client::{jobs, queues, view};
use crate::client::{Client, ServerArgs};
use crate::fault::{Fault, Outcome};
use crate::human_time;
use crate::output::{self, Colour, Style};
use clap::Args;
use screen::{Key, Screen};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::time::Duration;

/// Most running jobs shown; more would not fit on a screen.
const RUNNING_MAX: usize = 50;

/// Show queues, rates and running jobs, refreshed continuously
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass top
  windlass top --every 5s
  windlass top --once --json

Keys: q quits, any other key refreshes.")]
pub(crate) struct TopArgs {
    /// Refresh interval
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = human_time::parse_duration_ms)]
    every: i64,
    /// Print once and exit
    #[arg(long)]
    once: bool,
    /// Print one JSON object per refresh
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Data of one refresh.
struct Look {
    stats: Value,
    queues: Value,
    running: Value,
}

pub(crate) fn run(args: TopArgs) -> Outcome {
    let mut client = args.server.client()?;
    let every = Duration::from_millis(u64::try_from(args.every).unwrap_or(1000).max(100));
    if args.json {
        loop {
            let Look { stats, queues, running } = Look::take(&mut client)?;
            output::say(json!({ "stats": stats, "queues": queues, "running": running }).to_string())?;
            if args.once {
                return Ok(());
            }
            std::thread::sleep(every);
        }
    }
    if args.once || !std::io::stdout().is_terminal() {
        let look = Look::take(&mut client)?;
        return look.lines(&client.server(), Style::of_stdout()).iter().try_for_each(output::say);
    }
    // Before the screen is opened, so that an error is printed normally.
    let mut look = Look::take(&mut client)?;
    let mut screen = Screen::open()
        .map_err(|error| Fault::failed(format!("cannot use the terminal: {error}; try --once")))?;
    let mut trouble: Option<String> = None;
    loop {
        let mut lines = look.lines(&client.server(), Style::of_stdout());
        if let Some(trouble) = trouble.take() {
            lines.insert(0, Style::of_stdout().paint(Colour::Red, &trouble).into_owned());
        }
        screen.draw(&lines)?;
        if screen.wait(every)? == Some(Key::Quit) {
            return Ok(());
        }
        match Look::take(&mut client) {
            Ok(new) => look = new,
            // Keeps the last view: a server that restarts is back soon.
            Err(fault) => trouble = Some(fault.to_string()),
        }
    }
}

impl Look {
    fn take(client: &mut Client) -> Outcome<Look> {
        let stats = client.get("/api/v1/stats")?;
        let queues = client.get("/api/v1/queues")?["queues"].take();
        Ok(Look { stats, queues, running: jobs::running(client, RUNNING_MAX)? })
    }

    fn lines(&self, server: &str, style: Style) -> Vec<String> {
        let mut lines = vec![self.title(server, style), self.rates(), String::new()];
        let queues = self.queues.as_array().map(Vec::as_slice).unwrap_or_default();
        lines.extend(queues::queue_table(queues).lines(style));
        let running = self.running.as_array().map(Vec::as_slice).unwrap_or_default();
        lines.push(String::new());
        if running.is_empty() {
            lines.push("no running jobs".to_string());
        } else {
            lines.extend(view::job_table(running, human_time::now_ms()).lines(style));
        }
        lines
    }

    fn title(&self, server: &str, style: Style) -> String {
        let uptime = self.stats["uptime_ms"].as_i64().or(self.stats["uptime_s"].as_i64().map(|s| s * 1000));
        let up = uptime.map(|ms| format!(", up {}", human_time::show_duration(ms))).unwrap_or_default();
        let version = output::plain(&self.stats["version"]);
        let title = format!("windlass {version} at {server}");
        format!("{}{up}", style.paint(Colour::Bold, &title))
    }

    /// Rates per second over the last minute.
    fn rates(&self) -> String {
        let rates = self.stats["rates"].as_object();
        let show = |(what, rate): (&String, &Value)| Some(format!("{} {:.1}/s", what, rate.as_f64()?));
        let shown: Vec<String> = rates.into_iter().flatten().filter_map(show).collect();
        output::harmless(&shown.join("  ")).into_owned()
    }
}
