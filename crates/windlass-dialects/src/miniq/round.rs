//! Round of the run loop: chooses a batch for each free slot, then claims all batches together. Batches of
//! one type share a claim, and claims of several types run concurrently, so that they share a commit.

use super::schedule::Candidate;
use super::{State, batch_run, commands, handlers};
use crate::runners::{Booking, NoRoom, Resource, Runners};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::{Job, Name, Tenant};
use windlass_engine::EngineError;

/// Most jobs without a handler that are retried later at once.
const ORPHANS_MAX: usize = 500;
/// Most batches per round: enough to share the cost of a commit, few enough for a short wait of the next
/// round.
const BATCHES_MAX: usize = 64;
/// Most jobs per round. 500 cost the same in measurements; with many more, the first job waits for the last
/// without a gain.
const JOBS_MAX: usize = 1_000;

/// Type with waiting jobs.
pub(super) struct Type {
    pub client: Tenant,
    pub jobtype: Name,
    /// Jobs for which no batch is planned.
    pub left: u64,
    pub version: Option<handlers::Version>,
}

impl Type {
    fn address(&self) -> (Tenant, Name) {
        (self.client.clone(), self.jobtype.clone())
    }
}

/// Planned batches.
#[derive(Default)]
pub(super) struct Round {
    /// By the index of the type.
    orders: BTreeMap<usize, Order>,
    batches: usize,
    jobs: usize,
    /// Jobs wait for a free slot.
    pub lacks_room: bool,
    /// Clients that wait for a slot held by another client, with the resource.
    pub waiting: Vec<(Tenant, Resource)>,
}

/// Batches of one type.
struct Order {
    resource: Resource,
    /// Jobs that the scheduler counts as started.
    jobs: usize,
    /// Slots that the scheduler counts as planned.
    planned: usize,
    /// Batch size and booked slot of each batch.
    places: Vec<(usize, Option<Box<dyn Booking>>)>,
}

/// Result of a round.
#[derive(Default)]
pub(super) struct Outcome {
    /// Types of which the store had no job to claim.
    pub empty: Vec<(Tenant, Name)>,
    /// Types whose handler has changed since it was read.
    pub changed: Vec<((Tenant, Name), Option<handlers::Version>)>,
}

impl Round {
    pub(super) fn is_empty(&self) -> bool {
        self.orders.is_empty()
    }

    /// Chooses batches one by one. A planned batch counts as started at once, so that the next choice takes
    /// it into account.
    pub(super) fn plan(state: &State, runners: &dyn Runners, types: &mut [Type]) -> Round {
        let warm = runners.warm();
        let mut round = Round::default();
        let mut places: Vec<usize> = (0..types.len()).filter(|place| types[*place].left > 0).collect();
        let candidate = |place: &usize| {
            let one = &types[*place];
            let is_of_it =
                |(client, jobtype): &(String, String)| *client == *one.client && *jobtype == *one.jobtype;
            let is_warm = warm.iter().any(is_of_it);
            let resource = resource_of(runners, one);
            Candidate { client: one.client.clone(), jobtype: one.jobtype.clone(), resource, is_warm }
        };
        let mut candidates: Vec<Candidate> = places.iter().map(candidate).collect();
        while round.batches < BATCHES_MAX && round.jobs < JOBS_MAX {
            let chances = [
                state.engine.random_fraction(),
                state.engine.random_fraction(),
                state.engine.random_fraction(),
            ];
            let chosen = state.scheduler().select_jobtype_to_run(&candidates, chances);
            let Some(chosen) = chosen else { break };
            let is_planned = round.add(state, runners, places[chosen], types);
            if !is_planned || types[places[chosen]].left == 0 {
                places.remove(chosen);
                candidates.remove(chosen);
            }
        }
        round
    }

