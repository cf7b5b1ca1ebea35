//! Waiting claims: a table without I/O, clock or lock.
//!
//! A waiter enters the table before it queries the store, so that no job becomes ready unnoticed between the
//! two. From then on it is in one of two states:
//!
//! ```text
//!             look                 found nothing
//!   enter ──► Looking ───────────────────────► Asleep
//!                ▲     announced (twice: look again)  │ announced: wakes the longest-waiting match
//!                └────────────────────────────────────┘
//! ```
//!
//! Each announcement ("a job at this address became ready") is the duty of one waiter until that waiter has
//! queried the store after it. A query that returns fewer jobs than its limit has emptied the address, which
//! completes the duty. A query that returned as many as its limit, a waiter that leaves, and a dropped waiter
//! pass the duty to the next match. So one job wakes one waiter, and no announcement is lost.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;
use windlass_core::{Name, NameMatch, Queue, Scope, Tenant};

/// Jobs that a waiter accepts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    pub(crate) queues: Vec<Queue>,
    pub(crate) names: NameMatch,
    pub(crate) scope: Scope,
    pub(crate) priority: Option<i32>,
    /// Most jobs of one claim.
    pub(crate) limit: usize,
}

impl Wanted {
    fn fits(&self, queue: &Queue, name: &Name) -> bool {
        (self.queues.is_empty() || self.queues.contains(queue))
            && self.names.matches(name)
            && self.scope.allows(queue, name)
    }
}

/// Queue and name of a job that became ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) queue: Queue,
    pub(crate) name: Name,
}

/// Addresses that a waiter has to query.
pub(crate) type Duty = SmallVec<[Address; 1]>;

/// Position in the queue of waiters: a smaller number has waited longer.
pub(crate) type Place = u64;

/// Waiters with equal requests share one entry: a thousand equal workers cost as much to search as one.
#[derive(Debug, Default)]
struct WaiterGroup {
    asleep: BTreeMap<Place, Arc<Notify>>,
    /// Waiters that are querying, each with the addresses announced since its query began.
    looking: BTreeMap<Place, Duty>,
}

impl WaiterGroup {
    fn is_empty(&self) -> bool {
        self.asleep.is_empty() && self.looking.is_empty()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    tenants: FxHashMap<Tenant, FxHashMap<Wanted, WaiterGroup>>,
    next_place: Place,
    count: usize,
    /// Tenant and worker name of each waiter that has given its name.
    names: BTreeMap<Place, (Tenant, Arc<str>)>,
}

impl Waiting {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Adds a waiter in state Looking.
    pub(crate) fn enter(&mut self, tenant: &Tenant, wanted: &Wanted) -> Place {
        let place = self.next_place;
        self.next_place += 1;
        self.count += 1;
        let groups = self.tenants.entry(tenant.clone()).or_default();
        let group = match groups.get_mut(wanted) {
            Some(group) => group,
            None => groups.entry(wanted.clone()).or_default(),
        };
        group.looking.insert(place, Duty::new());
        place
    }

