//! Description of a failure: what is kept of it, within bounds.
//!
//! A failure is never refused because its description is long: texts are cut, with a mark that says how much
//! is missing.

mod group;

pub use group::{group_title, normal_form};

use crate::job::{AttemptError, Format, Payload};

/// Bytes of a class, which is a label.
pub const CLASS_BYTES_MAX: usize = 255;
/// Bytes of a backtrace: some hundred frames.
pub const BACKTRACE_BYTES_MAX: usize = 32 * 1024;
/// Bytes of the structured error of one attempt.
pub const ERROR_BYTES_MAX: usize = 32 * 1024;
/// Bytes of errors and backtraces of all attempts of a job together: they are written with every failure.
pub const DETAIL_BYTES_MAX: usize = 128 * 1024;

/// Room for the mark in a text that was cut.
const MARK_BYTES: usize = 64;

/// Class of a failure whose worker reported nothing until its lease expired.
pub const LEASE_EXPIRED: &str = "LeaseExpired";

/// Text within `max` bytes: a longer one keeps its beginning and its end.
pub fn cut_middle(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let half = max.saturating_sub(MARK_BYTES) / 2;
    let head = boundary_before(text, half);
    let tail = boundary_after(text, text.len() - half);
    format!("{}\n… {} bytes left out …\n{}", &text[..head], tail - head, &text[tail..])
}

/// Text within `max` bytes: a longer one keeps its beginning.
pub fn cut_end(text: &str, max: usize) -> &str {
    if text.len() <= max { text } else { &text[..boundary_before(text, max)] }
}

fn boundary_before(text: &str, mut place: usize) -> usize {
    while !text.is_char_boundary(place) {
        place -= 1;
    }
    place
}

fn boundary_after(text: &str, mut place: usize) -> usize {
    while !text.is_char_boundary(place) {
        place += 1;
    }
    place
}

/// Structured error as an attempt keeps it: too long a text is cut, too long a binary value is dropped (the
/// outcome of the job has it).
pub fn kept_error(error: &Payload) -> Option<Payload> {
    if error.bytes.len() <= ERROR_BYTES_MAX {
        return Some(error.clone());
    }
    match error.format {
        Format::Json | Format::Text => {
            let text = String::from_utf8_lossy(&error.bytes);
            Some(Payload::new(Format::Text, cut_middle(&text, ERROR_BYTES_MAX).as_bytes()))
        }
        Format::Msgpack | Format::Binary => None,
    }
}

/// Drops errors and backtraces of the oldest attempts that exceed the bound of a job. Their classes and
/// messages stay.
pub(crate) fn drop_old_details(attempts: &mut [AttemptError]) {
    let mut bytes = 0;
    for attempt in attempts.iter_mut().rev() {
        bytes += detail_bytes(attempt);
        if bytes > DETAIL_BYTES_MAX {
            attempt.error = None;
            attempt.backtrace = None;
        }
    }
}

fn detail_bytes(attempt: &AttemptError) -> usize {
    let error = attempt.error.as_ref().map_or(0, |error| error.bytes.len());
    error + attempt.backtrace.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        assert_eq!(cut_middle("short", 5), "short");
        let cut = cut_middle(&format!("first{}last", "x".repeat(1_000)), 200);
        assert!(cut.starts_with("firstx") && cut.ends_with("xlast"), "{cut}");
        assert!(cut.contains("\n… 873 bytes left out …\n"), "{cut}");
        assert!(cut.len() <= 200);
    }

    #[test]
    fn letters_are_not_cut_apart() {
        for max in 100..120 {
            let cut = cut_middle(&"äß€𝄞".repeat(100), max);
            assert!(cut.len() <= max && cut.contains("bytes left out"), "{max}: {cut}");
        }
        assert_eq!(cut_end("aäb", 2), "a");
        assert_eq!(cut_end("aäb", 3), "aä");
        assert_eq!(cut_end("aäb", 9), "aäb");
    }

    #[test]
    fn an_attempt_keeps_its_error_within_bounds() {
        let small = Payload::json(r#"{"a":1}"#);
        assert_eq!(kept_error(&small), Some(small));
        let long = Payload::json(&format!("[{}]", "1,".repeat(ERROR_BYTES_MAX)));
        let kept = kept_error(&long).unwrap();
        assert_eq!(kept.format, Format::Text);
        assert!(kept.bytes.len() <= ERROR_BYTES_MAX && kept.bytes.starts_with(b"[1,1,"));
        assert_eq!(kept_error(&Payload::new(Format::Binary, vec![0; ERROR_BYTES_MAX + 1])), None);
    }

    #[test]
    fn the_oldest_attempts_lose_their_details_first() {
        let attempt = |attempt| AttemptError {
            attempt,
            message: "m".to_owned(),
            class: Some("C".to_owned()),
            backtrace: Some("b".repeat(BACKTRACE_BYTES_MAX)),
            ..AttemptError::default()
        };
        let mut attempts: Vec<AttemptError> = (1..=6).map(attempt).collect();
        drop_old_details(&mut attempts);
        let with_details: Vec<u32> =
            attempts.iter().filter(|one| one.backtrace.is_some()).map(|one| one.attempt).collect();
        assert_eq!(with_details, [3, 4, 5, 6]);
        assert!(attempts.iter().all(|one| one.class.is_some() && one.message == "m"));
    }
}
