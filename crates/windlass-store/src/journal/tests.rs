use super::*;
use std::fs;
use std::path::Path;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn open(folder: &Path) -> Journal {
    let home = Location::Folder(folder.join("journal"));
    Journal::open(Settings { home, ..Settings::default() }).unwrap()
}

async fn write(journal: &Journal, ids: std::ops::Range<u32>) {
    write_of(journal, ids, 10).await;
}

async fn write_of(journal: &Journal, ids: std::ops::Range<u32>, bytes: usize) {
    let ids: Vec<String> = ids.map(|n| format!("{n:05}-x")).collect();
    let payload = vec![b'p'; bytes];
    let lines: Vec<NewLine<'_>> =
        ids.iter().map(|id| NewLine { id, kind: "acme-t", payload: &payload }).collect();
    let written = journal.write(&lines).unwrap();
    journal.wsync(written).await.unwrap();
}

/// Reserves, reads and syncs.
fn take(journal: &Journal, lines: usize) -> Vec<u32> {
    let Some(token) = journal.reserve(lines, at(1_000), at(0)).unwrap() else { return Vec::new() };
    let ids = numbers(&journal.read(token, at(0)).unwrap());
    journal.rsync(token, at(0)).unwrap();
    ids
}

fn take_all(journal: &Journal) -> Vec<u32> {
    std::iter::from_fn(|| Some(take(journal, 1_000)).filter(|ids| !ids.is_empty())).flatten().collect()
}

fn numbers(lines: &[(Place, Line)]) -> Vec<u32> {
    lines.iter().map(|(_, line)| line.id[..5].parse().unwrap()).collect()
}

fn range(ids: std::ops::Range<u32>) -> Vec<u32> {
    ids.collect()
}

fn logs(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("journal")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".log"));
    names.sort();
    names
}

#[tokio::test]
async fn lines_come_out_in_the_order_written_and_once() {
    let folder = tempfile::tempdir().unwrap();
    for journal in [open(folder.path()), Journal::open(Settings::default()).unwrap()] {
        write(&journal, 0..3).await;
        write(&journal, 3..5).await;
        assert_eq!(take(&journal, 2), [0, 1]);
        assert_eq!(take(&journal, 2), [2, 3]);
        write(&journal, 5..6).await;
        assert!(journal.has_lines());
        assert_eq!(take(&journal, 9), [4, 5]);
        assert_eq!(take(&journal, 9), Vec::<u32>::new());
        assert!(!journal.has_lines());
    }
}

#[tokio::test]
async fn lines_that_are_not_synced_in_time_are_delivered_again() {
    let journal = Journal::open(Settings::default()).unwrap();
    write(&journal, 0..4).await;
    let token = journal.reserve(3, at(100), at(0)).unwrap().unwrap();
    assert_eq!(numbers(&journal.read(token, at(99)).unwrap()), [0, 1, 2]);
    let again = journal.reserve(9, at(300), at(100)).unwrap().unwrap();
    assert_eq!(numbers(&journal.read(again, at(100)).unwrap()), [0, 1, 2, 3]);
    assert_eq!(journal.rsync(token, at(100)), Err(JournalError::Expired));
    journal.cancel(again).unwrap();
    assert_eq!(take_all(&journal), [0, 1, 2, 3]);
}

#[tokio::test]
async fn what_was_acknowledged_and_not_synced_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    write(&journal, 0..10).await;
    // Up to the middle of a block.
    assert_eq!(take(&journal, 4), range(0..4));
    let token = journal.reserve(2, at(1_000), at(0)).unwrap().unwrap();
    journal.read(token, at(0)).unwrap();
    drop(journal);
    let journal = reopened(folder.path()).await;
    assert_eq!(take_all(&journal), range(4..10));
    write(&journal, 10..12).await;
    assert_eq!(take_all(&journal), [10, 11]);
}

async fn reopened(folder: &Path) -> Journal {
    until_unlocked(folder).await;
    open(folder)
}

