//! `windlass import bedrock`: imports the jobs of a Bedrock database file through the native API.

use super::tally::Tally;
use crate::cli::progress;
use crate::client::{Client, ServerArgs};
use crate::fault::{Fault, Outcome};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use windlass_dialects::bedrock::Profile;
use windlass_dialects::bedrock::import::{
    Choices, Entry, ImportOutcome as Becomes, ImportSource, RowResult, RunningRows, Unreadable,
};

/// Jobs per request: large enough to hide the round trip, small enough to show progress.
const JOBS_PER_CALL: usize = 1_000;
/// Payload bytes per request, well below the server's limit on a request body.
const BYTES_PER_CALL: usize = 4 << 20;

/// Import the jobs of a Bedrock database file
///
/// Without --apply, prints a summary: how many jobs each state has, what they become, and which jobs cannot be imported
/// and why. Nothing is changed and no server is needed. With --apply, sends the jobs to the server. Each job gets a new
/// jobID and the alias bedrock-<jobID>. A job whose alias exists is skipped, so an interrupted import can be run again.
/// If some jobs cannot be imported, the others are, and the exit code is 1.
///
/// Stop Bedrock and its workers first. A job that was running (RUNNING, RUNQUEUED) is queued again, because its worker
/// cannot finish it here; with --running fail it is imported as FAILED instead.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass import bedrock bedrock.db
  windlass import bedrock bedrock.db --apply --server http://jobs.example.org:7373
  windlass import bedrock bedrock.db --running fail --json")]
pub(super) struct BedrockArgs {
    /// Bedrock database file
    file: PathBuf,
    /// Import the jobs instead of only printing the summary
    #[arg(long, visible_alias = "yes")]
    apply: bool,
    /// State in which running jobs are imported
    #[arg(long, value_enum, default_value = "queue")]
    running: RunningWord,
    /// Syntax of repeat rules: of current Bedrock, or of its original description
    #[arg(long, value_enum, default_value = "current")]
    profile: ProfileWord,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RunningWord {
    Queue,
    Fail,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProfileWord {
    Seed,
    Current,
}

pub(super) fn run(args: BedrockArgs) -> Outcome {
    let choices = Choices {
        profile: match args.profile {
            ProfileWord::Seed => Profile::Seed,
            ProfileWord::Current => Profile::Current,
        },
        running: match args.running {
            RunningWord::Queue => RunningRows::Queue,
            RunningWord::Fail => RunningRows::Fail,
        },
    };
    let source = ImportSource::open(&args.file, choices)?;
    if !args.apply {
        let mut tally = Tally::default();
        source.each(|fate| {
            tally.add(&fate);
            Ok::<(), Fault>(())
        })?;
        return tally.say(&args.file, None, args.json);
    }
    let mut import = Import {
        client: args.server.client()?,
        bar: progress::bar("jobs"),
        all: source.count()?,
        seen: 0,
        batch: Batch::default(),
        parents: HashMap::new(),
        tally: Tally::default(),
        sent: Sent::default(),
    };
    let outcome = source.each(|fate| import.take(fate)).and_then(|()| import.send());
    import.bar.finish_and_clear();
    if outcome.is_err() && import.sent.new > 0 {
        crate::output::note(format!(
            "{} jobs were imported before the error; run the same command again to continue",
            import.sent.new
        ));
    }
    outcome?;
    import.tally.say(&args.file, Some(&import.sent), args.json)?;
    // Exit code 1 if some jobs could not be imported.
    import.tally.left_out(&import.sent).map_or(Ok(()), |why| Err(Fault::failed(why)))
}

/// Responses of the server.
#[derive(Debug, Default)]
pub struct Sent {
    pub new: u64,
    pub existing: u64,
    pub refused: Vec<(i64, String)>,
}

/// Jobs to be sent with the next request.
#[derive(Default)]
struct Batch {
    entries: Vec<Entry>,
    /// Old id of each entry, and true if its new id is needed for children.
    old: Vec<(i64, bool)>,
    bytes: usize,
    /// True if the entries are children, whose parents must be sent before.
    are_children: bool,
}

struct Import {
    client: Client,
    bar: ProgressBar,
    all: u64,
    seen: u64,
    batch: Batch,
    /// New ids of parents by old id.
    parents: HashMap<i64, u64>,
    tally: Tally,
    sent: Sent,
}

impl Import {
    fn take(&mut self, fate: RowResult) -> Outcome {
        self.tally.add(&fate);
        self.seen += 1;
        let Becomes::Import { mut entry, parent, has_children, .. } = fate.outcome else { return Ok(()) };
        if parent.is_some() != self.batch.are_children {
            self.send()?;
            self.batch.are_children = parent.is_some();
        }
        // A child whose parent was refused is imported without a parent.
        entry.parent = parent.and_then(|old| self.parents.get(&old).copied());
        self.batch.bytes += entry.payload.get().len();
        self.batch.entries.push(*entry);
        self.batch.old.push((fate.job_id, has_children));
        if self.batch.entries.len() >= JOBS_PER_CALL || self.batch.bytes >= BYTES_PER_CALL {
            self.send()?;
        }
        Ok(())
    }

    fn send(&mut self) -> Outcome {
        let Batch { entries, old, .. } = std::mem::take(&mut self.batch);
        if entries.is_empty() {
            return Ok(());
        }
        let answer = self.client.post("/api/v1/import", &json!({ "jobs": entries }))?;
        let existing = answer["existing"].as_array().map_or(0, Vec::len) as u64;
        for ((old, has_children), id) in old.iter().zip(answer["ids"].as_array().into_iter().flatten()) {
            let Some(id) = id.as_u64() else { continue };
            self.sent.new += 1;
            if *has_children {
                self.parents.insert(*old, id);
            }
        }
        self.sent.new -= existing.min(self.sent.new);
        self.sent.existing += existing;
        for refused in answer["refused"].as_array().into_iter().flatten() {
            let place = refused["index"].as_u64().and_then(|index| usize::try_from(index).ok());
            let id = place.and_then(|place| old.get(place)).map_or(0, |(id, _)| *id);
            let why = refused["message"].as_str().unwrap_or_default().to_owned();
            self.sent.refused.push((id, why));
        }
        progress::show(&self.bar, self.seen, self.all);
        Ok(())
    }
}

impl From<Unreadable> for Fault {
    fn from(error: Unreadable) -> Fault {
        Fault::failed(error.to_string())
    }
}

impl From<&Sent> for Value {
    fn from(sent: &Sent) -> Value {
        let refused: Vec<Value> =
            sent.refused.iter().map(|(id, why)| json!({ "jobID": id, "why": why })).collect();
        json!({ "new": sent.new, "existing": sent.existing, "refused": refused })
    }
}
