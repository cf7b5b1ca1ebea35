//! Worker that interprets scenarios: its one task `flow` runs the operations in its payload. The scenario runner
//! starts it with `WINDLASS_SERVER` and `SCENARIO_DIR`, and may kill it at any point.

use futures_util::future::join_all;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use windlass_client::{Backoff, BoxError, Context, Error, Fail, Retry, Snooze, Task, TaskBuilder, Windlass};

#[derive(Serialize, Deserialize)]
struct Flow {
    ops: Vec<Value>,
}

/// One run of a flow.
struct Interpreter {
    ctx: Context,
    flow: Task<Flow, Value>,
    folder: Folder,
    out: Map<String, Value>,
    /// Calls per step name, for the keys of `out`.
    used: HashMap<String, u32>,
}

impl Interpreter {
    async fn run(mut self, ops: Vec<Value>) -> Result<Value, BoxError> {
        for op in ops {
            if let Some(value) = op.get("return") {
                return Ok(value.clone());
            }
            match op.get("step") {
                Some(_) => self.together(vec![op]).await?,
                None => self.operate(op).await?,
            }
        }
        Ok(Value::Object(self.out))
    }

    async fn operate(&mut self, op: Value) -> Result<(), BoxError> {
        let text = |key: &str| op[key].as_str().unwrap_or_default().to_owned();
        let time = |key: &str| Duration::from_millis(op[key].as_u64().unwrap_or(0));
        let is = |key: &str| op.get(key).is_some();
        if let Some(steps) = op["together"].as_array() {
            self.together(steps.clone()).await
        } else if let Some(children) = op["all"].as_array() {
            self.all(children).await
        } else if is("wait_for") {
            self.wait_for(&text("wait_for"), op["timeout_ms"].as_u64()).await
        } else if is("sleep_ms") {
            Ok(self.ctx.sleep(time("sleep_ms")).await?)
        } else if is("until_cancelled_ms") {
            self.until_cancelled(time("until_cancelled_ms")).await
        } else if is("kill") {
            Ok(self.folder.kill_once(&text("kill")).await?)
        } else if is("effect") {
            Ok(self.folder.effect(&text("effect"))?)
        } else if is("progress") {
            let percent = op["progress"].as_u64().unwrap_or(0).min(100);
            self.ctx.progress(u8::try_from(percent)?, text("note"));
            Ok(())
        } else if is("log") {
            self.ctx.log(text("log"));
            Ok(())
        } else {
            self.fail(&op, text, time)
        }
    }

    /// Operations that end the run.
    fn fail(
        &self,
        op: &Value,
        text: impl Fn(&str) -> String,
        time: impl Fn(&str) -> Duration,
    ) -> Result<(), BoxError> {
        let is_first = |what: &str| self.folder.is_first(&format!("{what}-{}", text("id")));
        if op.get("raise").is_some() {
            return Err(text("raise").into());
        }
        if op.get("raise_once").is_some() && is_first("raised")? {
            return Err(text("raise_once").into());
        }
        if op.get("fail").is_some() {
            return Err(Fail::new(text("fail")).into());
        }
        if op.get("retry_after_ms").is_some() && is_first("retried")? {
            return Err(Retry::after(time("retry_after_ms")).into());
        }
        if op.get("snooze_ms").is_some() && is_first("snoozed")? {
            return Err(Snooze::new(time("snooze_ms")).into());
        }
        Ok(())
    }

    /// Steps at the same time.
    async fn together(&mut self, ops: Vec<Value>) -> Result<(), BoxError> {
        let mut names = Vec::new();
        let steps: Vec<_> = ops
            .into_iter()
            .map(|op| {
                let name = op["step"].as_str().unwrap_or_default().to_owned();
                names.push(self.name(&name));
                let folder = self.folder.clone();
                let retry = u32::try_from(op["retry"].as_u64().unwrap_or(0)).unwrap_or(u32::MAX);
                let work = move || step(folder.clone(), op.clone());
                self.ctx.step_retry(&name, retry, work).backoff(Duration::from_millis(10))
            })
            .collect();
        for (name, result) in names.into_iter().zip(join_all(steps).await) {
            self.out.insert(name, result?);
        }
        Ok(())
    }