/// Waits until the thread of the previous journal has released the lock.
async fn until_unlocked(folder: &Path) {
    for _ in 0..3_000 {
        let lock = fs::File::open(folder.join("journal/lock")).unwrap();
        if lock.try_lock().is_ok() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the folder stays locked");
}

#[tokio::test]
async fn a_head_that_is_gone_or_damaged_makes_lines_come_again() {
    let folder = tempfile::tempdir().unwrap();
    for damage in ["", "7 7 7 00000000\n", "1 0"] {
        let _ = fs::remove_dir_all(folder.path().join("journal"));
        let journal = open(folder.path());
        write(&journal, 0..5).await;
        assert_eq!(take(&journal, 5), range(0..5));
        drop(journal);
        fs::write(folder.path().join("journal/head"), damage).unwrap();
        assert_eq!(take_all(&reopened(folder.path()).await), range(0..5), "{damage:?}");
    }
}

/// Positions of all lines, which are acknowledged.
fn positions(journal: &Journal) -> Vec<Position> {
    let token = journal.reserve(1_000, at(1_000), at(0)).unwrap().unwrap();
    let lines = journal.read(token, at(0)).unwrap();
    journal.rsync(token, at(0)).unwrap();
    lines.into_iter().map(|(place, line)| Position { place, line: line.id }).collect()
}

#[tokio::test]
async fn a_position_is_present_passed_or_foreign() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    assert_eq!(journal.id(), None, "there is no folder yet");
    write(&journal, 0..3).await;
    write(&journal, 3..5).await;
    let id = journal.id().unwrap();
    let token = journal.reserve(9, at(1_000), at(0)).unwrap().unwrap();
    let lines = journal.read(token, at(0)).unwrap();
    let of = |n: usize| Position { place: lines[n].0, line: lines[n].1.id.clone() };
    for n in 0..5 {
        assert_eq!(journal.check_position(&of(n)), Ok(PositionCheck::Present), "{n}");
    }
    let elsewhere = |n: usize, change: fn(&mut Position)| {
        let mut position = of(n);
        change(&mut position);
        journal.check_position(&position)
    };
    assert_eq!(elsewhere(2, |position| position.line.push('x')), Ok(PositionCheck::Foreign));
    assert_eq!(elsewhere(2, |position| position.place.line += 1), Ok(PositionCheck::Foreign));
    assert_eq!(elsewhere(4, |position| position.place.block += 1), Ok(PositionCheck::Foreign));
    assert_eq!(elsewhere(2, |position| position.place.file += 1), Ok(PositionCheck::Foreign));
    journal.rsync(token, at(0)).unwrap();
    assert_eq!(journal.check_position(&of(4)), Ok(PositionCheck::Passed));
    drop(journal);
    // Without its head the journal delivers the lines again, and they are still the same.
    fs::remove_file(folder.path().join("journal/head")).unwrap();
    let journal = reopened(folder.path()).await;
    assert_eq!((journal.id(), journal.check_position(&of(4))), (Some(id), Ok(PositionCheck::Present)));
    assert!(logs(folder.path()).iter().all(|name| !name.starts_with("damaged")), "a check finds no damage");
}

#[tokio::test]
async fn places_of_a_journal_that_was_emptied_by_hand_are_told_from_the_old_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut old = Vec::new();
    // Each start begins another file.
    for start in 0..3 {
        let journal = if start == 0 { open(folder.path()) } else { reopened(folder.path()).await };
        write(&journal, 0..5).await;
        old = positions(&journal);
    }
    assert_eq!(old[0].place.file, 3);
    for file in ["journal/head", "journal/00000003.log"] {
        fs::remove_file(folder.path().join(file)).unwrap();
    }
    let mut new = Vec::new();
    for _ in 0..2 {
        let journal = reopened(folder.path()).await;
        write(&journal, 10..15).await;
        for position in &old {
            assert_eq!(journal.check_position(position), Ok(PositionCheck::Foreign));
        }
        new = positions(&journal);
    }
    assert_eq!(new[0].place, old[0].place, "the same places are used again");
}

#[tokio::test]
async fn a_journal_without_an_id_gets_one_and_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    write(&journal, 0..1).await;
    drop(journal);
    fs::remove_file(folder.path().join("journal/id")).unwrap();
    let id = reopened(folder.path()).await.id();
    assert!(id.is_some());
    assert_eq!(reopened(folder.path()).await.id(), id);
    assert_ne!(Journal::open(Settings::default()).unwrap().id(), id);
}

