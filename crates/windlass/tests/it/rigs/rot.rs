//! Damaged files of a stopped server: a start reports the damage, or the state is unchanged. Nothing gets
//! worse.

use super::dice::Dice;
use super::dump::Dump;
use super::history::Pushing;
use super::load::{Asker, Load};
use super::process::Place;
use super::sweep::copy_of;
use super::{seed, setting};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PAGE_BYTES: usize = 4_096;

#[derive(Clone, Debug)]
enum Damage {
    Flip { byte: usize, bit: u8 },
    Cut { to: usize },
    Zeroes { from: usize, count: usize },
    Missing,
}

impl Damage {
    fn apply(&self, path: &Path) {
        let mut bytes = std::fs::read(path).unwrap();
        match self {
            Damage::Flip { byte, bit } => bytes[*byte] ^= 1 << bit,
            Damage::Cut { to } => bytes.truncate(*to),
            Damage::Zeroes { from, count } => {
                bytes.iter_mut().skip(*from).take(*count).for_each(|byte| *byte = 0);
            }
            Damage::Missing => return std::fs::remove_file(path).unwrap(),
        }
        std::fs::write(path, bytes).unwrap();
    }
}

/// Data of every kind, large and small, and its dump.
fn specimen(killed: bool) -> (Place, Dump) {
    let (place, load) = (Place::new(), Load::new());
    let mut server = place.start();
    load.set_address(Some(server.http));
    let mut asker = Asker::new(Arc::clone(&load), 1, 1);
    for batch in 0..6_u64 {
        let jobs = (0..40).map(|job| Pushing { key: None, repeats: false, ..mark(&mut asker, batch, job) });
        let jobs = jobs.collect();
        asker.push(jobs);
        // Some running for long, some finished with a result, some failed with an error.
        for grant in asker.claim(vec!["red".to_owned()], 4, 3_600_000, 0).into_iter().skip(1) {
            asker.settle(grant.id, grant.token, super::history::How::Finish, 0);
        }
    }
    asker.pause("blue", true);
    if !killed {
        assert_eq!(server.stop().code(), Some(0));
        server = place.start();
    }
    let dump = Dump::take(server.http);
    match killed {
        true => server.kill(),
        false => assert_eq!(server.stop().code(), Some(0)),
    }
    (place, dump)
}

fn mark(asker: &mut Asker, batch: u64, job: u64) -> Pushing {
    Pushing { mark: format!("r{batch}-{job}"), delay_ms: 0, ..asker.draft() }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Refused,
    Right,
    /// Forbidden result.
    Wrong(String),
}

fn verdict(original: &Place, expected: &Dump, file: &str, damage: &Damage) -> Verdict {
    let place = copy_of(original);
    let path = place.data().join(file);
    damage.apply(&path);
    let before = contents(&place);
    match place.start_with(&[]) {
        Ok(mut server) => {
            let dump = Dump::take(server.http);
            server.kill();
            match dump.essence() == expected.essence() {
                true => Verdict::Right,
                false => Verdict::Wrong(difference(&dump, expected)),
            }
        }
        Err(refusal) => {
            let clear = refusal.status.code() == Some(1) && refusal.log.contains("error: ");
            let kept = before.iter().find(|(path, bytes)| std::fs::read(path).ok().as_ref() != Some(bytes));
            match (clear, kept) {
                (true, None) => Verdict::Refused,
                (false, _) => Verdict::Wrong(format!("unclear: {refusal:?}")),
                (true, Some((path, _))) => {
                    Verdict::Wrong(format!("{} was changed although: {}", path.display(), refusal.log))
                }
            }
        }
    }
}

/// Contents of all data files; each start creates the lock and the shared memory again.
fn contents(place: &Place) -> BTreeMap<PathBuf, Vec<u8>> {
    let holds_data = |path: &PathBuf| {
        let name = path.to_string_lossy();
        !name.ends_with(".lock") && !name.ends_with("-shm")
    };
    place
        .files()
        .into_iter()
        .filter(holds_data)
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

fn difference(found: &Dump, expected: &Dump) -> String {
    let (found, expected) = (found.essence(), expected.essence());
    let missing: Vec<u64> = expected.0.keys().filter(|id| !found.0.contains_key(id)).copied().collect();
    let other: Vec<u64> = expected
        .0
        .iter()
        .filter(|(id, job)| found.0.get(id).is_some_and(|there| there != *job))
        .map(|(id, _)| *id)
        .collect();
    let queues = if found.1 == expected.1 { "same" } else { "other" };
    format!("started with jobs missing {missing:?}, different {other:?}, queues {queues}")
}

/// Damages of every kind for one file.
fn damages(dice: &mut Dice, size: usize, flips: u64) -> Vec<Damage> {
    let mut damages = vec![Damage::Missing];
    if size == 0 {
        return damages;
    }
    for _ in 0..flips {
        let mut byte = dice.range(0, size as u64) as usize;
        // The headers of pages decide how the rest is read.
        if dice.percent(50) && size > PAGE_BYTES {
            byte = byte / PAGE_BYTES * PAGE_BYTES + dice.range(0, 12) as usize;
        }
        damages.push(Damage::Flip { byte: byte.min(size - 1), bit: dice.range(0, 8) as u8 });
    }
    for to in [0, size / 2, size / PAGE_BYTES / 2 * PAGE_BYTES, size - 1] {
        damages.push(Damage::Cut { to });
    }
    let from = dice.range(0, size as u64) as usize / PAGE_BYTES * PAGE_BYTES;
    damages.push(Damage::Zeroes { from, count: PAGE_BYTES });
    damages.push(Damage::Zeroes { from: 0, count: size });
    damages
}

fn try_all(killed: bool, seed: u64) {
    let (original, expected) = specimen(killed);
    let mut dice = Dice::new(seed);
    let flips = setting("WINDLASS_ROT", 12);
    let mut tally: BTreeMap<String, u64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for path in contents(&original).keys() {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let size = std::fs::metadata(path).unwrap().len() as usize;
        for damage in damages(&mut dice, size, flips) {
            match verdict(&original, &expected, &file, &damage) {
                Verdict::Wrong(what) => wrong.push(format!("{file} {damage:?}: {what}")),
                fine => *tally.entry(format!("{file} {fine:?}")).or_default() += 1,
            }
        }
    }
    super::note(&format!("rot, killed {killed}, seed {seed}: {tally:?}"));
    assert!(wrong.is_empty(), "seed {seed}: {} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn damage_after_a_clean_stop_is_refused_or_harmless() {
    try_all(false, seed(9));
}

#[test]
fn damage_after_a_crash_is_refused_or_harmless() {
    try_all(true, seed(10));
}
