//! Ids that sort by creation time: `Q7TzzMq-vm-aHav-000`, that is the milliseconds since the epoch in seven
//! digits of radix 64, the server's *sysid*, and a sequence number within the millisecond.

use super::radix64;
use parking_lot::Mutex;

const TIME_DIGITS: usize = 7;
const SEQUENCE_DIGITS: usize = 3;
/// Ids per millisecond; further ids take the next millisecond.
const SEQUENCE_MAX: u32 = 1 << (6 * SEQUENCE_DIGITS);

/// Generator of the ids of one server. Each id is greater than all earlier ones, even if the clock is set
/// back.
#[derive(Debug, Default)]
pub struct IdMaker {
    last: Mutex<(i64, u32)>,
}

impl IdMaker {
    pub fn new() -> IdMaker {
        IdMaker { last: Mutex::new((0, SEQUENCE_MAX - 1)) }
    }

    /// Makes `count` ids, in ascending order.
    pub fn make(&self, sysid: &str, now_ms: i64, count: usize) -> Vec<String> {
        let mut last = self.last.lock();
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            let (ms, sequence) = &mut *last;
            if now_ms > *ms {
                (*ms, *sequence) = (now_ms, 0);
            } else if *sequence + 1 < SEQUENCE_MAX {
                *sequence += 1;
            } else {
                (*ms, *sequence) = (*ms + 1, 0);
            }
            let mut id = String::with_capacity(TIME_DIGITS + SEQUENCE_DIGITS + sysid.len() + 2);
            radix64::push(&mut id, ms.unsigned_abs(), TIME_DIGITS);
            id.push('-');
            id.push_str(sysid);
            id.push('-');
            radix64::push(&mut id, u64::from(*sequence), SEQUENCE_DIGITS);
            ids.push(id);
        }
        ids
    }
}

/// Creation time of an id, in ms since the epoch. `None`: the id has another format.
pub fn made_at_ms(id: &str) -> Option<i64> {
    let (time, rest) = id.split_once('-')?;
    if time.len() != TIME_DIGITS || rest.is_empty() {
        return None;
    }
    radix64::decode(time).and_then(|ms| i64::try_from(ms).ok())
}

/// Proposes a sysid, to be reserved by the caller: first and last letter of the host name, and 24 random
/// bits.
pub fn new_sysid(host: &str, chance: u64) -> String {
    let short = host.split('.').next().unwrap_or_default();
    let letters: Vec<char> = short.chars().filter(char::is_ascii_alphanumeric).collect();
    let ends = [letters.first(), letters.last()];
    let mut sysid: String = ends.into_iter().flatten().collect();
    if sysid.is_empty() {
        sysid.push_str("vm");
    }
    sysid.push('-');
    radix64::push(&mut sysid, chance, 4);
    sysid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_when_it_was_made() {
        let ids = IdMaker::new().make("vm-aHav", 1_763_200_000_123, 2);
        assert_eq!(made_at_ms(&ids[0]), Some(1_763_200_000_123));
        assert!(ids[0].ends_with("-vm-aHav-000") && ids[1].ends_with("-vm-aHav-001"), "{ids:?}");
        assert_eq!(ids[0].len(), 7 + 1 + 7 + 1 + 3);
        for other in ["", "abc", "12345-x", "Q7TzzMq-", "Q7TzzMq"] {
            assert_eq!(made_at_ms(other), None, "{other}");
        }
    }

    #[test]
    fn later_ids_sort_after_earlier_ones_whatever_the_clock_does() {
        let maker = IdMaker::new();
        let mut ids = Vec::new();
        for now in [1_000, 1_000, 999, 1_001, 5, 1_002] {
            ids.extend(maker.make("vm-0000", now, 3));
        }
        ids.extend(maker.make("vm-0000", 1_002, SEQUENCE_MAX as usize + 5));
        ids.extend(maker.make("vm-0000", 1_003, 2));
        assert!(ids.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn a_sysid_is_made_of_the_hosts_name_and_chance() {
        assert_eq!(new_sysid("vm", 0), "vm-0000");
        assert_eq!(new_sysid("builder.example.org", 63), "br-000~");
        assert_eq!(new_sysid("", 1), "vm-0001");
    }
}