#[tokio::test]
async fn a_torn_end_costs_nothing_that_was_acknowledged_and_is_not_written_after() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    write(&journal, 0..5).await;
    drop(journal);
    let path = folder.path().join("journal/00000001.log");
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"#:Batch bytes=100 lines=3 crc=00");
    fs::write(&path, &bytes).unwrap();
    let journal = reopened(folder.path()).await;
    write(&journal, 5..6).await;
    assert_eq!(take_all(&journal), range(0..6));
    assert_eq!(fs::read(&path).map(|now| now.len()).unwrap_or(bytes.len()), bytes.len());
}

#[tokio::test]
async fn a_file_with_damage_is_kept_for_people() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    write(&journal, 0..5).await;
    drop(journal);
    let path = folder.path().join("journal/00000001.log");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(7).position(|window| window == b"00002-x").unwrap();
    bytes[at + 20] ^= 4;
    fs::write(&path, &bytes).unwrap();
    let journal = reopened(folder.path()).await;
    assert_eq!(take_all(&journal), [0, 1, 3, 4]);
    write(&journal, 5..6).await;
    assert_eq!(take_all(&journal), [5]);
    assert!(logs(folder.path()).contains(&"damaged-00000001.log".to_owned()), "{:?}", logs(folder.path()));
}

#[tokio::test]
async fn files_that_are_done_with_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    for part in 0..110 {
        write_of(&journal, part * 10..part * 10 + 10, 100_000).await;
    }
    assert!(journal.bytes() > 100 << 20);
    assert!(logs(folder.path()).len() >= 3, "it was rotated");
    assert_eq!(take_all(&journal), range(0..1_100));
    // The writer thread removes the last file asynchronously.
    for _ in 0..3_000 {
        if journal.bytes() == 0 && logs(folder.path()).is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!((journal.bytes(), logs(folder.path())), (0, vec![]));
    write(&journal, 0..1).await;
    assert_eq!(take_all(&journal), [0]);
}

#[tokio::test]
async fn a_full_journal_takes_no_more_lines_until_it_is_read() {
    let journal = Journal::open(Settings { bytes_max: 3 << 20, ..Settings::default() }).unwrap();
    write_of(&journal, 0..32, 100_000).await;
    let line = NewLine { id: "i", kind: "a-b", payload: b"" };
    assert!(matches!(journal.write(&[line]), Err(JournalError::Full(_))));
    assert_eq!(take_all(&journal).len(), 32);
    for _ in 0..3_000 {
        if journal.bytes() == 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    write(&journal, 0..1).await;
}

#[tokio::test]
async fn two_journals_in_one_data_folder_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (open(folder.path()), open(folder.path()));
    write(&one, 0..1).await;
    write(&other, 1..2).await;
    let third = open(folder.path());
    write(&third, 2..3).await;
    assert_eq!((take_all(&one), take_all(&other), take_all(&third)), (vec![0], vec![1], vec![2]));
    assert!(folder.path().join("journal-3").is_dir());
}

#[tokio::test]
async fn a_folder_whose_server_has_stopped_is_left_to_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let one = open(folder.path());
    write(&one, 0..3).await;
    let other = open(folder.path());
    assert_eq!(take(&one, 1), [0]);
    drop(one);
    until_unlocked(folder.path()).await;
    write(&other, 3..5).await;
    assert_eq!(take_all(&other), [3, 4]);
    assert!(folder.path().join("journal-2/00000001.log").exists());
    assert_eq!(take_all(&reopened(folder.path()).await), [1, 2]);
}

#[tokio::test]
async fn many_writers_share_syncs_and_all_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    let mut tasks = tokio::task::JoinSet::new();
    for part in 0..64 {
        let journal = journal.clone();
        tasks.spawn(async move { write(&journal, part * 10..part * 10 + 10).await });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let mut ids = take_all(&journal);
    ids.sort_unstable();
    assert_eq!(ids, range(0..640));
    journal.close().await;
    let line = NewLine { id: "i", kind: "a-b", payload: b"" };
    assert!(matches!(journal.write(&[line]), Err(JournalError::Closed)));
}
