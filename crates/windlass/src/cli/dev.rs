//! `windlass dev`: server on a temporary store, with a log of its jobs and hints for their developer.

mod hints;

use super::own_server::{Home, OwnServer};
use crate::client::Client;
use crate::fault::{Fault, Outcome};
use crate::human_time;
use crate::output::{self, Colour, Style};
use crate::telemetry;
use clap::Args;
use hints::{Hints, Line};
use serde_json::Value;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;
use windlass_core::JobId;
use windlass_engine::FeedEvent;

/// Address that the commands use without --server.
const USUAL: &str = "127.0.0.1:7373";
const USUAL_BEDROCK: &str = "127.0.0.1:8888";
const ANY: &str = "127.0.0.1:0";
/// Keys that contradict a temporary server without tokens, whose URL is http://.
const FOREIGN_KEYS: &[&str] = &["data", "store", "store.url"];
const FOREIGN_GROUPS: &[&str] = &["auth.", "tls."];
/// Interval at which events are shown.
const TICK: Duration = Duration::from_millis(200);
/// Log of the server itself. The isolation of handlers on this machine is for operators.
const LOG_LEVEL: &str = "warn,windlass::handlers=error";

/// Start a server for development on a temporary store
///
/// Prints what happens to each job, and hints: how to look at a job that failed, which command claims a job that no worker
/// claims. Listens on 127.0.0.1:7373, or on a free port if that is taken. Ctrl-C stops the server and deletes its data.
/// Environment variables and configuration files are not read.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass dev
  windlass dev --keep ./dev-data
  windlass dev --http 127.0.0.1:9000 --set keep.completed=10m")]
pub(super) struct DevArgs {
    /// Address of the HTTP API [default: 127.0.0.1:7373, or a free port]
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// Keep the data in this folder, and use what is there already
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Waiting time after which a job that no worker claims gets a hint
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = human_time::parse_duration_ms)]
    hint_after: i64,
    /// Set a configuration key, e.g. --set keep.completed=10m; not the store, tokens or TLS; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

pub(super) fn run(args: DevArgs) -> Outcome {
    let asked = asked(&args)?;
    let is_http_asked = asked.iter().any(|(key, _)| key == "http");
    let settings = with_ports(asked);
    let level = settings.iter().rfind(|(key, _)| key == "log_level").map(|(_, level)| level.as_str());
    telemetry::start_brief(level.unwrap_or(LOG_LEVEL))?;
    let settings: Vec<(&str, &str)> = settings.iter().map(|(key, value)| (&**key, &**value)).collect();
    let home = match &args.keep {
        Some(folder) => Home::Kept(folder),
        None => Home::Temporary { prefix: "windlass-dev-", parent: None },
    };
    let server = OwnServer::start(home, &settings)?;
    server.expect_interrupt();
    let gone = || Fault::failed("the server has stopped");
    let mut feed = server.events().ok_or_else(gone)?;
    let url = server.url()?;
    greet(&args, is_http_asked, &server)?;
    let at = if url == format!("http://{USUAL}") { String::new() } else { format!(" --server {url}") };
    let mut hints = Hints::new(at, args.hint_after);
    let mut client = Client::new(&url, None, None)?;
    let style = Style::of_stdout();
    loop {
        std::thread::sleep(TICK);
        server.leave_if_ending();
        let (events, missed) = arrived(&mut feed);
        let lines = hints.step(&events, missed, human_time::now_ms(), &mut |id| job(&mut client, id));
        server.leave_if_ending();
        for line in lines {
            show(&line, style)?;
        }
    }
}

