//! Metrics of HTTP requests by route, method and class of the status. Routes are templates, so their number is fixed.

use crate::query::Histogram;
use ::http::StatusCode;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Classes of a status, by its first digit.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Requests of one route with one method.
#[derive(Debug)]
pub struct RouteMeter {
    pub route: &'static str,
    pub method: &'static str,
    classes: [AtomicU64; CLASSES.len()],
    /// Time until the response began, waiting claims included.
    pub time_us: Histogram,
}

impl RouteMeter {
    pub(super) fn record(&self, status: StatusCode, time: Duration) {
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1;
        self.classes[class].fetch_add(1, Ordering::Relaxed);
        self.time_us.record_time(time);
    }

    /// Number of requests by class.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = |(class, count): (&&'static str, &AtomicU64)| (*class, count.load(Ordering::Relaxed));
        CLASSES.iter().zip(&self.classes).map(count)
    }
}

/// All routes of a server. The lock is taken when routes are made and when they are listed, not by a request.
#[derive(Debug, Default)]
pub struct HttpMeters(Mutex<Vec<Arc<RouteMeter>>>);

impl HttpMeters {
    /// Meter of a route; ports with the same route share it.
    pub(super) fn of(&self, route: &'static str, method: &'static str) -> Arc<RouteMeter> {
        let mut all = self.0.lock();
        if let Some(known) = all.iter().find(|meter| (meter.route, meter.method) == (route, method)) {
            return Arc::clone(known);
        }
        let classes = Default::default();
        let meter = Arc::new(RouteMeter { route, method, classes, time_us: Histogram::of_coarse_times() });
        all.push(Arc::clone(&meter));
        meter
    }

    pub fn all(&self) -> Vec<Arc<RouteMeter>> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_and_class() {
        let meters = HttpMeters::default();
        for status in [200, 204, 404, 599, 999] {
            let status = StatusCode::from_u16(status).unwrap();
            meters.of("/a/{id}", "GET").record(status, Duration::from_millis(1));
        }
        meters.of("/a/{id}", "PUT");
        let all = meters.all();
        let counts: Vec<u64> = all[0].counts().map(|(_, count)| count).collect();
        assert_eq!((all.len(), counts), (2, vec![0, 2, 0, 1, 2]));
    }
}
