//! Claims that wait for a job. A plain table: no I/O, no clock, no lock of its own.
//!
//! A waiter enters first and looks into the store afterwards, so nothing can become ready unseen between the two.
//! From then on it is in one of three conditions:
//!
//! ```text
//!             look                 found nothing
//!   enter ──► Looking ───────────────────────► Asleep
//!                ▲     announced (twice: look again)  │ announced: the longest-waiting match is woken
//!                └────────────────────────────────────┘
//! ```
//!
//! Every announcement ("a job of this address became ready") is one waiter's duty until that waiter has looked after
//! it. A look that comes back with fewer jobs than it may take has emptied the address for all, and the duty is done.
//! A look that took all it may, a waiter that leaves, and one that is dropped pass their duty to the next match. So
//! one job wakes one waiter, and no announcement is lost.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;
use windlass_core::{Name, NameMatch, Queue, Scope, Tenant};

/// What a waiter would take.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    pub(crate) queues: Vec<Queue>,
    pub(crate) names: NameMatch,
    pub(crate) scope: Scope,
    pub(crate) priority: Option<i32>,
    /// How many at once.
    pub(crate) limit: usize,
}

impl Wanted {
    fn fits(&self, queue: &Queue, name: &Name) -> bool {
        (self.queues.is_empty() || self.queues.contains(queue))
            && self.names.matches(name)
            && self.scope.allows(queue, name)
    }
}

/// Where a job became ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) queue: Queue,
    pub(crate) name: Name,
}

/// Addresses one waiter has to look after.
pub(crate) type Duty = SmallVec<[Address; 1]>;

/// Place in the line: smaller has waited longer.
pub(crate) type Place = u64;

/// Waiters that want the same stand in one line: a thousand equal workers cost as much to search as one.
#[derive(Debug, Default)]
struct Line {
    asleep: BTreeMap<Place, Arc<Notify>>,
    /// Each with what was announced since its look began.
    looking: BTreeMap<Place, Duty>,
}

impl Line {
    fn is_empty(&self) -> bool {
        self.asleep.is_empty() && self.looking.is_empty()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    tenants: FxHashMap<Tenant, FxHashMap<Wanted, Line>>,
    next_place: Place,
    count: usize,
    /// Who waits, of those that said their name.
    names: BTreeMap<Place, (Tenant, Arc<str>)>,
}

impl Waiting {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Enters the line, looking.
    pub(crate) fn enter(&mut self, tenant: &Tenant, wanted: &Wanted) -> Place {
        let place = self.next_place;
        self.next_place += 1;
        self.count += 1;
        let lines = self.tenants.entry(tenant.clone()).or_default();
        let line = match lines.get_mut(wanted) {
            Some(line) => line,
            None => lines.entry(wanted.clone()).or_default(),
        };
        line.looking.insert(place, Duty::new());
        place
    }

