use std::collections::BTreeMap;
use std::time::Duration;
use windlass_client::jq::{Client, Error, Job, NewJob, Worker};

type Page = BTreeMap<String, String>;

pub async fn fetch(jq: &str, page: Page) -> Result<Option<String>, Error> {
    let worker = Worker::builder(jq)
        .handle("fetch", |job: Job<Page>| async move {
            if job.attempt == 1 {
                std::future::pending::<()>().await; // the first attempt hangs
            }
            Ok(format!("attempt {} after {:?}", job.attempt, job.timeout))
        })
        .start()
        .await?;
    let client = Client::new(jq)?;
    let job = NewJob::new("fetch", page).timeout(Duration::from_secs(1)).keep_result();
    let ended = client.wait(&client.enqueue(&job).await?, Duration::from_secs(30)).await?;
    worker.shutdown().await;
    Ok(ended.and_then(|job| job.result))
}
