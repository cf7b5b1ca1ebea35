//! Candidates for a filter, from the index.

use super::Index;
use super::tenant::TenantIndex;
use crate::query::Filter;
use std::collections::BTreeSet;
use windlass_core::{JobId, NameMatch, Queue, StateName};

/// Most candidate ids for one list.
const NAMED_MAX: usize = 20_000;
/// Same for a filter without states: with more candidates a scan from the newest row is faster, and blocks no
/// claim.
const NAMED_IN_ANY_STATE_MAX: usize = 2_000;

impl Index {
    /// Ids of the few jobs that can match, newest first, below `before`; `None` if they are too many, in
    /// which case a scan from the newest row finds a page soon.
    pub(crate) fn ids_fitting(&self, filter: &Filter, before: u64, limit: usize) -> Option<Vec<JobId>> {
        let is_addressed = is_addressed(filter);
        if filter.states.is_empty() && !filter.repeating && !is_addressed {
            return None;
        }
        let most = if filter.states.is_empty() { NAMED_IN_ANY_STATE_MAX } else { NAMED_MAX };
        let mut ids: BTreeSet<JobId> = BTreeSet::new();
        for (name, entry) in &self.tenants {
            if filter.tenant.as_ref().is_some_and(|asked| asked != name) {
                continue;
            }
            if filter.repeating {
                ids.extend(entry.newest_repeating(before, limit));
                continue;
            }
            for state in self.states_fitting(entry, filter) {
                match state {
                    StateName::Ready => ids.extend(self.few_ready(entry, filter, most)?),
                    // Only few of the many jobs in this state match: scan the rows instead.
                    other if is_addressed && entry.count_in(other) > most => return None,
                    other => ids.extend(entry.newest_in(other, before, limit)),
                }
            }
        }
        Some(ids.into_iter().rev().skip_while(|id| id.get() >= before).take(limit).collect())
    }

    /// Requested states that occur among the jobs of the requested queue and names.
    fn states_fitting(&self, tenant: &TenantIndex, filter: &Filter) -> Vec<StateName> {
        let is_asked = |state: &StateName| filter.states.is_empty() || filter.states.contains(state);
        if !is_addressed(filter) {
            return StateName::ALL.into_iter().filter(is_asked).collect();
        }
        let mut counts = [0_u64; StateName::ALL.len()];
        for (queue, shelf) in tenant.queues_and_shelves() {
            let Some(shelf) = shelf.map(|number| &self.shelves[number as usize]) else { continue };
            if fits(filter, queue, &shelf.name) {
                counts.iter_mut().zip(&shelf.counts).for_each(|(sum, count)| *sum += count);
            }
        }
        let has_some = |state: &StateName| counts[*state as usize] > 0;
        StateName::ALL.into_iter().filter(is_asked).filter(has_some).collect()
    }

    /// Ready jobs of the requested queue and names; `None` if they are too many.
    fn few_ready(&self, tenant: &TenantIndex, filter: &Filter, most: usize) -> Option<Vec<JobId>> {
        let mut ids = Vec::new();
        let mut delayed = false;
        for (queue, shelf) in tenant.queues_and_shelves() {
            let Some(shelf) = shelf.map(|number| &self.shelves[number as usize]) else { continue };
            if !fits(filter, queue, &shelf.name) {
                continue;
            }
            if ids.len() + shelf.slots.len() > most {
                return None;
            }
            ids.extend(shelf.slots.iter().map(|slot| slot.id));
            delayed |= shelf.delayed > 0;
        }
        if delayed {
            if self.delayed.len() > most {
                return None;
            }
            ids.extend(self.delayed.keys().map(|(_, id)| *id));
        }
        Some(ids)
    }
}

/// True if the filter selects queues or names.
fn is_addressed(filter: &Filter) -> bool {
    filter.queue.is_some() || filter.names != NameMatch::Any || !filter.scope.is_everything()
}

fn fits(filter: &Filter, queue: &Queue, name: &str) -> bool {
    filter.queue.as_ref().is_none_or(|asked| asked == queue)
        && filter.names.matches(name)
        && filter.scope.allows(queue, name)
}
