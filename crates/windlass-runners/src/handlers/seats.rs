//! Slots for batches that need no context, with a limit in total and per client.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use windlass_core::handler::{NoRoom, Resource};

pub(super) struct Seats {
    resource: Resource,
    max: usize,
    per_client: usize,
    /// Used slots by client; entries are never zero.
    taken: Mutex<HashMap<String, usize>>,
}

/// Used slot; freed on drop.
pub(super) struct TakenSeat {
    seats: Arc<Seats>,
    client: String,
}

impl Seats {
    pub(super) fn new(resource: Resource, max: usize, per_client: usize) -> Arc<Seats> {
        Arc::new(Seats { resource, max, per_client, taken: Mutex::default() })
    }

    pub(super) fn try_take(self: &Arc<Seats>, client: &str) -> Result<TakenSeat, NoRoom> {
        let mut taken = self.taken();
        if taken.get(client).is_some_and(|own| *own >= self.per_client) {
            return Err(NoRoom::OwnShare);
        }
        if taken.values().sum::<usize>() >= self.max {
            return Err(NoRoom::Full(self.resource));
        }
        *taken.entry(client.to_owned()).or_default() += 1;
        Ok(TakenSeat { seats: Arc::clone(self), client: client.to_owned() })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.taken.lock()
    }
}

impl Drop for TakenSeat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        if let Some(own) = taken.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::booking::HTTP;
    use super::*;

    #[test]
    fn a_client_has_its_share_and_another_finds_a_seat() {
        let seats = Seats::new(HTTP, 4, 3);
        let mut big: Vec<TakenSeat> = (0..3).map(|_| seats.try_take("big").ok().unwrap()).collect();
        assert_eq!(seats.try_take("big").err(), Some(NoRoom::OwnShare));
        let small = seats.try_take("small").ok().unwrap();
        assert_eq!(seats.try_take("third").err(), Some(NoRoom::Full(HTTP)));
        big.pop();
        let third = seats.try_take("third").ok().unwrap();
        drop((big, small, third));
        assert!(seats.taken().is_empty());
    }
}