    /// Plans one more batch of the type. Returns false if there is no slot for it.
    fn add(&mut self, state: &State, runners: &dyn Runners, place: usize, types: &mut [Type]) -> bool {
        let one = &mut types[place];
        let (size, booking) = match &one.version {
            None => (ORPHANS_MAX, None),
            Some(version) => match runners.book(&one.client, &one.jobtype, &version.handler) {
                Err(why) => {
                    self.lacks_room = true;
                    if let NoRoom::Full(resource) = why {
                        self.waiting.push((one.client.clone(), resource));
                    }
                    return false;
                }
                Ok(booking) => (booking.jobs_max().max(1), Some(booking)),
            },
        };
        let jobs = usize::try_from(one.left).unwrap_or(size).min(size);
        one.left -= jobs as u64;
        let resource = resource_of(runners, one);
        let mut scheduler = state.scheduler();
        scheduler.jobs_started(&one.client, &one.jobtype, jobs);
        scheduler.plan(&one.client, resource);
        let order =
            self.orders.entry(place).or_insert(Order { resource, jobs: 0, planned: 0, places: Vec::new() });
        order.jobs += jobs;
        order.planned += 1;
        order.places.push((size, booking));
        self.batches += 1;
        self.jobs += jobs;
        true
    }

    /// Claims the planned batches, and starts them.
    pub(super) async fn claim_and_start(
        mut self,
        state: &Arc<State>,
        types: &[Type],
        lock_ms: i64,
    ) -> Result<Outcome, EngineError> {
        let mut outcome = Outcome::default();
        let mut trouble = self.leave_out_changed(state, types, &mut outcome).await.err();
        if trouble.is_some() {
            self.orders.retain(|place, order| order.take_back(state, &types[*place]));
        }
        let sysid = state.sysid();
        let claims = self.orders.iter().map(|(place, order)| {
            let one = &types[*place];
            let limit = order.places.iter().map(|(size, _)| size).sum();
            state.engine.claim(commands::claim(&one.client, &one.jobtype, limit, &sysid, lock_ms))
        });
        let claimed = join_all(claims).await;
        for ((place, mut order), claimed) in self.orders.into_iter().zip(claimed) {
            let one = &types[place];
            match claimed {
                Ok(delivery) => {
                    let jobs = delivery.accept();
                    if jobs.is_empty() {
                        outcome.empty.push(one.address());
                    }
                    order.start(state, one, jobs);
                }
                Err(error) => trouble = Some(error),
            }
            order.take_back(state, one);
        }
        trouble.map_or(Ok(outcome), Err)
    }

    /// Drops batches whose handler has changed since it was read; they are planned again with the newest
    /// version.
    async fn leave_out_changed(
        &mut self,
        state: &State,
        types: &[Type],
        outcome: &mut Outcome,
    ) -> Result<(), EngineError> {
        let newest = |place: &usize| {
            let one = &types[*place];
            handlers::newest(&state.engine, &one.client, &one.jobtype, one.version.as_ref())
        };
        let places: Vec<usize> = self.orders.keys().copied().collect();
        for (place, newest) in places.iter().zip(join_all(places.iter().map(newest)).await) {
            let (one, newest) = (&types[*place], newest?);
            if newest != one.version {
                outcome.changed.push((one.address(), newest));
                if let Some(mut order) = self.orders.remove(place) {
                    order.take_back(state, one);
                }
            }
        }
        Ok(())
    }
}

/// Jobs without a handler need no slot, but count for fairness.
fn resource_of(runners: &dyn Runners, one: &Type) -> Resource {
    one.version.as_ref().map_or("none", |version| runners.resource(&version.handler))
}

impl Order {
    /// Starts the jobs in the booked slots, in order.
    fn start(&mut self, state: &Arc<State>, one: &Type, mut jobs: Vec<Arc<Job>>) {
        for (size, booking) in self.places.drain(..) {
            if jobs.is_empty() {
                return;
            }
            let later = jobs.split_off(size.min(jobs.len()));
            let (client, jobtype) = (one.client.clone(), one.jobtype.clone());
            let begun = one.version.clone().zip(booking);
            batch_run::start(
                state,
                batch_run::Kind { client, jobtype, resource: self.resource },
                begun,
                jobs,
            );
            jobs = later;
        }
        debug_assert!(jobs.is_empty(), "more jobs than were asked for");
    }

    /// Removes the plan from the scheduler's counts; started batches have counts of their own. Always returns
    /// false, for `retain`.
    fn take_back(&mut self, state: &State, one: &Type) -> bool {
        let mut scheduler = state.scheduler();
        scheduler.jobs_stopped(&one.client, &one.jobtype, std::mem::take(&mut self.jobs));
        scheduler.unplan(&one.client, self.resource, std::mem::take(&mut self.planned));
        drop(scheduler);
        self.places.clear();
        false
    }
}

#[cfg(test)]
mod tests;
