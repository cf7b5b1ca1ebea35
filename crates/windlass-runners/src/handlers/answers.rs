//! Memory budget for the HTTP responses of URL handlers, shared by all clients.
//!
//! Each response takes units of the budget as its buffer grows and returns them when it is dropped. One client
//! may hold a share of the units, so that others find some. When the share or the budget is exhausted, one
//! response at a time may grow beyond it, up to its own size limit; the others wait, which stops reading from
//! their sockets. Clients take turns: only one response of each client waits to be the next. One response can
//! therefore always proceed, and memory use is bounded by the budget plus one response.

use super::output::is_marked;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Unit of the budget: one semaphore permit.
const UNIT_BYTES: usize = 4 << 10;
/// First allocation of a response.
const FIRST_BYTES: usize = 16 << 10;

/// Clients whose shares are kept while they hold nothing.
const CLIENTS_MAX: usize = 1_000;

pub(super) struct Budget {
    units: Arc<Semaphore>,
    units_per_client: usize,
    beyond: Arc<Semaphore>,
    clients: Mutex<HashMap<String, Arc<ClientBudget>>>,
}

/// Budget as one client sees it.
pub(super) struct ClientBudget {
    units: Arc<Semaphore>,
    beyond: Arc<Semaphore>,
    own_units: Arc<Semaphore>,
    /// Turn of the client's responses to wait for `beyond`.
    turn: Arc<Semaphore>,
}

impl Budget {
    pub(super) fn new(bytes_max: usize, bytes_per_client: usize) -> Budget {
        let units = |bytes: usize| (bytes / UNIT_BYTES).min(Semaphore::MAX_PERMITS);
        Budget {
            units: Arc::new(Semaphore::new(units(bytes_max))),
            units_per_client: units(bytes_per_client),
            beyond: Arc::new(Semaphore::new(1)),
            clients: Mutex::default(),
        }
    }

    pub(super) fn of(&self, client: &str) -> Arc<ClientBudget> {
        let mut clients = self.clients.lock();
        if clients.len() >= CLIENTS_MAX {
            // A client with responses is referred to by them.
            clients.retain(|_, client| Arc::strong_count(client) > 1);
        }
        let new = || {
            Arc::new(ClientBudget {
                units: Arc::clone(&self.units),
                beyond: Arc::clone(&self.beyond),
                own_units: Arc::new(Semaphore::new(self.units_per_client)),
                turn: Arc::new(Semaphore::new(1)),
            })
        };
        Arc::clone(clients.entry(client.to_owned()).or_insert_with(new))
    }

    #[cfg(test)]
    fn free_bytes(&self) -> usize {
        self.units.available_permits() * UNIT_BYTES
    }
}

/// Permits of the client and of the whole budget.
type Permits = [OwnedSemaphorePermit; 2];

impl ClientBudget {
    fn try_take(&self, units: u32) -> Option<Permits> {
        let own = self.own_units.clone().try_acquire_many_owned(units).ok()?;
        Some([own, self.units.clone().try_acquire_many_owned(units).ok()?])
    }

    async fn take(&self, units: u32) -> Result<Permits, AcquireError> {
        let own = self.own_units.clone().acquire_many_owned(units).await?;
        Ok([own, self.units.clone().acquire_many_owned(units).await?])
    }

    async fn take_beyond(&self) -> Result<Permits, AcquireError> {
        let turn = self.turn.clone().acquire_owned().await?;
        Ok([turn, self.beyond.clone().acquire_owned().await?])
    }
}

/// Response over its size limit, with the message for the user.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge(pub String);

/// Size limits of a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerLimits {
    pub bytes_max: usize,
    /// Limit on the result alone, not counting lines that push new jobs; `None` if every line is a status.
    pub result_bytes_max: Option<usize>,
}

/// Response being received.
pub(super) struct Growing {
    budget: Arc<ClientBudget>,
    limits: AnswerLimits,
    held: Held,
    /// Start of the last, unfinished line; end of the scanned bytes; result bytes in the lines before.
    line: usize,
    looked_at: usize,
    result_bytes: usize,
}

