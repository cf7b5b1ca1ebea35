//! Repeat rules in all their syntaxes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_core::Timestamp;
use windlass_core::repeat::{Moments, Repeat};

fuzz_target!(|input: &[u8]| {
    let Some((moment, text)) = input.split_first_chunk::<8>() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(rule) = Repeat::parse(text) else { return };
    assert_eq!(rule.text(), text, "a rule is kept as it was entered");
    let at = Timestamp::from_millis(i64::from_le_bytes(*moment));
    let moments = Moments { scheduled: at, started: None, finished: at };
    assert_eq!(rule.next(&moments), rule.next(&moments), "the same rule at the same time says the same");
    assert!(rule.first(at) >= at, "a job is never due before it is made");
    assert!(rule.upcoming(&moments, 3).len() <= 3);
});
