//! `windlass demo`: guided tour with its own server on a temporary store and a free port, real jobs and a
//! real worker.

use super::own_server::OwnServer;
use crate::client::{BedrockClient, Client};
use crate::fault::{Fault, Outcome};
use crate::output::{self, Colour, Style};
use clap::Args;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time to read a step.
const PAUSE: Duration = Duration::from_millis(2500);

/// Most polls for the end of a job; generous for a busy machine.
const MINIQ_LOOKS: u32 = 200;

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
    let server = OwnServer::start("windlass-demo-", None, &[])?;
    let (url, bedrock) = (server.url()?, server.address("bedrock")?);
    let mut tour = Tour { url, bedrock, style: Style::of_stdout(), fast: args.fast, step: 0 };
    let outcome = tour.walk(&server.folder().display().to_string());
    let outcome = match (outcome, args.keep_serving) {
        (Ok(()), true) => {
            output::say(format!("\nThe server is still running at {}; press Ctrl-C to stop it.", tour.url))?;
            server.until_interrupted()
        }
        (outcome, _) => outcome,
    };
    server.stop();
    outcome
}

struct Tour {
    url: String,
    bedrock: SocketAddr,
    style: Style,
    fast: bool,
    step: u32,
}

impl Tour {
    fn walk(&mut self, folder: &str) -> Outcome {
        self.title("Start a server")?;
        self.tell(&format!("It listens on {} and stores its jobs in {folder}.", self.url))?;
        self.first_job()?;
        self.failing_job()?;
        self.order()?;
        self.later()?;
        self.unique()?;
        self.bedrock()?;
        self.queuey()?;
        self.jq()?;
        self.miniq()?;
        self.sidejob()?;
        self.look_around()
    }

    fn first_job(&mut self) -> Outcome {
        self.title("Push a job, run it, get its result")?;
        self.windlass(&["push", "hello", "{\"to\":\"you\"}"])?;
        self.tell(
            "A worker claims jobs named hello and runs a command for each. It holds a lease on the job \
         while it works.",
        )?;
        self.windlass(&["work", "hello", "--once", "--", "sed", "s/.*/hello, you!/"])?;
        self.windlass(&["job", "1", "result"])
    }

    fn failing_job(&mut self) -> Outcome {
        self.title("A failed attempt is retried")?;
        self.windlass(&["push", "flaky", "--retry", "3"])?;
        let script = "[ $WINDLASS_JOB_ATTEMPT = 2 ] || { echo the network is down >&2; exit 1; }";
        let work = ["work", "flaky", "--once", "--retry-delay", "300ms", "--", "sh", "-c", script];
        self.windlass(&work)?;
        self.tell(
            "An exit code other than 0 is a failed attempt. When the delay is over, a worker can claim the job \
             again.",
        )?;
        self.windlass(&work)?;
        self.tell("The job is completed, and the failed attempt is recorded:")?;
        self.windlass(&["job", "2"])
    }

    fn order(&mut self) -> Outcome {
        self.title("Priorities")?;
        for (what, priority) in [("cleanup", "10"), ("invoice", "0"), ("alarm", "-10")] {
            self.windlass(&["push", "task", what, "--priority", priority])?;
        }
        self.tell("Jobs with smaller numbers run first, in whatever order they were pushed:")?;
        self.windlass(&["work", "task", "--drain", "--", "sh", "-c", "cat >&2"])
    }

    fn later(&mut self) -> Outcome {
        self.title("Delay a job, or cancel it")?;
        self.windlass(&["push", "report", "--delay", "1h"])?;
        self.windlass(&["jobs", "name:report"])?;
        self.windlass(&["job", "6", "cancel"])
    }

    fn unique(&mut self) -> Outcome {
        self.title("Unique jobs")?;
        self.tell("The second push has the same unique key, so it returns the id of the first job:")?;
        self.windlass(&["push", "sync", "--unique", "customer-7"])?;
        self.windlass(&["push", "sync", "--unique", "customer-7"])
    }

    fn bedrock(&mut self) -> Outcome {
        self.title("The Bedrock::Jobs protocol")?;
        self.tell(&format!(
            "These lines can be typed into: nc {} {}",
            self.bedrock.ip(),
            self.bedrock.port()
        ))?;
        let mut client = BedrockClient::open(self.bedrock)?;
        self.ask_bedrock(&mut client, "CreateJob\nname: invoice\ndata: {\"customer\":7}\n")?;
        let job = self.ask_bedrock(&mut client, "GetJob\nname: inv*\n")?;
        self.ask_bedrock(&mut client, &format!("FinishJob\njobID: {}\n", job["jobID"]))?;
        Ok(())
    }

    /// Sends a request, shows it with the status line and the body of the response, and returns the body.
    fn ask_bedrock(&self, client: &mut BedrockClient, request: &str) -> Outcome<Value> {
        for asked in request.lines() {
            output::say(format!("   {}", self.style.paint(Colour::Cyan, asked)))?;
        }
        let (status, body) = client.ask(request)?;
        self.tell(&output::harmless(&format!("{status} {body}")))?;
        if !status.starts_with("200") {
            return Err(Fault::failed(format!("{} failed", request.lines().next().unwrap_or_default())));
        }
        Ok(serde_json::from_str(&body).unwrap_or_default())
    }

