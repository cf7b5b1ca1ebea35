//! Steps of the tour through the protocols of other job systems.

use super::Tour;
use crate::client::{BedrockClient, Client};
use crate::fault::{Fault, Outcome};
use crate::output::{self, Colour};
use serde_json::{Value, json};
use std::time::Duration;

/// Most polls for the end of a job; generous for a busy machine.
const MINIQ_LOOKS: u32 = 200;

impl Tour<'_> {
    pub(super) fn bedrock(&mut self) -> Outcome {
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

    pub(super) fn queuey(&mut self) -> Outcome {
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

    pub(super) fn jq(&mut self) -> Outcome {
        self.title("The JQ protocol: the server sends jobs to workers that have registered")?;
        let job = json!({"name": "add", "argument": {"a": 1, "b": 2}, "keep_result": true});
        let id = self.curl("/jq/job", &job)?;
        self.tell("No worker has registered, so the job waits. It is a job like all others:")?;
        self.windlass(&["job", id["job_id"].as_str().unwrap_or_default()]).map(drop)
    }

    pub(super) fn miniq(&mut self) -> Outcome {
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

    pub(super) fn sidejob(&mut self) -> Outcome {
        self.title(
            "The SideJob protocol: a long-lived job runs whenever a value arrives at one of its ports",
        )?;
        let classes = json!({"Add": {"inports": {"a": {}, "b": {"default": 10}}, "outports": {"sum": {}}}});
        let path = "/sidejob/workers/math";
        self.put(path, &classes)?;
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
}
