//! `windlass copy`: copies a whole store to another one.

use crate::cli::progress;
use crate::fault::{Fault, Outcome};
use crate::output;
use clap::Args;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use windlass_core::Timestamp;
use windlass_store::copy::{Copied, Stage, copy};
use windlass_store::postgres::PostgresOptions;
use windlass_store::{OpenOptions, Store};

/// Copy a store to a new one, also between SQLite and PostgreSQL
///
/// Copies all jobs with their ids and states, settings, paused queues and blobs, then reads and compares both stores. Stop
/// the servers on both stores first. The source is not changed; the target must be new. If the copy is interrupted, run
/// the same command again; no server starts on an unfinished copy.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass copy --from sqlite:windlass-data/windlass.db --to postgres://windlass@db.example.org/jobs
  windlass copy --from postgres://windlass@db.example.org/jobs --to sqlite:jobs.db --json")]
pub(crate) struct CopyArgs {
    /// URL of the store to copy
    #[arg(long, value_name = "URL")]
    from: String,
    /// URL of the new store
    #[arg(long, value_name = "URL")]
    to: String,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: CopyArgs) -> Outcome {
    refuse_nonsense(&args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let copied = runtime.block_on(Box::pin(copy_all(&args)))?;
    say(&args, &copied)
}

fn refuse_nonsense(args: &CopyArgs) -> Outcome {
    for url in [&args.from, &args.to] {
        if url.starts_with("memory:") {
            return Err(Fault::usage(
                "memory: cannot be copied, because it ends with this command; give sqlite:PATH or \
             postgres://…",
            ));
        }
    }
    if args.from == args.to {
        return Err(Fault::usage("--from and --to are the same store"));
    }
    match args.from.strip_prefix("sqlite:").map(|path| path.strip_prefix("//").unwrap_or(path)) {
        Some(path) if !Path::new(path).is_file() => {
            Err(Fault::failed(format!("no store at {path}; check --from")))
        }
        _ => Ok(()),
    }
}

async fn copy_all(args: &CopyArgs) -> Outcome<Copied> {
    let from = open("--from", &args.from).await?;
    let to = open("--to", &args.to).await?;
    let bar = progress::bar("jobs");
    let show = |stage, done, all| {
        bar.set_message(match stage {
            Stage::Clear => "removing an unfinished copy",
            Stage::Copy => "copying",
            Stage::Blobs => "copying blobs",
            Stage::Verify => "comparing",
        });
        progress::show(&bar, done, all);
    };
    let now = Timestamp::from_millis(jiff::Timestamp::now().as_millisecond());
    let note = format!(
        "{} from {}",
        jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default(),
        kind(&args.from)
    );
    let copied = copy(&*from, &*to, &note, now, &show).await;
    bar.finish_and_clear();
    // Closes both stores before reporting an error of the copy, which takes precedence.
    let closed = (from.close().await, to.close().await);
    let copied = copied.map_err(|error| Fault::failed(error.to_string()))?;
    closed.0.and(closed.1).map_err(|error| Fault::failed(format!("cannot close the stores: {error}")))?;
    Ok(copied)
}

async fn open(flag: &str, url: &str) -> Outcome<Arc<dyn Store>> {
    // The safety check of the database is left to the server that starts on it. The clock state of the source
    // is copied, and applied by the first server.
    let postgres = PostgresOptions { accept_unsafe: true, follow_clock: false, ..PostgresOptions::default() };
    let opened = windlass_store::open(url, OpenOptions { postgres, ..OpenOptions::default() }).await;
    opened.map_err(|error| Fault::failed(format!("{flag}: {error}")))
}

/// Kind of store in a URL, without the rest, which may contain a password.
fn kind(url: &str) -> &str {
    url.split(':').next().unwrap_or_default()
}

fn say(args: &CopyArgs, copied: &Copied) -> Outcome {
    let Copied { jobs, settings, paused, blobs, next_id, checksum } = copied;
    if args.json {
        return output::say_json(&json!({
            "jobs": jobs, "settings": settings, "paused": paused, "blobs": blobs, "next_id": next_id.get(),
            "checksum": format!("{checksum:08x}"),
        }));
    }
    output::say(format!(
        "{jobs} jobs, {settings} settings, {paused} paused queues and {blobs} blobs copied and \
         compared (checksum {checksum:08x}); the next job id is {next_id}"
    ))
}