    fn queuey(&mut self) -> Outcome {
        self.title(
            "The queuey-queue protocol: jobs name a WASI binary by its hash, and runners poll for them",
        )?;
        let binary = "68d5b57378f76645bf12506c88fb06a81ddb3965";
        let runner = "0b7c1c5e-6d4f-4a51-9d5b-1f0e5a7c9e01";
        self.curl("/jobs/create", &json!({"binary_addr": binary}))?;
        let job = self.curl("/jobs/claim", &json!({"runner_id": runner}))?;
        let complete = format!("/jobs/{}/complete", job["job_id"].as_str().unwrap_or_default());
        self.curl(&complete, &json!({"status": "completed", "runner_id": runner}))?;
        Ok(())
    }

    fn jq(&mut self) -> Outcome {
        self.title("The JQ protocol: the server sends jobs to workers that have registered")?;
        let job = json!({"name": "add", "argument": {"a": 1, "b": 2}, "keep_result": true});
        let id = self.curl("/jq/job", &job)?;
        self.tell("No worker has registered, so the job waits. It is a job like all others:")?;
        self.windlass(&["job", id["job_id"].as_str().unwrap_or_default()])
    }

    fn miniq(&mut self) -> Outcome {
        self.title(
            "The miniq protocol: a client uploads a handler, then posts jobs, and the server itself \
             runs them",
        )?;
        let code = "tr a-z A-Z > \"$WINDLASS_RESULT\"";
        self.curl("/acme/handler/add/shout/add", &json!({"lang": "sh", "body": code}))?;
        let added = self.curl("/acme/job/shout/add", &json!({"say": "hello"}))?;
        let path = format!("/acme/job/shout/{}", added["ids"][0].as_str().unwrap_or_default());
        let mut job = Value::Null;
        for _ in 0..MINIQ_LOOKS {
            // Not found: the job has not reached the store yet.
            job = Client::new(&self.url, None, None)?.get(&path).unwrap_or_default();
            if job["lock"] == "__done" {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        output::say(format!("   {}", self.style.paint(Colour::Cyan, &format!("$ curl {}{path}", self.url))))?;
        self.tell(&output::harmless(&job.to_string()))
    }

    fn sidejob(&mut self) -> Outcome {
        self.title(
            "The SideJob protocol: a long-lived job runs whenever a value arrives at one of its ports",
        )?;
        let classes = json!({"Add": {"inports": {"a": {}, "b": {"default": 10}}, "outports": {"sum": {}}}});
        let path = "/sidejob/workers/math";
        let line = format!("$ curl -X PUT {}{path} --json '{classes}'", self.url);
        output::say(format!("   {}", self.style.paint(Colour::Cyan, &line)))?;
        Client::new(&self.url, None, None)?.put_bytes(path, classes.to_string().as_bytes())?;
        let job = self.curl("/sidejob/jobs", &json!({"queue": "math", "class": "Add"}))?["job"].clone();
        let at = |what: &str| format!("/sidejob/jobs/{job}/{what}");
        self.curl(&at("inports/a/write"), &json!({"data": 32}))?;
        let token = self.curl("/sidejob/queues/math/claim", &json!({}))?["token"].clone();
        self.tell(
            "The worker reads one value of each input. Its output and the end of the run are \
             committed together.",
        )?;
        self.curl(&at("for_inputs"), &json!({"inports": ["a", "b"], "token": token}))?;
        let writes = json!([{"outport": "sum", "data": 42}]);
        self.curl(&at("finish"), &json!({"token": token, "writes": writes}))?;
        self.curl(&at("outports/sum/entries"), &json!({}))?;
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

    /// Shows a windlass command, runs it, and shows its output.
    fn windlass(&self, args: &[&str]) -> Outcome {
        let line = format!("$ windlass {}", args.iter().map(|arg| quoted(arg)).collect::<Vec<_>>().join(" "));
        output::say(format!("   {}", self.style.paint(Colour::Cyan, &line)))?;
        let program = std::env::current_exe()?;
        let ran = Command::new(program)
            .args(args)
            .env("WINDLASS_SERVER", &self.url)
            .stdin(Stdio::null())
            .output()?;
        for line in [&ran.stderr, &ran.stdout].iter().flat_map(|text| text.split(|byte| *byte == b'\n')) {
            if !line.is_empty() {
                output::say(format!("   {}", output::harmless(&String::from_utf8_lossy(line))))?;
            }
        }
        match ran.status.success() {
            true => Ok(()),
            false => Err(Fault::failed(format!("{line} failed"))),
        }
    }
}

/// Quotes a word for the shell if needed.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/=,".contains(c);
    if word.chars().all(plain) { word.to_string() } else { format!("'{word}'") }
}