    async fn all(&mut self, children: &[Value]) -> Result<(), BoxError> {
        let name = self.name("all");
        let calls = children.iter().map(|ops| {
            let ops = ops.as_array().cloned().unwrap_or_default();
            self.flow.call(&Flow { ops })
        });
        let results = self.ctx.all(calls).await?;
        self.out.insert(name, Value::Array(results));
        Ok(())
    }

    async fn wait_for(&mut self, signal: &str, timeout_ms: Option<u64>) -> Result<(), BoxError> {
        let name = self.name(&format!("wait:{signal}"));
        let wait = self.ctx.wait_for::<Value>(signal);
        let payload = match timeout_ms {
            Some(timeout) => wait.timeout(Duration::from_millis(timeout)).await?,
            None => wait.await?,
        };
        self.out.insert(name, payload.unwrap_or(Value::Null));
        Ok(())
    }

    async fn until_cancelled(&self, within: Duration) -> Result<(), BoxError> {
        if tokio::time::timeout(within, self.ctx.cancelled()).await.is_err() {
            return Ok(());
        }
        self.folder.effect("cancelled")?;
        Err(Error::Cancelled.into())
    }

    /// Name of the next step of this kind, by the rule of the library.
    fn name(&mut self, name: &str) -> String {
        let count = self.used.entry(name.to_owned()).or_insert(0);
        *count += 1;
        match count {
            1 => name.to_owned(),
            count => format!("{name}#{count}"),
        }
    }
}

async fn step(folder: Folder, op: Value) -> Result<Value, BoxError> {
    let name = op["step"].as_str().unwrap_or_default();
    let kill = |point: &str| (op["kill"] == point).then(|| format!("{name}-{point}"));
    if let Some(id) = kill("before") {
        folder.kill_once(&id).await?;
    }
    if let Some(line) = op["effect"].as_str() {
        folder.effect(line)?;
    }
    if let Some(id) = kill("after") {
        folder.kill_once(&id).await?;
    }
    if folder.fails_again(name, op["fail_times"].as_u64().unwrap_or(0))? {
        return Err(format!("step {name} fails").into());
    }
    if let Some(ms) = op["sleep_ms"].as_u64() {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
    Ok(op.get("returns").cloned().unwrap_or(Value::Null))
}

/// Folder of the scenario, in which effects and kills are noted.
#[derive(Clone)]
struct Folder(Arc<PathBuf>);

impl Folder {
    /// Appends a line to `effects`, with one write.
    fn effect(&self, line: &str) -> std::io::Result<()> {
        append(&self.0.join("effects"), format!("{line}\n").as_bytes())
    }

    /// True the first time.
    fn is_first(&self, file: &str) -> std::io::Result<bool> {
        match OpenOptions::new().write(true).create_new(true).open(self.0.join(file)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Kills the own process, the first time.
    async fn kill_once(&self, id: &str) -> std::io::Result<()> {
        if self.is_first(&format!("killed-{id}"))? {
            kill_process(getpid(), Signal::KILL)?;
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    /// True while the step has failed fewer than `times` times.
    fn fails_again(&self, name: &str, times: u64) -> std::io::Result<bool> {
        let file = self.0.join(format!("failed-{name}"));
        let failed = std::fs::metadata(&file).map_or(0, |file| file.len());
        if failed >= times {
            return Ok(false);
        }
        append(&file, b"x")?;
        Ok(true)
    }
}

fn append(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    OpenOptions::new().append(true).create(true).open(path)?.write_all(bytes)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::INFO).init();
    let folder = std::env::var_os("SCENARIO_DIR").ok_or("SCENARIO_DIR is not set")?;
    let folder = Folder(Arc::new(PathBuf::from(folder)));
    let app = Windlass::from_env()?;
    // The same task, for children.
    let children = settings(app.declare::<Flow, Value>("flow")).register();
    settings(app.task("flow", move |flow: Flow, ctx: Context| {
        let interpreter = Interpreter {
            ctx,
            flow: children.clone(),
            folder: folder.clone(),
            out: Map::new(),
            used: HashMap::new(),
        };
        interpreter.run(flow.ops)
    }))
    .register();
    app.work(4).await?;
    Ok(())
}

fn settings(task: TaskBuilder<Flow, Value>) -> TaskBuilder<Flow, Value> {
    task.retry(5).backoff(Backoff::Fixed(Duration::from_millis(50))).lease(Duration::from_secs(5))
}
