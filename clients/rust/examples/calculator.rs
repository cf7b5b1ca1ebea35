//! Example worker: `add`, `divide`, `flaky` and `sleep`. Ctrl-C shuts it down gracefully.
//!
//! ```sh
//! windlass serve &
//! cargo run -p windlass-client --example calculator
//! curl -s localhost:7373/jq/job --json '{"name":"divide","argument":{"a":7,"b":2},"keep_result":true}'
//! curl -s localhost:7373/jq/job/1/polling -H 'Accept: application/json'
//! ```

use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass_client::jq::{Error, Failure, Job, Worker};

#[derive(Deserialize)]
struct Pair {
    a: i64,
    b: i64,
}

#[derive(Serialize)]
struct Quotient {
    quotient: i64,
    rest: i64,
}

#[derive(Deserialize)]
struct Sleep {
    ms: u64,
}

async fn divide(job: Job<Pair>) -> Result<Quotient, Failure> {
    let Pair { a, b } = job.argument;
    match (a.checked_div(b), a.checked_rem(b)) {
        (Some(quotient), Some(rest)) => Ok(Quotient { quotient, rest }),
        // A retry would fail in the same way.
        _ => Err(Failure::give_up(format!("{a} cannot be divided by {b}")).with_error(&(a, b))),
    }
}

async fn flaky(job: Job<Pair>) -> Result<u32, Failure> {
    match job.attempt {
        1 => Err(Failure::retry("no luck the first time")),
        attempt => Ok(attempt),
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::DEBUG).init();
    let server = std::env::var("JQ").unwrap_or_else(|_| "http://127.0.0.1:7373/jq".to_owned());
    let summary = Worker::builder(server)
        .name("calculator")
        .max_jobs(8)
        .handle("add", |job: Job<Pair>| async move { Ok(job.argument.a.saturating_add(job.argument.b)) })
        .handle("divide", divide)
        .handle("flaky", flaky)
        .handle("sleep", |job: Job<Sleep>| async move {
            tokio::time::sleep(Duration::from_millis(job.argument.ms)).await;
            Ok(job.argument.ms)
        })
        .run()
        .await?;
    tracing::info!(?summary, "ended");
    Ok(())
}
