//! Connections per address before authentication: a single address cannot use up all connections. Authenticated
//! connections are counted per tenant.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass_core::Tenant;
use windlass_engine::quota::Share;
use windlass_engine::{Engine, EngineError};

#[derive(Debug)]
pub struct Arrivals {
    max: usize,
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// Connection. Counted for its address until it has authenticated or ends, and for the tenant of its last request.
#[derive(Debug)]
pub struct Arrival {
    of: Arc<Arrivals>,
    address: IpAddr,
    is_admitted: AtomicBool,
    owner: Mutex<Option<(Tenant, Share)>>,
}

impl Arrivals {
    pub fn new(max: usize) -> Arc<Arrivals> {
        Arc::new(Arrivals { max: max.max(1), by_address: Mutex::default() })
    }

    /// Counts a connection. `None`: too many from this address.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Arc<Arrival>> {
        let address = one_client(address);
        let mut by_address = self.lock();
        let count = by_address.entry(address).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Arc::new(Arrival {
            of: Arc::clone(self),
            address,
            is_admitted: AtomicBool::new(false),
            owner: Mutex::default(),
        }))
    }

    fn leave(&self, address: IpAddr) {
        let mut by_address = self.lock();
        if let Some(count) = by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&address);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.by_address.lock()
    }
}

impl Arrival {
    /// Stops counting the connection: it has made an authorized call.
    pub fn admit(&self) {
        if !self.is_admitted.swap(true, Ordering::Relaxed) {
            self.of.leave(self.address);
        }
    }

    /// Binds the connection to the tenant and releases it from another. `is_exempt`: ignores the quota.
    pub fn bind(&self, engine: &Engine, tenant: &Tenant, is_exempt: bool) -> Result<(), EngineError> {
        let mut owner = self.owner.lock();
        if owner.as_ref().is_some_and(|(own, _)| own == tenant) {
            return Ok(());
        }
        let share = match is_exempt {
            true => engine.count_connection(tenant),
            false => engine.bind_connection(tenant)?,
        };
        *owner = Some((tenant.clone(), share));
        Ok(())
    }

    pub fn is_admitted(&self) -> bool {
        self.is_admitted.load(Ordering::Relaxed)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.admit();
    }
}

/// Counts a /64 network of IPv6 as one address: a client has the whole network.
fn one_client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_connections_until_they_are_known() {
        let arrivals = Arrivals::new(2);
        let [here, there] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let first = arrivals.enter(here).unwrap();
        let second = arrivals.enter("::ffff:10.0.0.1".parse().unwrap()).unwrap();
        assert!(arrivals.enter(here).is_none());
        assert!(arrivals.enter(there).is_some());
        first.admit();
        first.admit();
        let third = arrivals.enter(here).unwrap();
        assert!(arrivals.enter(here).is_none());
        drop((first, second));
        assert!(arrivals.enter(here).is_some());
        drop(third);
        assert!(arrivals.lock().is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let arrivals = Arrivals::new(1);
        let _first = arrivals.enter("2001:db8::1".parse().unwrap()).unwrap();
        assert!(arrivals.enter("2001:db8::2:3".parse().unwrap()).is_none());
        assert!(arrivals.enter("2001:db8:0:1::1".parse().unwrap()).is_some());
    }
}
