//! `windlass demo`: a guided tour. A server of its own on a temporary store and a free port, real jobs, a real worker.

use crate::client::Client;
use crate::config::{Config, Raw, Source, Written, keys};
use crate::fault::{Fault, Outcome};
use crate::output::{self, Colour, Style};
use crate::serve::Server;
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;

/// Time to read a step.
const PAUSE: Duration = Duration::from_millis(2500);

/// A guided tour: a server on a temporary store, a few jobs, and what happens to them
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass demo
  windlass demo --keep-serving")]
pub struct DemoArgs {
    /// Without pauses
    #[arg(long)]
    fast: bool,
    /// Go on serving at the end, to look around; Ctrl-C ends it
    #[arg(long)]
    keep_serving: bool,
}

pub fn run(args: DemoArgs) -> Outcome {
    let folder = tempfile::Builder::new().prefix("windlass-demo-").tempdir()?;
    let config = config_in(folder.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut server = runtime.block_on(Server::start(&config))?;
    let address = server.listening[0].1;
    let url = format!("http://{address}");
    let mut tour = Tour {
        client: Client::new(&url, None, None)?,
        url,
        style: Style::of_stdout(),
        fast: args.fast,
        step: 0,
    };
    let outcome = tour.walk(&folder.path().display().to_string());
    let outcome = match (outcome, args.keep_serving) {
        (Ok(()), true) => {
            output::say(format!("\nStill serving at {} until you press Ctrl-C.", tour.url))?;
            runtime.block_on(tokio::signal::ctrl_c()).map_err(Fault::from)
        }
        (outcome, _) => outcome,
    };
    runtime.block_on(server.stop());
    outcome
}

fn config_in(folder: &std::path::Path) -> Outcome<Config> {
    let mut written = Written::default();
    let data = folder.display().to_string();
    for (name, text) in
        [("data", data.as_str()), ("http", "127.0.0.1:0"), ("bedrock", "off"), ("mdns", "off")]
    {
        if let Some(key) = keys::find(name) {
            written.put(key, Raw::Text(text.to_string()), Source::Set);
        }
    }
    Ok(Config::from_written(&written)?)
}

struct Tour {
    client: Client,
    url: String,
    style: Style,
    fast: bool,
    step: u32,
}

impl Tour {
    fn walk(&mut self, folder: &str) -> Outcome {
        self.title("A server starts")?;
        self.tell(&format!("It listens on {} and keeps its jobs in {folder}.", self.url))?;
        self.first_job()?;
        self.failing_job()?;
        self.order()?;
        self.later()?;
        self.unique()?;
        self.look_around()
    }

    fn first_job(&mut self) -> Outcome {
        self.title("A job goes in, a worker takes it, the result comes back")?;
        let id = self.push(json!({"name": "hello", "payload": {"to": "you"}}))?;
        self.shell("windlass push hello '{\"to\":\"you\"}'", &id.to_string())?;
        let job = self.claim("hello")?;
        self.tell("A worker asks for jobs named hello. While it works, the job is its alone: a lease.")?;
        self.shell("windlass work hello -- ./greet", &format!("payload on stdin: {}", job["payload"]))?;
        self.settle(&job, json!({"outcome": "finish", "result": "hello, you!"}))?;
        let answer = self.client.get(&format!("/api/v1/jobs/{id}/result"))?;
        self.shell(&format!("windlass job {id} result"), &output::plain(&answer["result"]))
    }

    fn failing_job(&mut self) -> Outcome {
        self.title("A job fails, is tried again, and is done at the second attempt")?;
        let retry = json!({"max_attempts": 3, "backoff": {"fixed_ms": 300}});
        let id = self.push(json!({"name": "flaky", "payload": 1, "retry": retry}))?;
        let job = self.claim("flaky")?;
        self.settle(&job, json!({"outcome": "fail", "message": "the network was away"}))?;
        let view = self.client.get(&format!("/api/v1/jobs/{id}"))?;
        self.tell(&format!(
            "Attempt 1 failed; job {id} is {} again, in 300 ms.",
            output::plain(&view["state"])
        ))?;
        let again = self.claim("flaky")?;
        self.tell(&format!("Attempt {} starts by itself when its time has come.", again["attempt"]))?;
        self.settle(&again, json!({"outcome": "finish"}))?;
        let view = self.client.get(&format!("/api/v1/jobs/{id}"))?;
        let history = output::plain(&view["errors"][0]["message"]);
        self.tell(&format!("Now it is {}; its history remembers: {history}", output::plain(&view["state"])))
    }

    fn order(&mut self) -> Outcome {
        self.title("The urgent goes first")?;
        for (what, priority) in [("cleanup", 10), ("invoice", 0), ("alarm", -10)] {
            self.push(json!({"name": "task", "payload": what, "priority": priority}))?;
        }
        let mut order = Vec::new();
        for _ in 0..3 {
            let job = self.claim("task")?;
            order.push(output::plain(&job["payload"]));
            self.settle(&job, json!({"outcome": "finish"}))?;
        }
        self.tell("Pushed as cleanup (10), invoice (0), alarm (-10); smaller numbers first:")?;
        self.shell("windlass work task -- cat", &order.join(", "))
    }

    fn later(&mut self) -> Outcome {
        self.title("Not now")?;
        let id = self.push(json!({"name": "report", "delay_ms": 3_600_000}))?;
        self.shell("windlass push report --delay 1h", &id.to_string())?;
        let job = self.client.get(&format!("/api/v1/jobs/{id}"))?;
        self.tell(&format!("Job {id} waits for its time ({}).", output::plain(&job["state"])))?;
        self.client.call("POST", &format!("/api/v1/jobs/{id}/cancel"), None, 0)?;
        self.shell(&format!("windlass job {id} cancel"), "cancelled")
    }

    fn unique(&mut self) -> Outcome {
        self.title("Once is enough")?;
        let job = json!({"name": "sync", "unique": "customer-7"});
        let (first, second) = (self.push(job.clone())?, self.push(job)?);
        self.tell(&format!("Pushed twice with the same key: job {first}, and job {second} again."))
    }

    fn look_around(&mut self) -> Outcome {
        self.title("Where to look")?;
        let queues = self.client.get("/api/v1/queues")?;
        let queues = queues["queues"].as_array().cloned().unwrap_or_default();
        self.shell("windlass queues", "")?;
        for line in crate::cli::queues::queue_table(&queues).lines(self.style) {
            output::say(format!("     {line}"))?;
        }
        let places = [
            ("windlass jobs", "search, newest first"),
            ("windlass top", "a live view"),
            ("curl URL/metrics", "numbers for Prometheus"),
            ("curl URL/api/openapi.json", "the API's own description"),
        ];
        for (command, what) in places {
            self.tell(&format!("{:<42} {what}", command.replace("URL", &self.url)))?;
        }
        self.tell("The temporary store is removed now. To begin for real: windlass serve")
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

    /// What one would type, and what would come back.
    fn shell(&self, command: &str, answer: &str) -> Outcome {
        let line = format!("$ {command}");
        output::say(format!("   {}", self.style.paint(Colour::Cyan, &line)))?;
        match answer {
            "" => Ok(()),
            answer => output::say(format!("   {}", output::harmless(answer))),
        }
    }

    fn push(&mut self, job: Value) -> Outcome<u64> {
        let answer = self.client.post("/api/v1/jobs", &job)?;
        answer["id"].as_u64().ok_or_else(|| Fault::failed(format!("the server gave no id: {answer}")))
    }

    fn claim(&mut self, name: &str) -> Outcome<Value> {
        let ask = json!({"name": name, "limit": 1, "wait_ms": 10_000, "worker": "demo"});
        let mut answer = self.client.post("/api/v1/claim", &ask)?;
        match answer["jobs"][0].take() {
            Value::Null => Err(Fault::failed(format!("no job named {name} came within ten seconds"))),
            job => Ok(job),
        }
    }

    fn settle(&mut self, job: &Value, mut entry: Value) -> Outcome {
        entry["id"] = job["id"].clone();
        entry["token"] = job["token"].clone();
        let answer = self.client.post("/api/v1/settle", &json!({"settle": [entry]}))?;
        match answer["settled"][0]["ok"] == true {
            true => Ok(()),
            false => Err(Fault::failed(format!("settling: {answer}"))),
        }
    }
}
