//! UUIDs: ids of jobs and runners.

use std::fmt;

/// Displayed in lower case with hyphens, in whatever form it was parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uuid(u128);

/// Version 8 (custom) with a job's number, for jobs of other dialects that have no UUID.
const NUMBERED: u128 = 0x0000_0000_0000_8000_8000_0000_0000_0000;
const NUMBER_MASK: u128 = 0xffff_ffff_ffff;

impl Uuid {
    /// Version 7: sorts by time and is hard to guess.
    pub(crate) fn new(now_ms: i64, rolls: [u64; 2]) -> Uuid {
        let time = u128::from(now_ms.unsigned_abs()) & NUMBER_MASK;
        let (a, b) = (u128::from(rolls[0] & 0xfff), u128::from(rolls[1] & 0x3fff_ffff_ffff_ffff));
        Uuid((time << 80) | (7 << 76) | (a << 64) | (2 << 62) | b)
    }

    pub(crate) fn of_number(number: u64) -> Uuid {
        Uuid(NUMBERED | (u128::from(number) & NUMBER_MASK))
    }

    /// Job number, if the UUID was made from one.
    pub(crate) fn number(self) -> Option<u64> {
        (self.0 & !NUMBER_MASK == NUMBERED).then_some((self.0 & NUMBER_MASK) as u64)
    }

    /// Parses either case; with or without hyphens, in braces or as a URN.
    pub(crate) fn parse(text: &str) -> Option<Uuid> {
        let text = text.strip_prefix("urn:uuid:").unwrap_or(text);
        let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
        let hyphens = [8, 13, 18, 23];
        let digits: String = match text.len() {
            32 => text.to_owned(),
            36 => {
                let is_shaped = text.char_indices().all(|(at, c)| hyphens.contains(&at) == (c == '-'));
                is_shaped.then(|| text.replace('-', ""))?
            }
            _ => return None,
        };
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_hex.then(|| u128::from_str_radix(&digits, 16).ok().map(Uuid))?
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let x = self.0;
        let part = |shift: u32, mask: u128| (x >> shift) & mask;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            part(96, 0xffff_ffff),
            part(80, 0xffff),
            part(64, 0xffff),
            part(48, 0xffff),
            x & NUMBER_MASK
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_read_in_every_common_form() {
        let shown = "019300fe-85c0-7abc-9def-0123456789ab";
        let forms = [
            shown.to_owned(),
            shown.to_uppercase(),
            shown.replace('-', ""),
            format!("{{{shown}}}"),
            format!("urn:uuid:{shown}"),
        ];
        for form in forms {
            assert_eq!(Uuid::parse(&form).map(|id| id.to_string()).as_deref(), Some(shown), "{form}");
        }
    }

    #[test]
    fn what_is_no_uuid_is_refused() {
        let hyphens = "019300fe8-5c0-7abc-9def-0123456789ab";
        let letters = "019300fe-85c0-7abc-9def-0123456789ag";
        let signed = "+19300fe85c07abc9def0123456789ab0";
        let wide = "é".repeat(18);
        for text in ["", "1", "create", hyphens, letters, signed, &letters[1..], wide.as_str()] {
            assert_eq!(Uuid::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_new_one_says_its_version_and_sorts_by_time() {
        let early = Uuid::new(1_000, [u64::MAX, u64::MAX]).to_string();
        let late = Uuid::new(1_001, [0, 0]).to_string();
        assert_eq!(early, "00000000-03e8-7fff-bfff-ffffffffffff");
        assert_eq!(late, "00000000-03e9-7000-8000-000000000000");
        assert!(early < late);
        assert_ne!(Uuid::new(1, [1, 1]), Uuid::new(1, [1, 2]));
    }

    #[test]
    fn a_number_is_found_again_in_its_uuid() {
        let id = Uuid::of_number(17);
        assert_eq!(id.to_string(), "00000000-0000-8000-8000-000000000011");
        assert_eq!((id.number(), Uuid::parse(&id.to_string())), (Some(17), Some(id)));
        assert_eq!(Uuid::new(0, [0, 17]).number(), None);
    }
}