    /// Who stands at this place.
    pub(crate) fn name(&mut self, place: Place, tenant: &Tenant, worker: &Arc<str>) {
        self.names.insert(place, (tenant.clone(), worker.clone()));
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &(Tenant, Arc<str>)> {
        self.names.values()
    }

    /// The look found nothing. Goes to sleep and keeps the place, unless there is a duty: then it has to look again.
    pub(crate) fn found_nothing(
        &mut self,
        tenant: &Tenant,
        wanted: &Wanted,
        place: Place,
        ready_notifier: &Arc<Notify>,
    ) -> LookAgain {
        let Some(line) = self.line(tenant, wanted) else { return LookAgain::Yes };
        match line.looking.get(&place) {
            Some(duty) if duty.is_empty() => {
                line.looking.remove(&place);
                line.asleep.insert(place, ready_notifier.clone());
                LookAgain::No
            }
            Some(_) | None => LookAgain::Yes,
        }
    }

    /// A new look begins: what was announced up to now is in it. The caller holds that duty meanwhile.
    pub(crate) fn look(&mut self, tenant: &Tenant, wanted: &Wanted, place: Place) -> Duty {
        let Some(line) = self.line(tenant, wanted) else { return Duty::new() };
        line.asleep.remove(&place);
        std::mem::take(line.looking.entry(place).or_default())
    }

    /// Out of the line; answers with the duty that was left.
    pub(crate) fn leave(&mut self, tenant: &Tenant, wanted: &Wanted, place: Place) -> Duty {
        self.names.remove(&place);
        let Some(lines) = self.tenants.get_mut(tenant) else { return Duty::new() };
        let Some(line) = lines.get_mut(wanted) else { return Duty::new() };
        let slept = line.asleep.remove(&place).is_some();
        let looked = line.looking.remove(&place);
        self.count -= usize::from(slept || looked.is_some());
        if line.is_empty() {
            lines.remove(wanted);
        }
        if lines.is_empty() {
            self.tenants.remove(tenant);
        }
        looked.unwrap_or_default()
    }

    /// `count` jobs became ready: wakes the longest-waiting matches, until they can take as many. A waiter that wants
    /// one priority only may find nothing where another would, so one of each such line is woken besides.
    pub(crate) fn announce(&mut self, tenant: &Tenant, queue: &Queue, name: &Name, count: usize) {
        let Some(lines) = self.tenants.get_mut(tenant) else { return };
        let fits = |wanted: &Wanted| wanted.fits(queue, name);
        for (wanted, line) in lines.iter_mut().filter(|(wanted, _)| fits(wanted)) {
            if wanted.priority.is_some() {
                wake_first(line, queue, name);
            }
        }
        let mut left = count;
        while left > 0 {
            let mut longest: Option<(Place, usize, &mut Line)> = None;
            let mut busy: Option<&mut Line> = None;
            for (wanted, line) in lines.iter_mut() {
                if wanted.priority.is_some() || !fits(wanted) {
                    continue;
                }
                match line.asleep.first_key_value() {
                    Some((&place, _)) if longest.as_ref().is_none_or(|(best, ..)| place < *best) => {
                        longest = Some((place, wanted.limit, line));
                    }
                    Some(_) => {}
                    None => busy = Some(line),
                }
            }
            match (longest, busy) {
                (Some((_, limit, line)), _) => {
                    wake_first(line, queue, name);
                    left = left.saturating_sub(limit);
                }
                // Nobody sleeps: one that is looking may have looked too early, and has to look again.
                (None, Some(line)) => return wake_first(line, queue, name),
                (None, None) => return,
            }
        }
    }

    /// Everyone looks again: at the end, to see that it is the end.
    pub(crate) fn wake_all(&mut self) {
        for line in self.tenants.values_mut().flat_map(|lines| lines.values_mut()) {
            while let Some((place, ready_notifier)) = line.asleep.pop_first() {
                line.looking.insert(place, Duty::new());
                ready_notifier.notify_one();
            }
        }
    }

    fn line(&mut self, tenant: &Tenant, wanted: &Wanted) -> Option<&mut Line> {
        self.tenants.get_mut(tenant)?.get_mut(wanted)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookAgain {
    Yes,
    No,
}

fn wake_first(line: &mut Line, queue: &Queue, name: &Name) {
    let address = Address { queue: queue.clone(), name: name.clone() };
    if let Some((place, ready_notifier)) = line.asleep.pop_first() {
        line.looking.insert(place, SmallVec::from_elem(address, 1));
        ready_notifier.notify_one();
    } else if let Some(mut first) = line.looking.first_entry()
        && !first.get().contains(&address)
    {
        first.get_mut().push(address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(names: NameMatch, priority: Option<i32>, limit: usize) -> Wanted {
        Wanted { queues: vec![], names, scope: Scope::default(), priority, limit }
    }

    struct Table {
        waiting: Waiting,
        tenant: Tenant,
    }

    impl Table {
        fn new() -> Table {
            Table { waiting: Waiting::default(), tenant: Tenant::default() }
        }

        /// Enters, looks in vain, sleeps.
        fn asleep(&mut self, wanted: &Wanted) -> Place {
            let place = self.waiting.enter(&self.tenant, wanted);
            assert!(self.waiting.look(&self.tenant, wanted, place).is_empty());
            let slept = self.waiting.found_nothing(&self.tenant, wanted, place, &Arc::default());
            assert_eq!(slept, LookAgain::No);
            place
        }

        fn announce(&mut self, name: &str, count: usize) {
            let name = Name::new(name).unwrap();
            self.waiting.announce(&self.tenant, &Queue::default(), &name, count);
        }

        fn is_awake(&mut self, wanted: &Wanted, place: Place) -> bool {
            let line = self.waiting.line(&self.tenant, wanted).unwrap();
            line.looking.contains_key(&place)
        }
    }

    #[test]
    fn one_announcement_wakes_the_longest_waiting_match_alone() {
        let mut table = Table::new();
        let (mail, any) = (wanted(NameMatch::glob("mail"), None, 1), wanted(NameMatch::Any, None, 1));
        let (first, second, third) = (table.asleep(&mail), table.asleep(&any), table.asleep(&mail));
        table.announce("other", 1);
        assert!(table.is_awake(&any, second));
        table.announce("mail", 1);
        assert!(table.is_awake(&mail, first) && !table.is_awake(&mail, third));
    }

    #[test]
    fn a_count_wakes_until_it_can_be_taken() {
        let mut table = Table::new();
        let (one, five) = (wanted(NameMatch::Any, None, 1), wanted(NameMatch::Any, None, 5));
        let (first, second, third) = (table.asleep(&one), table.asleep(&five), table.asleep(&one));
        table.announce("a", 4);
        assert!(table.is_awake(&one, first) && table.is_awake(&five, second));
        assert!(!table.is_awake(&one, third));
    }

    #[test]
    fn a_look_that_may_have_come_too_early_is_repeated() {
        let mut table = Table::new();
        let any = wanted(NameMatch::Any, None, 1);
        let place = table.waiting.enter(&table.tenant, &any);
        table.waiting.look(&table.tenant, &any, place);
        table.announce("a", 1);
        let answer = table.waiting.found_nothing(&table.tenant, &any, place, &Arc::default());
        assert_eq!(answer, LookAgain::Yes);
        assert_eq!(table.waiting.look(&table.tenant, &any, place).len(), 1);
    }

    #[test]
    fn who_leaves_hands_over_what_it_was_woken_for() {
        let mut table = Table::new();
        let any = wanted(NameMatch::Any, None, 1);
        let place = table.asleep(&any);
        table.announce("a", 1);
        let left = table.waiting.leave(&table.tenant, &any, place);
        assert_eq!(left.len(), 1);
        assert_eq!(table.waiting.len(), 0);
        assert!(table.waiting.tenants.is_empty(), "nothing is left behind");
        assert!(table.waiting.leave(&table.tenant, &any, place).is_empty());
    }

    #[test]
    fn a_line_for_one_priority_is_woken_beside_the_others() {
        let mut table = Table::new();
        let (picky, any) = (wanted(NameMatch::Any, Some(3), 1), wanted(NameMatch::Any, None, 1));
        let (first, second) = (table.asleep(&picky), table.asleep(&any));
        table.announce("a", 1);
        assert!(table.is_awake(&picky, first) && table.is_awake(&any, second));
    }
}