    /// Records the worker name of a waiter.
    pub(crate) fn name(&mut self, place: Place, tenant: &Tenant, worker: &Arc<str>) {
        self.names.insert(place, (tenant.clone(), worker.clone()));
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &(Tenant, Arc<str>)> {
        self.names.values()
    }

    /// The query found nothing: the waiter sleeps and keeps its position, unless it has a duty and has to
    /// query again.
    pub(crate) fn found_nothing(
        &mut self,
        tenant: &Tenant,
        wanted: &Wanted,
        place: Place,
        notify: &Arc<Notify>,
    ) -> LookAgain {
        let Some(group) = self.group(tenant, wanted) else { return LookAgain::Yes };
        match group.looking.get(&place) {
            Some(duty) if duty.is_empty() => {
                group.looking.remove(&place);
                group.asleep.insert(place, notify.clone());
                LookAgain::No
            }
            Some(_) | None => LookAgain::Yes,
        }
    }

    /// Begins a query, which covers all announcements so far. The caller takes over their duty.
    pub(crate) fn look(&mut self, tenant: &Tenant, wanted: &Wanted, place: Place) -> Duty {
        let Some(group) = self.group(tenant, wanted) else { return Duty::new() };
        group.asleep.remove(&place);
        std::mem::take(group.looking.entry(place).or_default())
    }

    /// Removes the waiter; returns its remaining duty.
    pub(crate) fn leave(&mut self, tenant: &Tenant, wanted: &Wanted, place: Place) -> Duty {
        self.names.remove(&place);
        let Some(groups) = self.tenants.get_mut(tenant) else { return Duty::new() };
        let Some(group) = groups.get_mut(wanted) else { return Duty::new() };
        let slept = group.asleep.remove(&place).is_some();
        let looked = group.looking.remove(&place);
        self.count -= usize::from(slept || looked.is_some());
        if group.is_empty() {
            groups.remove(wanted);
        }
        if groups.is_empty() {
            self.tenants.remove(tenant);
        }
        looked.unwrap_or_default()
    }

    /// `count` jobs became ready: wakes the longest-waiting matches until their limits cover `count`. A
    /// waiter for a single priority may find nothing where another would, so the first of each such group is
    /// woken in addition.
    pub(crate) fn announce(&mut self, tenant: &Tenant, queue: &Queue, name: &Name, count: usize) {
        let Some(groups) = self.tenants.get_mut(tenant) else { return };
        let fits = |wanted: &Wanted| wanted.fits(queue, name);
        for (wanted, group) in groups.iter_mut().filter(|(wanted, _)| fits(wanted)) {
            if wanted.priority.is_some() {
                wake_first(group, queue, name);
            }
        }
        let mut left = count;
        while left > 0 {
            let mut longest: Option<(Place, usize, &mut WaiterGroup)> = None;
            let mut busy: Option<&mut WaiterGroup> = None;
            for (wanted, group) in groups.iter_mut() {
                if wanted.priority.is_some() || !fits(wanted) {
                    continue;
                }
                match group.asleep.first_key_value() {
                    Some((&place, _)) if longest.as_ref().is_none_or(|(best, ..)| place < *best) => {
                        longest = Some((place, wanted.limit, group));
                    }
                    Some(_) => {}
                    None => busy = Some(group),
                }
            }
            match (longest, busy) {
                (Some((_, limit, group)), _) => {
                    wake_first(group, queue, name);
                    left = left.saturating_sub(limit);
                }
                // No waiter sleeps: the query of a looking waiter may have been too early and has to be
                // repeated.
                (None, Some(group)) => return wake_first(group, queue, name),
                (None, None) => return,
            }
        }
    }

    /// Wakes all waiters, so that they notice the shutdown.
    pub(crate) fn wake_all(&mut self) {
        for group in self.tenants.values_mut().flat_map(|groups| groups.values_mut()) {
            while let Some((place, notify)) = group.asleep.pop_first() {
                group.looking.insert(place, Duty::new());
                notify.notify_one();
            }
        }
    }

    fn group(&mut self, tenant: &Tenant, wanted: &Wanted) -> Option<&mut WaiterGroup> {
        self.tenants.get_mut(tenant)?.get_mut(wanted)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookAgain {
    Yes,
    No,
}

fn wake_first(group: &mut WaiterGroup, queue: &Queue, name: &Name) {
    let address = Address { queue: queue.clone(), name: name.clone() };
    if let Some((place, notify)) = group.asleep.pop_first() {
        group.looking.insert(place, SmallVec::from_elem(address, 1));
        notify.notify_one();
    } else if let Some(mut first) = group.looking.first_entry()
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

        /// Adds a waiter that queries, finds nothing and sleeps.
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
            let group = self.waiting.group(&self.tenant, wanted).unwrap();
            group.looking.contains_key(&place)
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
    fn a_group_for_one_priority_is_woken_beside_the_others() {
        let mut table = Table::new();
        let (picky, any) = (wanted(NameMatch::Any, Some(3), 1), wanted(NameMatch::Any, None, 1));
        let (first, second) = (table.asleep(&picky), table.asleep(&any));
        table.announce("a", 1);
        assert!(table.is_awake(&picky, first) && table.is_awake(&any, second));
    }
}
