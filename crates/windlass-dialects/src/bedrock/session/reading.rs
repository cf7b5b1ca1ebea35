//! Input of a connection: time limits, memory limits, and admission of clients.

use super::{Link, READ_BYTES, Session};
use crate::auth::{Caller, Role};
use crate::bedrock::commands::{Command, caller};
use crate::bedrock::errors::StatusLine;
use crate::bedrock::wire::Request;
use crate::budget::{Busy, Share};
use crate::listener::Phase;
use crate::pace::time_for;
use std::io;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout};

/// Bytes of a request accepted from a client that has not sent a valid token, where tokens are required.
pub const UNKNOWN_BYTES_MAX: usize = 64 << 10;
/// Larger requests reserve memory from the budget.
const COUNTED_BYTES: usize = 64 << 10;
/// Interval of checks for other requests that wait for the memory of a large request.
const LOOK: Duration = Duration::from_secs(1);

impl<L: Link> Session<L> {
    /// Reads more bytes; `false`: the input has ended, or the connection is to be closed.
    pub(super) async fn read(&mut self) -> io::Result<bool> {
        let was_idle = self.parser.is_idle();
        if was_idle && self.share.is_large() {
            self.share = Share::default();
        }
        let since = Instant::now();
        let read = loop {
            let Some(left) = self.time_left_to_read(was_idle, since) else { return Ok(false) };
            let look = if self.share.is_large() { left.min(LOOK) } else { left };
            let room = self.parser.room(READ_BYTES);
            tokio::select! {
                read = timeout(look, self.link.read_buf(room)) => if let Ok(read) = read { break read },
                _ = self.phase.wait_for(|phase| *phase >= Phase::Draining) => return Ok(false),
            }
        };
        if read? == 0 {
            return Ok(false);
        }
        self.heard = Instant::now();
        if was_idle {
            self.begun = self.heard;
        }
        self.unread.accept();
        Ok(true)
    }

    /// Remaining time for the next bytes, with none received since `since`. `None`: the time is over.
    fn time_left_to_read(&self, is_idle: bool, since: Instant) -> Option<Duration> {
        let limits = &self.limits;
        let mut left = limits.idle.saturating_sub(since.elapsed());
        if !is_idle {
            let is_hurried = self.share.is_large() && self.shared.budget.is_wanted();
            let total = time_for(self.parser.pending(), is_hurried);
            let total = if is_hurried { total } else { total.max(limits.stall) };
            let stall = limits.stall.saturating_sub(since.elapsed());
            left = stall.min(total.saturating_sub(self.begun.elapsed()));
        }
        if !self.arrival.is_admitted() {
            left = left.min(limits.unknown.saturating_sub(self.waited_since.elapsed()));
        }
        (!left.is_zero()).then_some(left)
    }

    /// Reserves memory for a large request.
    pub(super) async fn cover(&mut self) -> Result<(), Busy> {
        let pending = self.parser.pending();
        if pending <= COUNTED_BYTES {
            return Ok(());
        }
        let since = Instant::now();
        let covered = self.shared.budget.cover(&mut self.share, pending.next_power_of_two()).await;
        // The wait for memory does not count as slowness of the client.
        self.begun += since.elapsed();
        covered
    }

    /// Admits a client after its first authorized request.
    pub(super) fn admit_if_authorized(&mut self, request: &Request) {
        if self.arrival.is_admitted() {
            return;
        }
        self.waited_since = Instant::now();
        let is_known = match self.shared.tokens.is_open() {
            true => Command::of(request).is_some(),
            // Bound at once, so that no authorized connection is outside the quota of its tenant.
            false => self.caller_of(request, Some(Role::Viewer)).is_ok(),
        };
        if is_known {
            self.arrival.admit();
            self.parser.set_head_bytes_max(self.limits.wire.head_bytes_max);
        }
    }

    /// Authenticates a request and binds the connection to its tenant.
    pub(super) fn caller_of(
        &mut self,
        request: &Request,
        needed: Option<Role>,
    ) -> Result<Caller, StatusLine> {
        let caller = caller(&self.shared, request, needed)?;
        // Without tokens there is only one tenant.
        let (engine, is_exempt) = (&self.shared.engine, self.shared.tokens.is_open());
        if needed.is_some()
            && let Err(error) = self.arrival.bind(engine, &caller.tenant, is_exempt)
        {
            self.is_refused = true;
            return Err(error.into());
        }
        Ok(caller)
    }

    /// Admits a client by the token in an incomplete request that exceeds the limit for unknown clients.
    pub(super) fn admit_by_partial_head(&mut self) -> bool {
        if self.arrival.is_admitted() {
            return false;
        }
        if let Some(begun) = self.parser.begun() {
            self.admit_if_authorized(&begun);
        }
        self.arrival.is_admitted()
    }
}
