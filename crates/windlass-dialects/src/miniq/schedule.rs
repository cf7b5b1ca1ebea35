//! Fair choice of the next batch. The client with the fewest slots in use is next, so that a client with ten
//! thousand jobs does not delay another's single one; within a client a type is chosen at random, with a
//! preference for types with a warm context. When all slots are in use, batches of the clients with the most
//! slots are cut. The rules are in `windlass_core::fair`.

use crate::runners::Resource;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;
use windlass_core::fair::{self, HeldPlaces};
use windlass_core::{Name, Tenant, Timestamp};

/// Share of the choices within a client that go to types with a warm context, if there are any. The rest goes
/// to any type, so that none starves.
const WARM_SHARE: f64 = 0.75;

/// Type with jobs to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub client: Tenant,
    pub jobtype: Name,
    pub resource: Resource,
    /// A context that has run this type is idle.
    pub is_warm: bool,
}

/// Counts of the running jobs and batches.
#[derive(Debug, Default)]
pub struct Scheduler {
    /// Jobs.
    running: BTreeMap<Tenant, BTreeMap<Name, usize>>,
    /// Slots for which batches are planned.
    planned: BTreeMap<(Resource, Tenant), usize>,
    batches: BTreeMap<u64, Placed>,
    batches_made: u64,
}

/// Batch in its slot.
#[derive(Debug)]
struct Placed {
    client: Tenant,
    resource: Resource,
    began: Timestamp,
    cut_at: Option<Timestamp>,
    cut: Arc<Notify>,
}

impl Scheduler {
    /// Index of the type to run next; `None`: no candidates. `chances` are in `0.0..1.0`.
    pub fn select_jobtype_to_run(&self, waiting: &[Candidate], chances: [f64; 3]) -> Option<usize> {
        let held: Vec<usize> = waiting.iter().map(|one| self.places_of(&one.client, one.resource)).collect();
        let in_turn = fair::next_in_turn(&held);
        let clients = distinct(in_turn.iter().map(|place| &waiting[*place].client));
        let client = pick(&clients, chances[0])?;
        let own = |place: &usize| waiting[*place].client == **client;
        let all: Vec<usize> = in_turn.into_iter().filter(own).collect();
        let warm: Vec<usize> = all.iter().copied().filter(|place| waiting[*place].is_warm).collect();
        let favoured = if warm.is_empty() || chances[1] >= WARM_SHARE { &all } else { &warm };
        pick(favoured, chances[2]).copied()
    }

    pub fn jobs_started(&mut self, client: &Tenant, jobtype: &Name, count: usize) {
        if count > 0 {
            *self.running.entry(client.clone()).or_default().entry(jobtype.clone()).or_default() += count;
        }
    }

    /// Counts jobs that ended, for whatever reason.
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

    /// Counts a slot for the client, until [`Scheduler::unplan`].
    pub fn plan(&mut self, client: &Tenant, resource: Resource) {
        *self.planned.entry((resource, client.clone())).or_default() += 1;
    }

    pub fn unplan(&mut self, client: &Tenant, resource: Resource, count: usize) {
        let key = (resource, client.clone());
        if let Some(planned) = self.planned.get_mut(&key) {
            *planned = planned.saturating_sub(count);
            if *planned == 0 {
                self.planned.remove(&key);
            }
        }
    }

    /// Registers a batch and returns its number. `cut` is notified when the batch has to end early.
    pub fn batch_started(
        &mut self,
        client: &Tenant,
        resource: Resource,
        now: Timestamp,
        cut: Arc<Notify>,
    ) -> u64 {
        self.batches_made += 1;
        let placed = Placed { client: client.clone(), resource, began: now, cut_at: None, cut };
        self.batches.insert(self.batches_made, placed);
        self.batches_made
    }

    pub fn batch_ended(&mut self, number: u64) {
        self.batches.remove(&number);
    }

    pub fn places_of(&self, client: &Tenant, resource: Resource) -> usize {
        let is_of_it = |placed: &&Placed| placed.resource == resource && placed.client == *client;
        let planned = self.planned.get(&(resource, client.clone())).copied().unwrap_or(0);
        planned + self.batches.values().filter(is_of_it).count()
    }