#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    units: Vec<Permits>,
    beyond: Option<Permits>,
    /// Keeps the client's share from being dropped, and so replaced by a fresh one, while the response is held.
    _budget: Option<Arc<ClientBudget>>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Growing {
    /// `expected`: lower bound of the length announced by the server.
    pub(super) fn new(
        budget: Arc<ClientBudget>,
        limits: AnswerLimits,
        expected: u64,
    ) -> Result<Growing, TooLarge> {
        if usize::try_from(expected).unwrap_or(usize::MAX) > limits.bytes_max {
            return Err(limits.too_large());
        }
        let held = Held { _budget: Some(Arc::clone(&budget)), ..Held::default() };
        Ok(Growing { budget, limits, held, line: 0, looked_at: 0, result_bytes: 0 })
    }

    /// Appends a piece. Waits while the budget is exhausted and adds the waiting time to `deadline`.
    pub(super) async fn add(&mut self, piece: &[u8], deadline: &mut Instant) -> Result<(), TooLarge> {
        let length = self.held.bytes.len() + piece.len();
        if length > self.limits.bytes_max {
            return Err(self.limits.too_large());
        }
        let capacity = self.held.bytes.capacity();
        if length > capacity {
            let wanted = length.max(capacity + capacity / 2).max(FIRST_BYTES).min(self.limits.bytes_max);
            self.take(wanted - capacity, deadline).await;
            self.held.bytes.reserve_exact(wanted - self.held.bytes.len());
        }
        self.held.bytes.extend_from_slice(piece);
        self.check_result()
    }

    async fn take(&mut self, bytes: usize, deadline: &mut Instant) {
        if self.held.beyond.is_some() {
            return;
        }
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        if let Some(taken) = self.budget.try_take(units) {
            self.held.units.push(taken);
            return;
        }
        let began = Instant::now();
        tokio::select! {
            biased;
            Ok(taken) = self.budget.take(units) => self.held.units.push(taken),
            Ok(one) = self.budget.take_beyond() => self.held.beyond = Some(one),
            else => {}
        }
        *deadline += began.elapsed();
    }

    /// Refuses a result that exceeds its limit before the response is complete.
    fn check_result(&mut self) -> Result<(), TooLarge> {
        let Some(most) = self.limits.result_bytes_max else { return Ok(()) };
        let bytes = &self.held.bytes;
        while let Some(length) = bytes[self.looked_at..].iter().position(|byte| *byte == b'\n') {
            let end = self.looked_at + length + 1;
            if !is_marked(&bytes[self.line..end]) {
                self.result_bytes += end - self.line;
            }
            (self.line, self.looked_at) = (end, end);
        }
        self.looked_at = bytes.len();
        let open = &bytes[self.line..];
        let of_open = if is_marked(open) { 0 } else { open.len() };
        if self.result_bytes + of_open > most {
            return Err(TooLarge(format!("a result of more than {most} bytes")));
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Bytes {
        Bytes::from_owner(self.held)
    }
}

impl AnswerLimits {
    fn too_large(self) -> TooLarge {
        TooLarge(format!("a response of more than {} bytes", self.bytes_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::Poll;
    use std::time::Duration;

    const MIB: usize = 1 << 20;
    const LIMITS: AnswerLimits = AnswerLimits { bytes_max: 8 * MIB, result_bytes_max: Some(2 * MIB) };

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(3_600)
    }

    async fn add(growing: &mut Growing, text: &str) -> Result<(), TooLarge> {
        growing.add(text.as_bytes(), &mut far()).await
    }

    #[tokio::test]
    async fn what_is_held_is_taken_from_the_budget_until_it_is_dropped() {
        let budget = Budget::new(4 * MIB, 4 * MIB);
        let mut growing = Growing::new(budget.of("a"), LIMITS, 0).ok().unwrap();
        for _ in 0..10 {
            add(&mut growing, &"x".repeat(100_000)).await.unwrap();
        }
        assert!(budget.free_bytes() <= 4 * MIB - 1_000_000, "{}", budget.free_bytes());
        let answer = growing.finish();
        assert_eq!(answer.len(), 1_000_000);
        let slice = answer.slice(5..6);
        drop(answer);
        assert!(budget.free_bytes() <= 4 * MIB - 1_000_000, "a part of it is still there");
        drop(slice);
        assert_eq!(budget.free_bytes(), 4 * MIB);
    }

    #[tokio::test]
    async fn beyond_the_budget_one_goes_on_and_the_others_wait_without_losing_time() {
        let budget = Budget::new(MIB, MIB);
        let mut first = Growing::new(budget.of("a"), LIMITS, 0).ok().unwrap();
        add(&mut first, &"x".repeat(MIB)).await.unwrap();
        add(&mut first, &"x".repeat(MIB - 1)).await.unwrap();
        let mut second = Growing::new(budget.of("a"), LIMITS, 0).ok().unwrap();
        let (mut deadline, before) = (far(), Instant::now());
        {
            let mut waiting = std::pin::pin!(second.add(b"x", &mut deadline));
            let soon = tokio::time::timeout(Duration::from_millis(50), &mut waiting).await;
            assert!(soon.is_err(), "it waits for the first");
            drop(first);
            waiting.await.unwrap();
        }
        assert!(deadline >= before + Duration::from_millis(3_600_050));
        drop(second);
        assert_eq!(budget.free_bytes(), MIB);
    }

    async fn is_pending<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
        std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx).is_pending())).await
    }

    /// Whether a piece is added without waiting for others.
    async fn at_once(growing: &mut Growing, text: &str) -> bool {
        let mut deadline = far();
        !is_pending(&mut std::pin::pin!(growing.add(text.as_bytes(), &mut deadline))).await
    }

    #[tokio::test]
    async fn a_client_with_large_answers_leaves_room_for_those_of_others() {
        let budget = Budget::new(8 * MIB, 7 * MIB);
        let growing = |client: &str| Growing::new(budget.of(client), LIMITS, 0).ok().unwrap();
        let large = "x".repeat(MIB);
        // Seven fill the share of the client, the eighth goes on beyond it, and more wait.
        let mut held = Vec::new();
        for _ in 0..8 {
            let mut one = growing("big");
            assert!(at_once(&mut one, &large).await);
            held.push(one);
        }
        let mut waiting = [growing("big"), growing("big")];
        for one in &mut waiting {
            assert!(!at_once(one, &large).await, "the client has its share");
        }
        assert_eq!(budget.free_bytes(), MIB);
        let mut small = growing("small");
        assert!(at_once(&mut small, &large).await, "another client's answer is read");
        // All units are taken. The next response beyond the budget is the other client's, although it came last.
        let mut deadlines = [far(), far()];
        let [first, second] = &mut deadlines;
        let mut other = growing("small");
        {
            let mut own = std::pin::pin!(waiting[0].add(b"x", first));
            let mut others = Box::pin(other.add(b"x", second));
            assert!(is_pending(&mut own).await && is_pending(&mut others).await);
            held.pop();
            assert!(is_pending(&mut own).await);
            others.await.unwrap();
            assert!(is_pending(&mut own).await);
            drop(other);
            own.await.unwrap();
        }
        drop((held, waiting, small));
        assert_eq!(budget.free_bytes(), 8 * MIB);
    }

    #[tokio::test]
    async fn an_answer_is_read_no_further_than_it_can_count() {
        let budget = Budget::new(100 * MIB, 100 * MIB);
        let read = async |pieces: &[String]| {
            let mut growing = Growing::new(budget.of("a"), LIMITS, 0).ok().unwrap();
            for piece in pieces {
                add(&mut growing, piece).await?;
            }
            Ok::<usize, TooLarge>(growing.finish().len())
        };
        assert_eq!(read(&["x".repeat(2 * MIB)]).await, Ok(2 * MIB));
        assert!(read(&["x".repeat(2 * MIB), "x".to_owned()]).await.unwrap_err().0.contains("result"));
        // Lines that push new jobs do not count towards the result, even if they arrive in pieces.
        let job = format!("J: t|{}\n", "y".repeat(3 * MIB));
        let pieces =
            [format!("{}\n", "x".repeat(MIB)), job[..2].to_owned(), job[2..].to_owned(), "z".to_owned()];
        assert_eq!(read(&pieces).await, Ok(4 * MIB + 1 + 6 + 1));
        let many: Vec<String> = (0..9).map(|_| format!("J: t|{}\n", "y".repeat(MIB))).collect();
        assert!(read(&many).await.unwrap_err().0.contains("response"));
        assert!(Growing::new(budget.of("a"), LIMITS, 9_000_000).is_err(), "it says so itself");
    }
}
