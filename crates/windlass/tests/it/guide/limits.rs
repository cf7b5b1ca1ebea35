use std::collections::BTreeMap;
use std::time::Duration;
use windlass_client::jq::{Client, Error, Job, NewJob, Worker};

type Page = BTreeMap<String, String>;

/// Enqueues the same job twice. Returns the limit that holds back the second one.
pub async fn twice(jq: &str, page: Page) -> Result<Option<String>, Error> {
    let worker = Worker::builder(jq).handle("crawl", |_: Job<Page>| async { Ok(()) }).start().await?;
    let client = Client::new(jq)?;
    let first = client.enqueue(&NewJob::new("crawl", &page)).await?;
    client.wait::<()>(&first, Duration::from_secs(10)).await?;
    let second = client.enqueue(&NewJob::new("crawl", &page)).await?;
    let waiting = client.job::<()>(&second).await?;
    worker.shutdown().await;
    Ok(waiting.held_by)
}
