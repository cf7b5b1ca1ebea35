//! `windlass demo`: guided tour with its own server on a temporary store and a free port, real jobs and a
//! real worker.

mod dialects;

use super::own_server::{Home, OwnServer};
use super::quoted;
use crate::client::Client;
use crate::fault::{Fault, Outcome};
use crate::output::{self, Colour, Style};
use clap::Args;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time to read a step.
const PAUSE: Duration = Duration::from_millis(2500);

/// Take a guided tour on a temporary server
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass demo
  windlass demo --keep-serving")]
pub(super) struct DemoArgs {
    /// Do not pause between the steps
    #[arg(long)]
    fast: bool,
    /// Keep the server running at the end, until Ctrl-C
    #[arg(long)]
    keep_serving: bool,
}

pub(super) fn run(args: DemoArgs) -> Outcome {
    let server = OwnServer::start(Home::Temporary { prefix: "windlass-demo-", parent: None }, &[])?;
    let (url, bedrock) = (server.url()?, server.address("bedrock")?);
    let mut tour =
        Tour { server: &server, url, bedrock, style: Style::of_stdout(), fast: args.fast, step: 0 };
    tour.walk(&server.folder().display().to_string())?;
    if args.keep_serving {
        output::say(format!("\nThe server is still running at {}; press Ctrl-C to stop it.", tour.url))?;
        server.until_interrupted();
    }
    server.stop();
    Ok(())
}

struct Tour<'a> {
    server: &'a OwnServer,
    url: String,
    bedrock: SocketAddr,
    style: Style,
    fast: bool,
    step: u32,
}

