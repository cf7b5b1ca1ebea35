//! Whose turn it is. Of the clients that have something to run the one with the fewest jobs running is next, so that a
//! client with ten thousand jobs does not hold up another's single one; within a client the types take turns by chance,
//! those with a warm context being favoured.

use std::collections::BTreeMap;
use windlass_core::{Name, Tenant};

/// Out of four choices within a client three go to types whose context is warm, if there are such; the fourth to any, so
/// that no type waits for ever.
const WARM_SHARE: f64 = 0.75;

/// A type that has jobs to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub client: Tenant,
    pub jobtype: Name,
    /// A context that has run this type is idle.
    pub is_warm: bool,
}

/// What runs now.
#[derive(Debug, Default)]
pub struct Scheduler {
    running: BTreeMap<Tenant, BTreeMap<Name, usize>>,
}

impl Scheduler {
    /// The place of the type to run next; `None`: there is none. `chances` are in `0.0..1.0`.
    pub fn select_jobtype_to_run(&self, waiting: &[Candidate], chances: [f64; 3]) -> Option<usize> {
        let least = waiting.iter().map(|one| self.running_of(&one.client)).min()?;
        let clients: Vec<&Tenant> = distinct(waiting.iter().map(|one| &one.client))
            .into_iter()
            .filter(|client| self.running_of(client) == least)
            .collect();
        let client = pick(&clients, chances[0])?;
        let all: Vec<usize> = (0..waiting.len()).filter(|place| waiting[*place].client == **client).collect();
        let warm: Vec<usize> = all.iter().copied().filter(|place| waiting[*place].is_warm).collect();
        let favoured = if warm.is_empty() || chances[1] >= WARM_SHARE { &all } else { &warm };
        pick(favoured, chances[2]).copied()
    }

    pub fn jobs_started(&mut self, client: &Tenant, jobtype: &Name, count: usize) {
        if count > 0 {
            *self.running.entry(client.clone()).or_default().entry(jobtype.clone()).or_default() += count;
        }
    }

    /// They need not have ended well, or at all.
    pub fn jobs_stopped(&mut self, client: &Tenant, jobtype: &Name, count: usize) {
        let Some(types) = self.running.get_mut(client) else { return };
        if let Some(running) = types.get_mut(jobtype) {
            *running = running.saturating_sub(count);
            if *running == 0 {
                types.remove(jobtype);
            }
        }
        if types.is_empty() {
            self.running.remove(client);
        }
    }

    pub fn running_of(&self, client: &Tenant) -> usize {
        self.running.get(client).map_or(0, |types| types.values().sum())
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }
}

fn distinct<'a>(clients: impl Iterator<Item = &'a Tenant>) -> Vec<&'a Tenant> {
    let mut clients: Vec<&Tenant> = clients.collect();
    clients.sort_unstable();
    clients.dedup();
    clients
}

fn pick<T>(among: &[T], chance: f64) -> Option<&T> {
    let place = (chance.clamp(0.0, 1.0) * among.len() as f64) as usize;
    among.get(place.min(among.len().checked_sub(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(text: &str) -> Tenant {
        Tenant::new(text).unwrap()
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    /// `acme/resize*`: a star says warm.
    fn candidates(texts: &[&str]) -> Vec<Candidate> {
        let candidate = |text: &&str| {
            let (client, jobtype) = text.trim_end_matches('*').split_once('/').unwrap();
            Candidate { client: tenant(client), jobtype: name(jobtype), is_warm: text.ends_with('*') }
        };
        texts.iter().map(candidate).collect()
    }

    fn scheduler(running: &[(&str, &str, usize)]) -> Scheduler {
        let mut scheduler = Scheduler::default();
        for (client, jobtype, count) in running {
            scheduler.jobs_started(&tenant(client), &name(jobtype), *count);
        }
        scheduler
    }

    /// Which types are chosen over a grid of chances.
    fn chosen(running: &[(&str, &str, usize)], waiting: &[&str]) -> Vec<String> {
        let scheduler = scheduler(running);
        let candidates = candidates(waiting);
        let steps = [0.0, 0.3, 0.6, 0.99];
        let mut chosen = std::collections::BTreeSet::new();
        for first in steps {
            for second in steps {
                for third in steps {
                    if let Some(place) = scheduler.select_jobtype_to_run(&candidates, [first, second, third])
                    {
                        chosen.insert(waiting[place].trim_end_matches('*').to_owned());
                    }
                }
            }
        }
        chosen.into_iter().collect()
    }

    #[test]
    fn the_table() {
        let check = |running: &[(&str, &str, usize)], waiting: &[&str], expected: &[&str]| {
            assert_eq!(chosen(running, waiting), expected, "running {running:?}, waiting {waiting:?}");
        };
        check(&[], &[], &[]);
        check(&[("a", "x", 3)], &[], &[]);
        check(&[], &["a/x"], &["a/x"]);
        check(&[], &["a/x", "a/y", "b/z"], &["a/x", "a/y", "b/z"]);
        // The client with fewer jobs running, whatever its types are.
        check(&[("a", "x", 1)], &["a/x", "a/y", "b/z"], &["b/z"]);
        check(&[("a", "x", 1), ("b", "q", 2)], &["a/x", "a/y", "b/z"], &["a/x", "a/y"]);
        check(&[("a", "x", 2), ("b", "q", 2)], &["a/x", "b/z"], &["a/x", "b/z"]);
        // Only what waits, also if another client runs nothing.
        check(&[("b", "z", 9)], &["b/z"], &["b/z"]);
        // Warm ones are favoured and the others not forgotten.
        check(&[], &["a/x*", "a/y"], &["a/x", "a/y"]);
        check(&[("a", "x", 5)], &["a/x*", "b/z"], &["b/z"]);
    }

    #[test]
    fn each_of_three_types_is_chosen_within_a_hundred() {
        let scheduler = Scheduler::default();
        let waiting = candidates(&["a/x*", "a/y", "a/z"]);
        let mut seen = [0; 3];
        for n in 0..100_u32 {
            // Any sequence that is spread evenly will do.
            let chance = |step: f64| (f64::from(n) * step).fract();
            seen[scheduler
                .select_jobtype_to_run(&waiting, [chance(0.618), chance(0.414), chance(0.732)])
                .unwrap()] += 1;
        }
        assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
        assert!(seen[0] > 50, "the warm one is favoured: {seen:?}");
    }

    #[test]
    fn counts_return_to_zero_when_all_is_over() {
        let mut scheduler = scheduler(&[("a", "x", 3), ("a", "y", 1), ("b", "x", 2)]);
        assert_eq!((scheduler.running_of(&tenant("a")), scheduler.running_of(&tenant("c"))), (4, 0));
        scheduler.jobs_stopped(&tenant("a"), &name("x"), 2);
        scheduler.jobs_stopped(&tenant("a"), &name("x"), 1);
        scheduler.jobs_stopped(&tenant("a"), &name("y"), 1);
        assert_eq!(scheduler.running_of(&tenant("a")), 0);
        scheduler.jobs_stopped(&tenant("b"), &name("x"), 7);
        scheduler.jobs_stopped(&tenant("c"), &name("x"), 1);
        assert!(scheduler.is_idle());
    }
}
