use super::*;
use crate::bedrock::query::SCHEMA;

/// File with these rows: id, state, name, data, repeat, parent, retryAfter.
fn source(
    rows: &[(i64, &str, &str, &str, &str, i64, &str)],
    running: RunningRows,
) -> (tempfile::TempDir, ImportSource) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bedrock.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(SCHEMA).unwrap();
    for (id, state, name, data, repeat, parent, retry_after) in rows {
        db.execute(
            "INSERT INTO jobs VALUES ('2024-01-01 10:00:00', ?1, ?2, ?3, '2024-01-02 03:04:05', '2024-01-01 11:00:00', \
             ?5, ?4, 1000, ?6, ?7)",
            (id, state, name, data, repeat, parent, retry_after),
        )
        .unwrap();
    }
    let source = ImportSource::open(&path, Choices { profile: Profile::Current, running }).unwrap();
    (folder, source)
}

/// Formats the result for each job as a line.
fn fates(source: &ImportSource) -> Vec<String> {
    let mut lines = Vec::new();
    let outcome: Result<(), Unreadable> = source.each(|fate| {
        lines.push(match fate.outcome {
            ImportOutcome::Import { entry, parent, note, .. } => {
                let parent = parent.map(|id| format!(" of {id}")).unwrap_or_default();
                let note = note.map(|note| format!(" ({note})")).unwrap_or_default();
                format!("{} {} {}{parent}{note}", fate.job_id, fate.state, entry.stands)
            }
            ImportOutcome::Leave(why) => format!("{} {} left: {why}", fate.job_id, fate.state),
        });
        Ok(())
    });
    outcome.unwrap();
    lines
}

#[test]
fn every_state_becomes_what_it_means_here() {
    let rows = [
        (1, "QUEUED", "a", "{}", "", 0, ""),
        (2, "RUNNING", "a", "{}", "", 0, ""),
        (3, "RUNQUEUED", "a", "{}", "", 0, "+1 HOUR"),
        (4, "FAILED", "a", "{}", "", 0, ""),
        (5, "FINISHED", "a", "{}", "", 0, ""),
        (6, "PAUSED", "a", "{}", "", 0, ""),
        (7, "PAUSED", "parent", "{}", "", 0, ""),
        (8, "QUEUED", "child", "{}", "", 7, ""),
        (9, "FINISHED", "child", "{}", "", 7, ""),
        (10, "CANCELLED", "child", "{}", "", 7, ""),
        (11, "RUNNING", "parent", "{}", "", 0, ""),
        (12, "PAUSED", "child", "{}", "", 11, ""),
        (13, "QUEUED", "child", "{}", "", 99, ""),
        (14, "QUEUED", "grandchild", "{}", "", 8, ""),
    ];
    let (_folder, source) = source(&rows, RunningRows::Queue);
    let expected = [
        "1 QUEUED ready",
        "2 RUNNING ready (queued again: it was running)",
        "3 RUNQUEUED ready (queued for its nextRun: it was running)",
        "4 FAILED failed",
        "5 FINISHED left: it is FINISHED and no parent waits for it",
        "6 PAUSED ready (queued: it was PAUSED without unfinished children)",
        "7 PAUSED waiting",
        "11 RUNNING waiting (runs again after its children: it was running)",
        "8 QUEUED ready of 7",
        "9 FINISHED completed of 7",
        "10 CANCELLED cancelled of 7",
        "12 PAUSED ready of 11",
        "13 QUEUED ready (imported without its parent, which no longer exists)",
        "14 QUEUED left: it is the child of a child",
    ];
    assert_eq!(fates(&source), expected);
    assert_eq!(source.count().unwrap(), 14);
}

#[test]
fn jobs_that_a_worker_has_can_count_as_failed() {
    let rows = [(1, "RUNNING", "parent", "{}", "", 0, ""), (2, "PAUSED", "child", "{}", "", 1, "")];
    let (_folder, source) = source(&rows, RunningRows::Fail);
    assert_eq!(
        fates(&source),
        [
            "1 RUNNING failed (imported as failed: it was running)",
            "2 PAUSED ready (imported without its parent, which has ended)"
        ]
    );
}

#[test]
fn what_cannot_be_read_stays_behind_and_says_why() {
    let long = "x".repeat(300);
    let rows = [
        (1, "QUEUED", "", "{}", "", 0, ""),
        (2, "QUEUED", long.as_str(), "{}", "", 0, ""),
        (3, "QUEUED", "a", "{\"a\":1", "", 0, ""),
        (4, "QUEUED", "a", "{}", "sometimes", 0, ""),
        (5, "QUEUED", "a", "{}", "", 0, "later"),
        (6, "SLEEPING", "a", "{}", "", 0, ""),
    ];
    let (_folder, source) = source(&rows, RunningRows::Queue);
    for (line, expected) in fates(&source).iter().zip([
        "1 QUEUED left: invalid name: ",
        "2 QUEUED left: invalid name: ",
        "3 QUEUED left: its data is not a JSON object",
        "4 QUEUED left: invalid repeat: ",
        "5 QUEUED left: invalid retryAfter: ",
        "6 SLEEPING left: unknown state \"SLEEPING\"",
    ]) {
        assert!(line.starts_with(expected), "{line}");
    }
}

#[test]
fn an_entry_says_everything_of_the_job() {
    let data = r#"{"n":1,"retryAfterCount":3,"originalNextRun":"2024-01-01"}"#;
    let (_folder, source) =
        source(&[(5, "QUEUED", "mail", data, "hourly", 0, "+5 MINUTES")], RunningRows::Queue);
    let mut entries = Vec::new();
    let outcome: Result<(), Unreadable> = source.each(|fate| {
        if let ImportOutcome::Import { entry, .. } = fate.outcome {
            entries.push(entry);
        }
        Ok(())
    });
    outcome.unwrap();
    let entry = &entries[0];
    assert_eq!((entry.alias.as_str(), entry.name.as_str(), entry.queue), ("bedrock-5", "mail", "default"));
    assert_eq!(entry.payload.get(), r#"{"n":1}"#);
    assert_eq!(row::bedrock_priority(entry.priority), 1000);
    assert_eq!(entry.created_at, 1_704_103_200_000);
    assert_eq!(entry.due_at, 1_704_164_645_000);
    assert_eq!(entry.started_at, Some(1_704_106_800_000));
    assert_eq!(entry.policy.repeat.as_ref().unwrap().text(), "HOURLY");
    assert_eq!(entry.policy.lease_span.as_ref().unwrap().text(), "+5 MINUTES");
    let sent: serde_json::Value = serde_json::to_value(entry).unwrap();
    let policy: Policy = serde_json::from_value(sent["policy"].clone()).unwrap();
    assert_eq!(policy, entry.policy, "the rules come over as they are");
}

#[test]
fn a_file_that_is_not_bedrocks_is_refused_with_a_word_on_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    let choices = Choices { profile: Profile::Current, running: RunningRows::Queue };
    let error = |path: &Path| ImportSource::open(path, choices).err().unwrap().to_string();
    assert!(error(&path).contains("not found"));
    std::fs::write(&path, "no database at all, but long enough to be looked at as one").unwrap();
    assert!(error(&path).contains("VACUUM INTO"));
    let empty = folder.path().join("empty.db");
    Connection::open(&empty).unwrap().execute_batch("CREATE TABLE other (a)").unwrap();
    assert!(error(&empty).contains("no such table: jobs"), "{}", error(&empty));
}
