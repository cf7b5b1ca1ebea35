//! `poll_oneoff`: sleeping, and readiness of the three streams, which are always ready.

use super::memory::{Memory, entries, put, take};
use super::{BADF, Errno, Fail, Guest, INVAL, STDIN, Stop};
use std::time::{Duration, Instant};

/// Most subscriptions per call; three files and a few timers need no more.
const SUBSCRIPTIONS_MAX: u32 = 256;
const SUBSCRIPTION_BYTES: u32 = 48;
const EVENT_BYTES: i32 = 32;
const CLOCK: u8 = 0;
const FD_READ: u8 = 1;
const FD_WRITE: u8 = 2;
const FLAG_ABSOLUTE: u8 = 1;

struct Subscription {
    userdata: [u8; 8],
    tag: u8,
    wants: Wants,
}

enum Wants {
    At(Instant),
    /// Ready, with this number of bytes, or an error.
    Stream(Result<u64, Errno>),
}

pub(super) fn poll(
    memory: &mut Memory,
    guest: &mut Guest,
    subscriptions: i32,
    events: i32,
    count: i32,
    out: i32,
) -> Result<(), Fail> {
    let count = count as u32;
    if count == 0 || count > SUBSCRIPTIONS_MAX {
        return Err(INVAL.into());
    }
    let mut asked = Vec::new();
    for at in entries(subscriptions, count, SUBSCRIPTION_BYTES)? {
        asked.push(understand(&take::<48>(memory, at)?, guest)?);
    }
    let wake =
        asked.iter().filter_map(|one| if let Wants::At(at) = one.wants { Some(at) } else { None }).min();
    let stream_is_ready = asked.iter().any(|one| matches!(one.wants, Wants::Stream(_)));
    if let (Some(wake), false) = (wake, stream_is_ready) {
        sleep_until(wake, guest.deadline).map_err(Fail::Stop)?;
    }
    let now = Instant::now();
    let mut told = 0_i32;
    for one in &asked {
        let (errno, bytes) = match one.wants {
            Wants::At(at) if at > now => continue,
            Wants::At(_) => (0, 0),
            Wants::Stream(Ok(bytes)) => (0, bytes),
            Wants::Stream(Err(errno)) => (errno.0, 0),
        };
        let mut event = [0_u8; EVENT_BYTES as usize];
        event[..8].copy_from_slice(&one.userdata);
        event[8..10].copy_from_slice(&(errno as u16).to_le_bytes());
        event[10] = one.tag;
        event[16..24].copy_from_slice(&bytes.to_le_bytes());
        put(memory, events.wrapping_add(told * EVENT_BYTES), &event)?;
        told += 1;
    }
    Ok(put(memory, out, &told.to_le_bytes())?)
}

fn understand(bytes: &[u8; 48], guest: &Guest) -> Result<Subscription, Errno> {
    let word = |at: usize| i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let mut long = [0; 8];
    long.copy_from_slice(&bytes[24..32]);
    let tag = bytes[8];
    let wants = match tag {
        CLOCK => {
            let timeout_ns = u64::from_le_bytes(long);
            let now_ns = guest.clock_ns(word(16))?;
            let absolute = bytes[40] & FLAG_ABSOLUTE != 0;
            let wait_ns = if absolute { timeout_ns.saturating_sub(now_ns) } else { timeout_ns };
            let now = Instant::now();
            // A time beyond the range of the clock is after the deadline in any case.
            Wants::At(now.checked_add(Duration::from_nanos(wait_ns)).unwrap_or(guest.deadline))
        }
        FD_READ => Wants::Stream(match guest.file(word(16)) {
            Ok(STDIN) => Ok((guest.input.len() - guest.read) as u64),
            _ => Err(BADF),
        }),
        FD_WRITE => Wants::Stream(match guest.file(word(16)) {
            Ok(STDIN) | Err(_) => Err(BADF),
            Ok(_) => Ok(guest.output_bytes_max),
        }),
        _ => return Err(INVAL),
    };
    let mut userdata = [0; 8];
    userdata.copy_from_slice(&bytes[..8]);
    Ok(Subscription { userdata, tag, wants })
}

/// Sleeps until `wake`, at most until the deadline: epoch interruption does not end a sleep in the host.
fn sleep_until(wake: Instant, deadline: Instant) -> Result<(), Stop> {
    let wait = wake.min(deadline).saturating_duration_since(Instant::now());
    std::thread::sleep(wait);
    if wake > deadline { Err(Stop::Time) } else { Ok(()) }
}
