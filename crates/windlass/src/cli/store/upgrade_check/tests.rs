use super::plan::{Plan, StoreKind};
use crate::cli::findings::Level::{self, Fail, Ok, Warn};
use windlass_store::StoreError;
use windlass_store::postgres::{DatabaseState, Standing};
use windlass_store::sqlite::FileState;

fn file() -> FileState {
    FileState {
        version: 3,
        newest: 3,
        missing: Vec::new(),
        reads_all: false,
        database_bytes: 4_000_000,
        log_bytes: 0,
        jobs: Some(12),
        unfinished: None,
        holder: None,
    }
}

fn old_file() -> FileState {
    let missing = vec!["2: row counts".to_owned(), "3: audit log".to_owned()];
    FileState { version: 1, missing, reads_all: true, ..file() }
}

/// Checks that the finding about something has this level and these words.
#[track_caller]
fn check(plan: &Plan, about: &str, level: Level, words: &str) {
    let found = plan.findings();
    let finding = found.iter().find(|finding| finding.about == about);
    let finding = finding.unwrap_or_else(|| panic!("nothing about {about}: {found:?}"));
    let whole = format!("{} {}", finding.text, finding.advice.as_deref().unwrap_or_default());
    assert!(finding.level == level && whole.contains(words), "{finding:?} should be {level:?}: {words}");
}

fn of_file(state: FileState, free_bytes: u64) -> Plan {
    Plan::of_file("sqlite:x.db".to_owned(), Result::Ok(state), Some(free_bytes))
}

#[test]
fn a_file_of_this_format_needs_nothing() {
    let plan = of_file(file(), 1 << 40);
    assert!(!plan.is_pending() && plan.findings().iter().all(|finding| finding.level == Ok));
    check(&plan, "format", Ok, "format 3, the one that this version uses");
    check(&plan, "way back", Ok, "can still open it");
    check(&plan, "server", Ok, "none");
    check(&plan, "time and disk", Ok, "12 jobs, 4.0 MB; the start reads all of it once: about 1s");
}

#[test]
fn an_older_file_is_upgraded_and_there_is_no_way_back() {
    let plan = of_file(old_file(), 1 << 40);
    assert!(plan.is_pending());
    check(&plan, "format", Ok, "format 1; a start upgrades it to 3");
    check(&plan, "migrations", Ok, "2: row counts, 3: audit log, in one transaction");
    check(&plan, "way back", Warn, "below 3 refuse it take a backup first: windlass backup");
    let large = of_file(FileState { database_bytes: 6_000_000_000, jobs: None, ..old_file() }, 1 << 40);
    check(&large, "time and disk", Ok, "6.0 GB; the start reads all of it once: about 2m00s at 50.0 MB/s");
    let json = plan.as_json();
    assert_eq!((&json["format"], &json["format_after"]), (&1.into(), &3.into()));
    assert_eq!(json["older_binaries_can_open"], false);
}

#[test]
fn a_disk_without_room_is_noticed() {
    check(&of_file(old_file(), 4_500_000), "time and disk", Warn, "backup does not fit");
    check(&of_file(old_file(), 500_000), "time and disk", Fail, "free some disk space");
    check(&of_file(file(), 500_000), "time and disk", Ok, "12 jobs");
}

#[test]
fn files_in_use_and_files_that_were_not_closed() {
    let used = of_file(FileState { holder: Some("812".to_owned()), log_bytes: 9, ..file() }, 1 << 40);
    check(&used, "server", Warn, "a server (pid 812) uses the store now stop it");
    assert!(used.findings().iter().all(|finding| finding.about != "unclean stop"));
    let left = of_file(FileState { log_bytes: 32_000, jobs: None, ..file() }, 1 << 40);
    check(&left, "unclean stop", Ok, "32.0 kB");
    check(&left, "not checked", Warn, "write-ahead log: unfinished copies, lost commits");
}

#[test]
fn stores_that_cannot_be_taken_over() {
    let newer = Err(StoreError::Open("the database has format 9".to_owned()));
    let plan = Plan::of_file("sqlite:x.db".to_owned(), newer, None);
    check(&plan, "format", Fail, "sqlite:x.db cannot be taken over");
    check(&plan, "format", Fail, "format 9");
    assert_eq!(plan.findings().len(), 1);
    assert!(plan.as_json()["format_after"].is_null());
    let copy = of_file(FileState { unfinished: Some("today".to_owned()), ..file() }, 1 << 40);
    check(&copy, "format", Fail, "unfinished copy, started today");
}

#[test]
fn a_new_store_and_one_in_memory_need_nothing() {
    let missing = vec!["1: jobs and settings".to_owned()];
    let plan = of_file(FileState { version: 0, missing, database_bytes: 0, jobs: None, ..file() }, 1 << 40);
    assert!(!plan.is_pending());
    check(&plan, "format", Ok, "no store yet; a start creates one of format 3");
    let memory = Plan { kind: StoreKind::Memory, ..plan };
    check(&memory, "format", Ok, "in memory");
    assert_eq!(memory.findings().len(), 1);
}

fn database(servers: u64, standing: Result<Standing, StoreError>) -> Plan {
    let state = DatabaseState {
        version: "17.2".to_owned(),
        fsync: "on".to_owned(),
        synchronous_commit: "on".to_owned(),
        full_page_writes: "on".to_owned(),
        connections_max: 97,
        connections: 1,
        connections_needed: 10,
        servers,
        bytes: 100_000_000,
        jobs: 5_000,
        clock_ahead_ms: 0,
        unfinished: None,
        standing,
    };
    Plan::of_database("postgres://db/jobs".to_owned(), Result::Ok(state))
}

#[test]
fn tables_of_postgresql() {
    let standing = |version: usize, missing: &[&str], reads_all| Standing {
        version,
        newest: 8,
        missing: missing.iter().map(|step| (*step).to_owned()).collect(),
        reads_all,
    };
    let old = database(2, Result::Ok(standing(6, &["7: retried jobs", "8: audit log"], true)));
    check(&old, "migrations", Ok, "7: retried jobs, 8: audit log");
    check(&old, "way back", Warn, "pg_dump");
    check(&old, "server", Warn, "2 servers are on these tables now stop all of them");
    check(&old, "time and disk", Ok, "about 5000 jobs, 100.0 MB; the start reads all of it once: about 2s");
    let last = database(0, Result::Ok(standing(7, &["8: audit log"], false)));
    check(&last, "time and disk", Ok, "reads no jobs");
    let same = database(1, Result::Ok(standing(8, &[], false)));
    check(&same, "server", Ok, "1 server is on these tables");
    assert!(!same.is_pending());
    let newer = database(1, Err(StoreError::Open("the tables have version 9".to_owned())));
    check(&newer, "format", Fail, "version 9");
}
