//! Number of jobs sent to a context at once. Jobs that were sent can be returned only by the context.

/// Size of the first portion. A slow job makes the context return all others of the portion.
pub(super) const FIRST: usize = 40;
/// Largest portion; bounded by the socket buffer and the memory of the context.
const MOST: usize = 1_000;

/// Size of the next portion: the number of jobs started in time, or double if all were started.
pub(super) fn next_size(sent: usize, began: usize) -> usize {
    let size = if began < sent { began } else { sent.saturating_mul(2) };
    size.clamp(1, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_jobs_are_sent_as_are_begun_in_their_time() {
        let check = |sent, began, expected| assert_eq!(next_size(sent, began), expected, "{began} of {sent}");
        check(40, 40, 80);
        check(40, 7, 7);
        check(40, 1, 1);
        check(1, 1, 2);
        check(2, 1, 1);
        check(1, 0, 1);
        check(900, 900, MOST);
    }
}
