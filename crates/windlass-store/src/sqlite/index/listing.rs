//! Candidates for a filter, from the index.

use super::Index;
use super::shelf::{Shelf, ShelfId};
use super::tenant::TenantIndex;
use crate::query::Filter;
use std::collections::BTreeSet;
use windlass_core::{JobId, NameMatch, Queue, StateName};

/// Most candidate ids for one list: gathered within milliseconds, since claims wait for the index meanwhile. With
/// more candidates a scan from the newest row finds a page soon, unless all of them are far older than the rest.
const CANDIDATES_MAX: usize = 20_000;

impl Index {
    /// Ids of the few jobs that can match, newest first, below `before`; `None` if they are too many, in
    /// which case a scan from the newest row finds a page soon.
    pub(crate) fn ids_fitting(&self, filter: &Filter, before: u64, limit: usize) -> Option<Vec<JobId>> {
        let is_addressed = is_addressed(filter);
        if filter.states.is_empty() && !filter.repeating && !is_addressed {
            return None;
        }
        let mut ids: BTreeSet<JobId> = BTreeSet::new();
        for (name, entry) in &self.tenants {
            if filter.tenant.as_ref().is_some_and(|asked| asked != name) {
                continue;
            }
            if filter.repeating {
                ids.extend(entry.newest_repeating(before, limit));
                continue;
            }
            let shelves = self.shelves_fitting(entry, filter);
            let states = states_fitting(&shelves, filter);
            // Jobs of the tenant in these states, except ready ones. If they are fewer than the jobs of the
            // shelves, they are the better candidates.
            let in_states: usize = states.iter().map(|state| entry.count_in(*state)).sum();
            let others =
                if is_addressed { few_others(&shelves, CANDIDATES_MAX.min(in_states)) } else { None };
            ids.extend(others.iter().flatten());
            for state in states {
                match state {
                    StateName::Ready if filter.retried => ids.extend(entry.newest_retried(before, limit)),
                    StateName::Ready => ids.extend(self.few_ready(&shelves)?),
                    _ if others.is_some() => {}
                    // Only few of the many jobs in this state match: scan the rows instead.
                    other if is_addressed && entry.count_in(other) > CANDIDATES_MAX => return None,
                    other => ids.extend(entry.newest_in(other, before, limit)),
                }
            }
        }
        Some(ids.into_iter().rev().skip_while(|id| id.get() >= before).take(limit).collect())
    }

    /// Shelves of the requested queue and names; none where nothing depends on them.
    fn shelves_fitting(&self, tenant: &TenantIndex, filter: &Filter) -> Vec<&Shelf> {
        let numbers: Vec<ShelfId> = match &filter.names {
            NameMatch::Exact(name) => tenant.shelves_of_name(name),
            _ if is_addressed(filter) || filter.states.contains(&StateName::Ready) => {
                tenant.queues_and_shelves().filter_map(|(_, number)| number).collect()
            }
            _ => Vec::new(),
        };
        let shelves = numbers.into_iter().map(|number| &self.shelves[number as usize]);
        shelves.filter(|shelf| fits(filter, &shelf.queue, &shelf.name)).collect()
    }

    /// Ready jobs of these shelves; `None` if they are too many.
    fn few_ready(&self, shelves: &[&Shelf]) -> Option<Vec<JobId>> {
        let mut ids = Vec::new();
        for shelf in shelves {
            if ids.len() + shelf.slots.len() > CANDIDATES_MAX {
                return None;
            }
            ids.extend(shelf.slots.iter().map(|slot| slot.id));
        }
        if shelves.iter().any(|shelf| shelf.has_later()) {
            if self.delayed.len() > CANDIDATES_MAX {
                return None;
            }
            ids.extend(self.delayed.keys().map(|(_, id)| *id));
        }
        Some(ids)
    }
}

/// Requested states; if the filter selects queues or names, those that occur among the jobs of these shelves.
fn states_fitting(shelves: &[&Shelf], filter: &Filter) -> Vec<StateName> {
    let is_asked = |state: &StateName| filter.states.is_empty() || filter.states.contains(state);
    let occurs = |state: &StateName| shelves.iter().any(|shelf| shelf.counts[*state as usize] > 0);
    let is_addressed = is_addressed(filter);
    StateName::ALL.into_iter().filter(is_asked).filter(|state| !is_addressed || occurs(state)).collect()
}

/// Jobs of these shelves in other states than ready; `None` if they are too many.
fn few_others(shelves: &[&Shelf], most: usize) -> Option<Vec<JobId>> {
    let mut ids = Vec::new();
    for shelf in shelves {
        ids.extend(shelf.others.all()?);
        if ids.len() > most {
            return None;
        }
    }
    Some(ids)
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