    /// Cuts batches for clients that wait for a slot of a resource. Returns the milliseconds until the next
    /// check.
    pub fn cut_for(&mut self, waiting: &[(Tenant, Resource)], now: Timestamp) -> Option<i64> {
        let mut resources: Vec<Resource> = waiting.iter().map(|(_, resource)| *resource).collect();
        resources.sort_unstable();
        resources.dedup();
        let mut look_again = None;
        for resource in resources {
            let clients = waiting.iter().filter(|(_, needed)| *needed == resource).map(|(client, _)| client);
            let clients = distinct(clients);
            let numbers: Vec<u64> =
                self.batches.iter().filter(|(_, one)| one.resource == resource).map(|(id, _)| *id).collect();
            let cuts = {
                let held = |number: &u64| {
                    let placed = self.batches.get(number)?;
                    Some(HeldPlaces {
                        group: &placed.client,
                        ran_ms: now.since_ms(placed.began),
                        cut_for_ms: placed.cut_at.map(|at| now.since_ms(at)),
                    })
                };
                let held: Vec<HeldPlaces<&Tenant>> = numbers.iter().filter_map(held).collect();
                fair::cuts(&held, &clients)
            };
            for place in cuts.now {
                if let Some(placed) = self.batches.get_mut(&numbers[place]) {
                    placed.cut_at = Some(now);
                    placed.cut.notify_one();
                }
            }
            look_again = look_again.into_iter().chain(cuts.look_again_in_ms).min();
        }
        look_again
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.planned.is_empty() && self.batches.is_empty()
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

    /// Parses `acme/resize*`; a star means warm.
    fn candidates(texts: &[&str]) -> Vec<Candidate> {
        let candidate = |text: &&str| {
            let (client, jobtype) = text.trim_end_matches('*').split_once('/').unwrap();
            let resource = if jobtype.starts_with("web") { "web" } else { "contexts" };
            Candidate {
                client: tenant(client),
                jobtype: name(jobtype),
                resource,
                is_warm: text.ends_with('*'),
            }
        };
        texts.iter().map(candidate).collect()
    }

    /// Scheduler with this number of batches per client and resource.
    fn scheduler(running: &[(&str, Resource, usize)]) -> Scheduler {
        let mut scheduler = Scheduler::default();
        for (client, resource, count) in running {
            for _ in 0..*count {
                scheduler.batch_started(&tenant(client), resource, Timestamp::from_millis(0), Arc::default());
            }
        }
        scheduler
    }

    /// Types chosen over a grid of chances.
    fn chosen(running: &[(&str, Resource, usize)], waiting: &[&str]) -> Vec<String> {
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
        let check = |running: &[(&str, Resource, usize)], waiting: &[&str], expected: &[&str]| {
            assert_eq!(chosen(running, waiting), expected, "running {running:?}, waiting {waiting:?}");
        };
        check(&[], &[], &[]);
        check(&[("a", "contexts", 3)], &[], &[]);
        check(&[], &["a/x"], &["a/x"]);
        check(&[], &["a/x", "a/y", "b/z"], &["a/x", "a/y", "b/z"]);
        // The client with fewer running batches is next, whatever its types.
        check(&[("a", "contexts", 1)], &["a/x", "a/y", "b/z"], &["b/z"]);
        check(&[("a", "contexts", 1), ("b", "contexts", 2)], &["a/x", "a/y", "b/z"], &["a/x", "a/y"]);
        check(&[("a", "contexts", 2), ("b", "contexts", 2)], &["a/x", "b/z"], &["a/x", "b/z"]);
        // Only waiting types are chosen, even if another client runs nothing.
        check(&[("b", "contexts", 9)], &["b/z"], &["b/z"]);
        // Slots of another resource do not count.
        check(&[("a", "contexts", 1), ("b", "web", 9)], &["a/x", "b/z"], &["b/z"]);
        check(&[("a", "contexts", 1)], &["a/web", "a/x", "b/z"], &["a/web", "b/z"]);
        // Warm types are preferred, and the others are still chosen.
        check(&[], &["a/x*", "a/y"], &["a/x", "a/y"]);
        check(&[("a", "contexts", 5)], &["a/x*", "b/z"], &["b/z"]);
    }

    #[test]
    fn each_of_three_types_is_chosen_within_a_hundred() {
        let scheduler = Scheduler::default();
        let waiting = candidates(&["a/x*", "a/y", "a/z"]);
        let mut seen = [0; 3];
        for n in 0..100_u32 {
            // Any evenly spread sequence works.
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
        let mut scheduler = Scheduler::default();
        for (client, jobtype, count) in [("a", "x", 3), ("a", "y", 1), ("b", "x", 2)] {
            scheduler.jobs_started(&tenant(client), &name(jobtype), count);
        }
        assert_eq!((scheduler.running_of(&tenant("a")), scheduler.running_of(&tenant("c"))), (4, 0));
        scheduler.jobs_stopped(&tenant("a"), &name("x"), 2);
        scheduler.jobs_stopped(&tenant("a"), &name("x"), 1);
        scheduler.jobs_stopped(&tenant("a"), &name("y"), 1);
        assert_eq!(scheduler.running_of(&tenant("a")), 0);
        scheduler.jobs_stopped(&tenant("b"), &name("x"), 7);
        scheduler.jobs_stopped(&tenant("c"), &name("x"), 1);
        scheduler.plan(&tenant("a"), "contexts");
        scheduler.plan(&tenant("a"), "contexts");
        let batch =
            scheduler.batch_started(&tenant("a"), "contexts", Timestamp::from_millis(0), Arc::default());
        assert_eq!(scheduler.places_of(&tenant("a"), "contexts"), 3);
        assert_eq!(scheduler.places_of(&tenant("a"), "web"), 0);
        scheduler.unplan(&tenant("a"), "contexts", 2);
        scheduler.batch_ended(batch);
        assert!(scheduler.is_idle());
    }

    #[tokio::test]
    async fn the_batch_that_is_to_be_cut_is_told_once() {
        let mut scheduler = Scheduler::default();
        let at = Timestamp::from_millis;
        let cut = Arc::<Notify>::default();
        scheduler.batch_started(&tenant("a"), "contexts", at(0), Arc::clone(&cut));
        let waiting = [(tenant("b"), "contexts"), (tenant("b"), "web")];
        assert_eq!(scheduler.cut_for(&waiting, at(100)), Some(400));
        assert_eq!(scheduler.cut_for(&waiting[1..], at(600)), None, "nobody is in its way there");
        assert_eq!(scheduler.cut_for(&waiting, at(600)), Some(1_000));
        cut.notified().await;
        assert_eq!(scheduler.cut_for(&waiting, at(700)), Some(900));
        let again = tokio::time::timeout(std::time::Duration::from_millis(20), cut.notified()).await;
        assert!(again.is_err());
    }
}
