//! Merging of two indexes, each built from other rows. Sorted sets are merged in linear time.

use super::Index;
use super::shelf::{Shelf, ShelfId};
use super::tenant::TenantIndex;

impl Index {
    /// Takes over the jobs of an index that was built by `add` alone: without pauses, views and blocked shelves.
    pub(in crate::sqlite) fn absorb(&mut self, mut other: Index) {
        let numbers: Vec<ShelfId> = other.shelves.into_iter().map(|shelf| self.absorb_shelf(shelf)).collect();
        for later in other.delayed.values_mut() {
            later.shelf = numbers[later.shelf as usize];
        }
        self.delayed.append(&mut other.delayed);
        self.deadlines.append(&mut other.deadlines);
        for (parent, mut children) in other.children {
            self.children.entry(parent).or_default().append(&mut children);
        }
        for (tenant, theirs) in other.tenants {
            self.tenants.entry(tenant).or_default().absorb(theirs);
        }
    }

    /// Returns the number of the shelf here.
    fn absorb_shelf(&mut self, mut theirs: Shelf) -> ShelfId {
        let tenant = self.tenants.entry(theirs.tenant.clone()).or_default();
        let known = tenant.find_shelf(&theirs.queue, &theirs.name, &theirs.limit_keys, &self.shelves);
        if let Some(number) = known {
            let ours = &mut self.shelves[number as usize];
            ours.slots.append(&mut theirs.slots);
            ours.others.absorb(theirs.others);
            let counts = ours.counts.iter_mut().chain(&mut ours.later);
            for (sum, count) in counts.zip(theirs.counts.iter().chain(&theirs.later)) {
                *sum += count;
            }
            return number;
        }
        let number = self.shelves.len() as ShelfId;
        self.shelves.push(theirs);
        tenant.enter_shelf(number, &mut self.shelves);
        number
    }
}

impl TenantIndex {
    /// All but the queues, which were entered with their shelves.
    fn absorb(&mut self, mut other: TenantIndex) {
        self.payload_bytes += other.payload_bytes;
        self.uniques.absorb(other.uniques);
        self.aliases.absorb(other.aliases);
        for (ours, theirs) in self.by_state.iter_mut().zip(&mut other.by_state) {
            ours.append(theirs);
        }
        self.repeating.append(&mut other.repeating);
        self.retried.append(&mut other.retried);
    }
}
