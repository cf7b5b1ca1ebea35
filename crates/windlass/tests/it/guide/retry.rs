use std::collections::BTreeMap;
use std::time::Duration;
use windlass_client::jq::{Client, Error, Failure, Job, JobView, NewJob, Worker};

type Mail = BTreeMap<String, String>;

async fn send(job: Job<Mail>) -> Result<(), Failure> {
    match job.argument.get("to") {
        None => Err(Failure::give_up("no recipient")), // another attempt would not help
        Some(_) if job.attempt < 3 => Err(Failure::retry("connection refused")),
        Some(_) => Ok(()),
    }
}

pub async fn deliver(jq: &str, mail: Mail) -> Result<Option<JobView<()>>, Error> {
    let worker = Worker::builder(jq).handle("mail", send).start().await?;
    let client = Client::new(jq)?;
    let id = client.enqueue(&NewJob::new("mail", mail).max_retry(5)).await?;
    let ended = client.wait(&id, Duration::from_secs(30)).await?;
    worker.shutdown().await;
    Ok(ended)
}