/// Keys and values of the user. `--http` is one of them.
fn asked(args: &DevArgs) -> Outcome<Vec<(String, String)>> {
    let mut settings: Vec<_> = args.http.iter().map(|http| ("http".to_owned(), http.clone())).collect();
    for assignment in &args.set {
        let (key, value) = assignment
            .split_once('=')
            .ok_or_else(|| Fault::usage(format!("--set {assignment}: expected --set KEY=VALUE")))?;
        let key = key.trim();
        if FOREIGN_KEYS.contains(&key) || FOREIGN_GROUPS.iter().any(|group| key.starts_with(group)) {
            return Err(Fault::usage(format!(
                "--set {key}: windlass dev has a store of its own, and neither tokens nor TLS; use windlass serve, or \
                 --keep DIR to keep the data"
            )));
        }
        settings.push((key.to_owned(), value.trim().to_owned()));
    }
    Ok(settings)
}

/// Adds the ports that the user has not set, unless they are taken.
fn with_ports(mut settings: Vec<(String, String)>) -> Vec<(String, String)> {
    if !settings.iter().any(|(key, _)| key == "http") {
        let http = if is_free(USUAL) { USUAL } else { ANY };
        settings.push(("http".to_owned(), http.to_owned()));
    }
    if !settings.iter().any(|(key, _)| key.starts_with("bedrock")) && is_free(USUAL_BEDROCK) {
        settings.push(("bedrock".to_owned(), USUAL_BEDROCK.to_owned()));
    }
    settings
}

/// True if a program can listen on the address.
fn is_free(address: &str) -> bool {
    TcpListener::bind(address).is_ok()
}

fn greet(args: &DevArgs, is_http_asked: bool, server: &OwnServer) -> Outcome {
    let (url, style) = (server.url()?, Style::of_stdout());
    let is_usual = url == format!("http://{USUAL}");
    if !is_http_asked && !is_usual {
        output::say(format!("{USUAL} is in use by another program; this server has a free port"))?;
    }
    let version = env!("CARGO_PKG_VERSION");
    let (end, what) = match &args.keep {
        Some(folder) => ("keeps its data", format!("keeps its data in {}", folder.display())),
        None => ("deletes its data", format!("stores jobs in {} until it stops", server.folder().display())),
    };
    output::say(format!("windlass {version} for development {what}"))?;
    let at = if is_usual { String::new() } else { format!(" --server {url}") };
    let rows = [
        ("web UI", format!("{url}/ui/")),
        ("push", format!("windlass push hello '{{\"to\":\"you\"}}'{at}")),
        ("work", format!("windlass work hello{at} -- cat")),
    ];
    for (what, text) in &rows {
        output::say(format!("{what:<8}{}", style.paint(Colour::Bold, text)))?;
    }
    if let Ok(bedrock) = server.address("bedrock") {
        output::say(format!("{:<8}{bedrock}", "bedrock"))?;
    }
    output::say(format!("Ctrl-C stops the server and {end}.\n"))
}

/// Events that have arrived, and the number of those that were dropped because there were too many.
fn arrived(feed: &mut Receiver<Arc<FeedEvent>>) -> (Vec<Arc<FeedEvent>>, u64) {
    let (mut events, mut missed) = (Vec::new(), 0);
    // Bounded by the size of the feed.
    let most = feed.len();
    while events.len() < most {
        match feed.try_recv() {
            Ok(event) => events.push(event),
            Err(TryRecvError::Lagged(count)) => missed += count,
            Err(TryRecvError::Empty | TryRecvError::Closed) => break,
        }
    }
    (events, missed)
}

/// Job as the API shows it; null if it is gone.
fn job(client: &mut Client, id: JobId) -> Value {
    client.get(&format!("/api/v1/jobs/{id}")).unwrap_or_default()
}

fn show(line: &Line, style: Style) -> Outcome {
    match line {
        Line::Event { at_ms, text, state } => {
            let time = human_time::show_time(*at_ms);
            let time = time.split(' ').nth(1).unwrap_or_default().to_owned();
            let colour = Colour::of_state(state);
            output::say(format!("{} {}", style.paint(Colour::Dim, &time), style.paint(colour, text)))
        }
        Line::Hint { text, commands } => {
            output::say(format!("  {} {text}", style.paint(Colour::Bold, "hint:")))?;
            for command in commands {
                output::say(format!("        {}", style.paint(Colour::Cyan, command)))?;
            }
            Ok(())
        }
    }
}
