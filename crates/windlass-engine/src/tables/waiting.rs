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
//! An announcement ("so many jobs at this address became ready") wakes as many waiters as can claim the jobs. The
//! share of each is its duty until it has queried the store. A query that returned the share, or fewer jobs than
//! its limit, which empties the address, completes the duty. The rest of it, that of a waiter that leaves and that
//! of a dropped one are announced again. So one job wakes one waiter, and no announcement is lost.
//!
//! If the number of jobs is unknown, or no waiter sleeps, one waiter gets a duty without a number. A query that
//! returned as many jobs as its limit passes it on: the waiters are woken one after the other until one finds the
//! address empty.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use tokio::sync::Notify;
use windlass_core::{Job, Name, Queue, Tenant};
use windlass_store::ClaimAsk;

/// Claim that waits. Claims for the same jobs are equal, whichever worker makes them.
#[derive(Clone)]
pub(crate) struct WaitingClaim(pub(crate) Arc<ClaimAsk>);

impl PartialEq for WaitingClaim {
    fn eq(&self, other: &WaitingClaim) -> bool {
        self.0.wanted() == other.0.wanted() && self.0.limit == other.0.limit
    }
}

impl Eq for WaitingClaim {}

impl Hash for WaitingClaim {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.wanted(), self.0.limit).hash(state);
    }
}

/// Jobs of one address that became ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadyJobs {
    pub(crate) queue: Queue,
    pub(crate) name: Name,
    /// `None`: any number.
    pub(crate) count: Option<usize>,
}

impl ReadyJobs {
    /// Splits off as many jobs as a claim with this limit can take.
    fn split_off(&mut self, limit: usize) -> ReadyJobs {
        let share = self.count.map(|count| count.min(limit));
        self.count = Some(self.count.zip(share).map_or(0, |(count, share)| count - share));
        ReadyJobs { count: share, ..self.clone() }
    }

    /// Subtracts claimed jobs; returns whether any may be left.
    pub(crate) fn outlast(&mut self, claimed: &[Arc<Job>]) -> bool {
        let is_here = |job: &&Arc<Job>| job.spec.queue == self.queue && job.spec.name == self.name;
        let taken = claimed.iter().filter(is_here).count();
        self.count = self.count.map(|count| count.saturating_sub(taken));
        self.count != Some(0)
    }
}

/// Jobs that a waiter has to query for.
pub(crate) type Duty = SmallVec<[ReadyJobs; 1]>;

/// Position in the queue of waiters: a smaller number has waited longer.
pub(crate) type Place = u64;

/// Waiters with equal claims share one entry: a thousand equal workers cost as much to search as one.
#[derive(Default)]
struct WaiterGroup {
    asleep: BTreeMap<Place, Arc<Notify>>,
    /// Waiters that are querying, each with the jobs announced since its query began.
    looking: BTreeMap<Place, Duty>,
}

impl WaiterGroup {
    fn is_empty(&self) -> bool {
        self.asleep.is_empty() && self.looking.is_empty()
    }

    /// Wakes the first sleeping waiter. Without one, the query of the first looking waiter may have been too early
    /// and has to be repeated, for any number of jobs.
    fn wake_first(&mut self, share: ReadyJobs) {
        if let Some((place, notify)) = self.asleep.pop_first() {
            self.looking.insert(place, SmallVec::from_elem(share, 1));
            notify.notify_one();
        } else if let Some(mut first) = self.looking.first_entry() {
            let duty = first.get_mut();
            duty.retain(|known| (&known.queue, &known.name) != (&share.queue, &share.name));
            duty.push(ReadyJobs { count: None, ..share });
        }
    }
}

#[derive(Default)]
pub(crate) struct Waiting {
    tenants: FxHashMap<Tenant, FxHashMap<WaitingClaim, WaiterGroup>>,
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
    pub(crate) fn enter(&mut self, claim: &WaitingClaim) -> Place {
        let place = self.next_place;
        self.next_place += 1;
        self.count += 1;
        let groups = self.tenants.entry(claim.0.tenant.clone()).or_default();
        groups.entry(claim.clone()).or_default().looking.insert(place, Duty::new());
        if let Some(worker) = &claim.0.worker {
            self.names.insert(place, (claim.0.tenant.clone(), worker.clone()));
        }
        place
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &(Tenant, Arc<str>)> {
        self.names.values()
    }

    /// The query found nothing: the waiter sleeps and keeps its position, unless it has a duty and has to
    /// query again.
    pub(crate) fn found_nothing(
        &mut self,
        claim: &WaitingClaim,
        place: Place,
        notify: &Arc<Notify>,
    ) -> LookAgain {
        let Some(group) = self.group(claim) else { return LookAgain::Yes };
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
    pub(crate) fn look(&mut self, claim: &WaitingClaim, place: Place) -> Duty {
        let Some(group) = self.group(claim) else { return Duty::new() };
        group.asleep.remove(&place);
        std::mem::take(group.looking.entry(place).or_default())
    }

    /// Removes the waiter; returns its remaining duty.
    pub(crate) fn leave(&mut self, claim: &WaitingClaim, place: Place) -> Duty {
        self.names.remove(&place);
        let tenant = &claim.0.tenant;
        let Some(groups) = self.tenants.get_mut(tenant) else { return Duty::new() };
        let Some(group) = groups.get_mut(claim) else { return Duty::new() };
        let slept = group.asleep.remove(&place).is_some();
        let looked = group.looking.remove(&place);
        self.count -= usize::from(slept || looked.is_some());
        if group.is_empty() {
            groups.remove(claim);
        }
        if groups.is_empty() {
            self.tenants.remove(tenant);
        }
        looked.unwrap_or_default()
    }

    /// Wakes the longest-waiting matches until their limits cover the jobs. A waiter for a single priority may
    /// find nothing where another would, so the first of each such group is woken in addition, for any number.
    pub(crate) fn announce(&mut self, tenant: &Tenant, mut ready: ReadyJobs) {
        let Some(groups) = self.tenants.get_mut(tenant) else { return };
        let address = ReadyJobs { count: None, ..ready.clone() };
        let fits = |claim: &WaitingClaim| claim.0.fits(&address.queue, &address.name);
        for (claim, group) in groups.iter_mut().filter(|(claim, _)| fits(claim)) {
            if claim.0.priority.is_some() {
                group.wake_first(address.clone());
            }
        }
        while ready.count != Some(0) {
            let mut longest: Option<(Place, usize, &mut WaiterGroup)> = None;
            let mut busy: Option<&mut WaiterGroup> = None;
            for (claim, group) in groups.iter_mut() {
                if claim.0.priority.is_some() || !fits(claim) {
                    continue;
                }
                match group.asleep.first_key_value() {
                    Some((&place, _)) if longest.as_ref().is_none_or(|(best, ..)| place < *best) => {
                        longest = Some((place, claim.0.limit, group));
                    }
                    Some(_) => {}
                    None => busy = Some(group),
                }
            }
            match (longest, busy) {
                (Some((_, limit, group)), _) => group.wake_first(ready.split_off(limit)),
                (None, Some(group)) => return group.wake_first(address),
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

    fn group(&mut self, claim: &WaitingClaim) -> Option<&mut WaiterGroup> {
        self.tenants.get_mut(&claim.0.tenant)?.get_mut(claim)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookAgain {
    Yes,
    No,
}

#[cfg(test)]
pub(crate) mod tests;
