//! How many jobs of a batch are sent to its context at once. Those that were sent can be given back only by the context.

/// Jobs that are sent to a context at first. One that is slow gives all but the first back once.
pub const FIRST: usize = 40;
/// A part for which the socket to the context and its memory are large enough.
const MOST: usize = 1_000;

/// How many jobs to send next: as many as were begun in their time, or twice as many if that was all of them.
pub fn next_size(sent: usize, began: usize) -> usize {
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
