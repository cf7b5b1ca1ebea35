use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass_client::jq::{Client, Error, Job, NewJob, Worker};

#[derive(Serialize, Deserialize)]
struct Add {
    a: i64,
    b: i64,
}

/// `jq` is the address of the dialect, such as `http://127.0.0.1:7373/jq`.
pub async fn add(jq: &str) -> Result<Option<i64>, Error> {
    let worker = Worker::builder(jq)
        .handle("add", |job: Job<Add>| async move { Ok(job.argument.a + job.argument.b) })
        .start()
        .await?;
    let client = Client::new(jq)?;
    let id = client.enqueue(&NewJob::new("add", Add { a: 1, b: 2 }).keep_result()).await?;
    let ended = client.wait::<i64>(&id, Duration::from_secs(10)).await?;
    worker.shutdown().await;
    Ok(ended.and_then(|job| job.result))
}
