//! How fast no-op jobs go through contexts of each language, in batches.
//!
//! ```sh
//! cargo build --release -p windlass-runners --bins --example handler_bench
//! target/release/examples/handler_bench                      # every language that is installed, two contexts each
//! target/release/examples/handler_bench python 200000 2 1000 # language, jobs, contexts, jobs in a batch
//! ```
//!
//! Jobs are handed over as the server would: each batch when the one before it in the same context has been told.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on should say where"
)]

use async_trait::async_trait;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use windlass_core::handler::{Batch, BatchJob, Ended, Run};
use windlass_http::Allowed;
use windlass_runners::handlers::{
    BlobError, Handler, HandlerOptions, Handlers, HelperProgram, Lang, Settings, World,
};

struct Nothing;

#[async_trait]
impl World for Nothing {
    fn addresses(&self) -> Arc<Allowed> {
        Arc::new(Allowed::parse([]).unwrap())
    }

    fn tls(&self) -> Result<Arc<rustls::ClientConfig>, String> {
        Err("nobody is trusted here".to_owned())
    }

    async fn blob(&self, _client: &str, _address: &str) -> Result<Vec<u8>, BlobError> {
        Err(BlobError::Missing("there are none".to_owned()))
    }
}

#[derive(Clone, Copy)]
struct Load {
    lang: Lang,
    jobs: usize,
    contexts: usize,
    batch: usize,
}

/// A body that does nothing.
fn noop(lang: Lang) -> &'static str {
    match lang {
        Lang::Python => "pass",
        Lang::Sh => "",
        _ => ";",
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let lang = args.next().map(|name| Lang::parse(&name).unwrap());
    let mut number = |default: usize| args.next().map_or(default, |text| text.parse().unwrap());
    let (jobs, contexts, batch) = (number(200_000), number(2), number(1_000));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for each in [Lang::Python, Lang::Node, Lang::Php, Lang::Sh] {
        // A job of the shell is a process.
        let jobs = if each == Lang::Sh { jobs.min(2_000) } else { jobs };
        if lang.is_none_or(|lang| lang == each) {
            runtime.block_on(measure(Load { lang: each, jobs, contexts, batch }));
        }
    }
}

async fn measure(load: Load) {
    let own = std::env::current_exe().unwrap();
    // target/release/examples/handler_bench stands beside target/release/windlass-run-handler.
    let path = own.parent().and_then(Path::parent).unwrap().join("windlass-run-handler");
    assert!(path.exists(), "build it first: cargo build --release -p windlass-runners --bins");
    let folder = std::env::temp_dir().join(format!("handler-bench-{}", std::process::id()));
    let mut settings = Settings::new(folder.clone(), HelperProgram { path, args: Vec::new() });
    settings.contexts_per_type = load.contexts;
    settings.contexts_max = load.contexts;
    settings.recycle_jobs = u32::MAX;
    let handlers = Handlers::new(settings, Arc::new(Nothing)).unwrap();
    let handler = Arc::new(Handler {
        lang: load.lang,
        eid: None,
        before: None,
        before_each: None,
        body: noop(load.lang).to_owned(),
        after_each: None,
        options: HandlerOptions::default(),
    });
    if let Err(why) = handlers.check(&handler) {
        println!("{}: {why}", load.lang);
        return;
    }
    // Every context is there before time is taken.
    run(&handlers, &handler, Load { jobs: load.contexts * load.batch, ..load }).await;
    let began = Instant::now();
    run(&handlers, &handler, load).await;
    let took = began.elapsed().as_secs_f64();
    println!(
        "{}: {} no-op jobs in {took:.2} s, {:.0} jobs/s ({} contexts, batches of {})",
        load.lang,
        load.jobs,
        load.jobs as f64 / took,
        load.contexts,
        load.batch
    );
    handlers.stop(std::time::Duration::ZERO).await;
    let _ = std::fs::remove_dir_all(folder);
}

async fn run(handlers: &Handlers, handler: &Arc<Handler>, load: Load) {
    let share = load.jobs / load.contexts;
    let lanes = (0..load.contexts).map(|_| {
        let (handlers, handler) = (handlers.clone(), handler.clone());
        tokio::spawn(async move {
            let mut left = share;
            while left > 0 {
                let size = left.min(load.batch);
                left -= size;
                let mut run = handlers.start(batch_of(size, &handler));
                while let Some((_, ended)) = run.next().await {
                    assert!(matches!(&ended, Ended::Done(done) if done.exitcode == 200), "{ended:?}");
                }
            }
        })
    });
    for lane in lanes.collect::<Vec<_>>() {
        lane.await.unwrap();
    }
}

fn batch_of(size: usize, handler: &Arc<Handler>) -> Batch<Handler> {
    let payload = Bytes::from_static(b"{\"user\":12345,\"mail\":\"somebody@example.org\"}");
    let job = |number| BatchJob {
        trace: None,
        id: format!("Q7TzzMq-vm-aHav-{number:03}"),
        attempt: 1,
        payload: payload.clone(),
    };
    Batch {
        client: "acme".to_owned(),
        jobtype: "noop".to_owned(),
        version: "1".to_owned(),
        handler: handler.clone(),
        jobs: (0..size).map(job).collect(),
    }
}
