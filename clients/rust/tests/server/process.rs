//! A worker in a process of its own, and the signals that end it.

use super::{job, server, within, worker};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use windlass_client::dev::DevServer;
use windlass_client::{Context, Error, JobHandle, Windlass};

/// Environment variable with the server's address, for a worker in a process of its own.
const SERVER: &str = "RUST_NATIVE_SERVER";

/// Not a test: the process that the test below starts, from this program.
#[tokio::test]
#[ignore = "the test that needs it starts it"]
async fn a_process_that_works() {
    let Ok(server) = std::env::var(SERVER) else { return };
    let app = Windlass::new(&server).unwrap();
    app.task("slow", |ms: u64, ctx: Context| async move {
        ctx.progress(1, "begun");
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Ok::<_, Error>("slept")
    })
    .register();
    worker(&app).run().await.unwrap();
}

struct Process(Child);

impl Process {
    fn start(server: &DevServer) -> Process {
        // Without the name of this program's crate.
        let module = module_path!().split_once("::").map_or(String::new(), |(_, path)| format!("{path}::"));
        let child = Command::new(std::env::current_exe().unwrap())
            .args([&format!("{module}a_process_that_works"), "--exact", "--ignored"])
            .env(SERVER, server.url())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Process(child.unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    async fn ended(&mut self) -> bool {
        let ending = async {
            loop {
                match self.0.try_wait().unwrap() {
                    Some(status) => return status.success(),
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        within("the end of the process", ending).await
    }
}

/// Waits until the handler of the job says that it runs: the server knows of the run before the worker does.
async fn until_begun(server: &DevServer, job: &JobHandle<Value>) {
    let begun = async {
        while super::job(server, job.id())["progress"]["note"] != "begun" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("the start of the handler", begun).await;
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_lets_jobs_finish_and_a_second_one_releases_them() {
    let server = server().await;
    let task = server.app().unwrap().declare::<u64, Value>("slow").register();
    let mut process = Process::start(&server);
    let short = task.push(&1_000).await.unwrap();
    until_begun(&server, &short).await;
    process.signal(Signal::TERM);
    assert!(process.ended().await);
    assert_eq!(short.state().await.unwrap(), "completed");

    let mut process = Process::start(&server);
    // Far longer than the grace.
    let long = task.push(&3_600_000).await.unwrap();
    until_begun(&server, &long).await;
    process.signal(Signal::TERM);
    process.signal(Signal::INT);
    assert!(process.ended().await);
    let view = job(&server, long.id());
    assert_eq!((&view["state"], &view["attempts"]), (&json!("ready"), &json!(0)), "{view}");
}