impl Tour<'_> {
    fn walk(&mut self, folder: &str) -> Outcome {
        self.title("Start a server")?;
        self.tell(&format!("It listens on {} and stores its jobs in {folder}.", self.url))?;
        self.tell(&format!("Its web UI is at {}/ui/ while the tour lasts.", self.url))?;
        self.first_job()?;
        self.failing_job()?;
        self.order()?;
        self.later()?;
        self.repeated()?;
        self.unique()?;
        self.limited()?;
        self.children()?;
        self.progress()?;
        self.bedrock()?;
        self.queuey()?;
        self.jq()?;
        self.miniq()?;
        self.sidejob()?;
        self.look_around()
    }

    fn first_job(&mut self) -> Outcome {
        self.title("Push a job, run it, get its result")?;
        let id = self.windlass(&["push", "hello", "{\"to\":\"you\"}"])?;
        self.tell(
            "A worker claims jobs named hello and runs a command for each. It holds a lease on the job \
         while it works.",
        )?;
        self.windlass(&["work", "hello", "--once", "--", "sed", "s/.*/hello, you!/"])?;
        self.windlass(&["job", &id, "result"])?;
        Ok(())
    }

    fn failing_job(&mut self) -> Outcome {
        self.title("A failed attempt is retried")?;
        let id = self.windlass(&["push", "flaky", "--retry", "3"])?;
        let script = "[ $WINDLASS_JOB_ATTEMPT = 2 ] || { echo the network is down >&2; exit 1; }";
        let work = ["work", "flaky", "--once", "--retry-delay", "300ms", "--", "sh", "-c", script];
        self.windlass(&work)?;
        self.tell(
            "An exit code other than 0 is a failed attempt. Without --retry-delay the job waits longer after \
             each failure. When the delay is over, a worker can claim it again:",
        )?;
        self.windlass(&work)?;
        self.tell("The job is completed, and the failed attempt is recorded:")?;
        self.windlass(&["job", &id])?;
        Ok(())
    }

    fn order(&mut self) -> Outcome {
        self.title("Priorities")?;
        for (what, priority) in [("cleanup", "10"), ("invoice", "0"), ("alarm", "-10")] {
            self.windlass(&["push", "task", what, "--priority", priority])?;
        }
        self.tell("Jobs with smaller numbers run first, in whatever order they were pushed:")?;
        self.windlass(&["work", "task", "--drain", "--", "sh", "-c", "cat >&2"])?;
        Ok(())
    }

    fn later(&mut self) -> Outcome {
        self.title("Delay a job, or cancel it")?;
        let id = self.windlass(&["push", "report", "--delay", "1h"])?;
        self.windlass(&["jobs", "name:report"])?;
        self.windlass(&["job", &id, "cancel"])?;
        Ok(())
    }

    fn repeated(&mut self) -> Outcome {
        self.title("Repeat a job, by a cron rule or an interval")?;
        let id = self.windlass(&["push", "digest", "--repeat", "0 9 * * MON-FRI"])?;
        self.windlass(&["job", &id])?;
        self.windlass(&["push", "tick", "--repeat", "every 5m"])?;
        self.windlass(&["work", "tick", "--once", "--", "date", "+tick at %T"])?;
        self.tell("After each run the same job waits for its next turn:")?;
        self.windlass(&["jobs", "name:tick"])?;
        Ok(())
    }

    fn unique(&mut self) -> Outcome {
        self.title("Unique jobs")?;
        self.tell("The second push has the same unique key, so it returns the id of the first job:")?;
        self.windlass(&["push", "sync", "--unique", "customer-7"])?;
        self.windlass(&["push", "sync", "--unique", "customer-7"])?;
        Ok(())
    }

    fn limited(&mut self) -> Outcome {
        self.title("Limit how many jobs run at once, or how many start per second")?;
        self.put("/api/v1/limits/one-call", &json!({"matcher": {"name": "call"}, "max_running": 1}))?;
        for who in ["ann", "bob", "eve"] {
            self.windlass(&["push", "call", who])?;
        }
        self.tell("The worker could run three jobs at a time, but they run one after the other:")?;
        let script = "read who; echo $who begins >&2; sleep 0.1; echo $who ends >&2";
        let flags = ["--drain", "--concurrency", "3"];
        self.windlass(&[&["work", "call"], &flags[..], &["--", "sh", "-c", script]].concat())?;
        Ok(())
    }

    fn children(&mut self) -> Outcome {
        self.title("A job that waits for its children")?;
        let id = self.windlass(&["push", "album"])?;
        let push = "windlass push thumbnail --parent $WINDLASS_JOB_ID";
        let script = format!("{push} one.jpg >/dev/null && {push} two.jpg >/dev/null");
        self.windlass(&["work", "album", "--once", "--", "sh", "-c", &script])?;
        self.tell("The run of the parent pushed two children, so it waits until both have ended:")?;
        self.windlass(&["jobs", "name:album"])?;
        self.windlass(&["work", "thumbnail", "--drain", "--", "cat"])?;
        self.tell("Now it runs once more, and can use their results:")?;
        self.windlass(&["work", "album", "--once", "--", "echo", "two thumbnails"])?;
        self.windlass(&["job", &id, "result"])?;
        Ok(())
    }

    fn progress(&mut self) -> Outcome {
        self.title("Progress, and a worker that speaks HTTP")?;
        let id = self.windlass(&["push", "encode", "{\"film\":\"holiday\"}"])?;
        self.tell("Any program can claim jobs, report its progress and settle them:")?;
        let claimed = self.curl("/api/v1/claim", &json!({"name": "encode", "worker": "laptop"}))?;
        let token = &claimed["jobs"][0]["token"];
        let id_number: u64 = id.parse().unwrap_or_default();
        let beat = json!({"id": id_number, "token": token, "progress": 40, "note": "half way"});
        self.curl("/api/v1/extend", &json!({"extend": [beat]}))?;
        self.windlass(&["jobs", "state:running"])?;
        let end = json!({"id": id_number, "token": token, "outcome": "finish", "result": "film.mp4"});
        self.curl("/api/v1/settle", &json!({"settle": [end]}))?;
        self.tell("A command of windlass work reports its progress with lines like: ::progress 40 half way")
    }

    /// Shows a curl command that puts a body, and sends the same request.
    fn put(&self, path: &str, body: &Value) -> Outcome {
        let line = format!("$ curl -X PUT {}{path} --json '{body}'", self.url);
        output::say(format!("   {}", self.style.paint(Colour::Cyan, &line)))?;
        let body = body.to_string();
        Client::new(&self.url, None, None)?.call("PUT", path, Some(&body), 0)?;
        Ok(())
    }

    /// Shows a curl command, sends the same request, and shows the response.
    fn curl(&self, path: &str, body: &Value) -> Outcome<Value> {
        let line = format!("$ curl {}{path} --json '{body}'", self.url);
        output::say(format!("   {}", self.style.paint(Colour::Cyan, &line)))?;
        let answer = Client::new(&self.url, None, None)?.post(path, body)?;
        self.tell(&output::harmless(&answer.to_string()))?;
        Ok(answer)
    }

    fn look_around(&mut self) -> Outcome {
        self.title("Next steps")?;
        self.windlass(&["queues"])?;
        let places = [
            ("URL/ui/", "web UI"),
            ("URL/docs/", "documentation"),
            ("windlass top", "live view in the terminal"),
            ("curl URL/metrics", "Prometheus metrics"),
            ("curl URL/api/openapi.json", "OpenAPI description"),
        ];
        for (command, what) in places {
            self.tell(&format!("{:<48} {what}", command.replace("URL", &self.url)))?;
        }
        self.tell("To start a server of your own: windlass serve")
    }

    fn title(&mut self, text: &str) -> Outcome {
        self.step += 1;
        if self.step > 1 && !self.fast {
            std::thread::sleep(PAUSE);
        }
        let title = format!("{}. {text}", self.step);
        output::say(format!("\n{}", self.style.paint(Colour::Bold, &title)))
    }

    fn tell(&self, text: &str) -> Outcome {
        output::say(format!("   {text}"))
    }

    /// Shows a windlass command, runs it, and shows its output. Returns its standard output.
    fn windlass(&self, args: &[&str]) -> Outcome<String> {
        let line = format!("$ windlass {}", args.iter().map(|arg| quoted(arg)).collect::<Vec<_>>().join(" "));
        output::say(format!("   {}", self.style.paint(Colour::Cyan, &line)))?;
        let program = std::env::current_exe()?;
        let mut command = Command::new(&program);
        command.args(args).env("WINDLASS_SERVER", &self.url).stdin(Stdio::null());
        if let Some(path) = path_with(&program) {
            command.env("PATH", path);
        }
        let ran = self.server.run_command(&mut command)?;
        for line in [&ran.stderr, &ran.stdout].iter().flat_map(|text| text.split(|byte| *byte == b'\n')) {
            if !line.is_empty() {
                output::say(format!("   {}", output::harmless(&String::from_utf8_lossy(line))))?;
            }
        }
        match ran.status.success() {
            true => Ok(String::from_utf8_lossy(&ran.stdout).trim_end().to_owned()),
            false => Err(Fault::failed(format!("{line} failed"))),
        }
    }
}

/// Search path of commands with the folder of this program first, so that a command can call it.
fn path_with(program: &Path) -> Option<OsString> {
    let own = program.parent()?.to_owned();
    let others = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&others))).ok()
}
