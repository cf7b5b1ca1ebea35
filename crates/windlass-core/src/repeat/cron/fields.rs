//! Parser of one cron field into the set of numbers it allows.

use super::{BadCron, excerpt};

/// Definition of a field: range, names and extensions.
pub(super) struct Kind {
    name: &'static str,
    min: u32,
    max: u32,
    /// Names of the numbers, starting at `min`.
    names: &'static [&'static str],
    names_hint: &'static str,
    example: &'static str,
    also: Also,
}

/// Syntax of a field beyond its numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Also {
    Nothing,
    /// `L`, the last day of the month.
    LastDay,
    /// Sunday is also 7, so that a range can end on it.
    SundayAsSeven,
}

const fn numbers(name: &'static str, min: u32, max: u32, example: &'static str) -> Kind {
    Kind { name, min, max, names: &[], names_hint: "", example, also: Also::Nothing }
}

pub(super) const SECOND: Kind = numbers("second", 0, 59, "*/10");
pub(super) const MINUTE: Kind = numbers("minute", 0, 59, "*/5");
pub(super) const HOUR: Kind = numbers("hour", 0, 23, "9-17");
pub(super) const DAY: Kind = Kind {
    names_hint: " or L for the last",
    also: Also::LastDay,
    ..numbers("day of the month", 1, 31, "1,15")
};
pub(super) const MONTH: Kind = Kind {
    names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    names_hint: " or JAN to DEC",
    ..numbers("month", 1, 12, "JAN-JUN")
};
pub(super) const WEEKDAY: Kind = Kind {
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    names_hint: " or SUN to SAT",
    also: Also::SundayAsSeven,
    ..numbers("day of the week", 0, 7, "MON-FRI")
};

/// Numbers that a field allows, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    bits: u64,
    /// The field begins with `*`; for day fields that means "not restricted", even in `*/2`.
    pub star: bool,
    /// `L` is present.
    pub last: bool,
}

impl Field {
    pub(super) fn parse(kind: &Kind, text: &str) -> Result<Field, BadCron> {
        let mut field = Field { bits: 0, star: text.starts_with('*'), last: false };
        for item in text.split(',') {
            if kind.also == Also::LastDay && item.eq_ignore_ascii_case("L") {
                field.last = true;
            } else {
                field.bits |= kind.bits_of(item)?;
            }
        }
        if kind.also == Also::SundayAsSeven {
            field.bits = (field.bits | field.bits >> 7) & 0x7f;
        }
        Ok(field)
    }

    pub(super) fn has(&self, number: i8) -> bool {
        self.bits >> number & 1 == 1
    }

    /// Smallest allowed number at or above `number`.
    pub(super) fn first_from(&self, number: i8) -> Option<i8> {
        debug_assert!((0..=60).contains(&number));
        let rest = self.bits >> number;
        (rest != 0).then(|| number + rest.trailing_zeros() as i8)
    }

    /// True if every number of its kind is allowed.
    pub(super) fn is_full(&self, kind: &Kind) -> bool {
        self.bits.count_ones() == kind.max - kind.min + 1
    }
}

impl Kind {
    fn bits_of(&self, item: &str) -> Result<u64, BadCron> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (item, None),
        };
        let (low, high) = match range.split_once('-') {
            _ if range == "*" => (self.min, self.open_end()),
            Some((low, high)) => self.range(range, low, high)?,
            // `5/15` means from 5 on; without a step it is a single number.
            None if step.is_some() => (self.number(range)?, self.open_end()),
            None => (self.number(range)?, self.number(range)?),
        };
        Ok((low..=high).step_by(step.unwrap_or(1)).fold(0, |bits, number| bits | 1 << number))
    }

    /// End of a range without an upper bound. 6 for weekdays, because Sunday is already 0.
    fn open_end(&self) -> u32 {
        if self.also == Also::SundayAsSeven { 6 } else { self.max }
    }

    fn range(&self, text: &str, low: &str, high: &str) -> Result<(u32, u32), BadCron> {
        let (low, high) = (self.number(low)?, self.number(high)?);
        match (low, high) {
            // `SAT-SUN`: a weekday range may end on Sunday.
            (low, 0) if self.also == Also::SundayAsSeven && low > 0 => Ok((low, 7)),
            (low, high) if low <= high => Ok((low, high)),
            _ => Err(BadCron::Backwards { field: self.name, text: excerpt(text) }),
        }
    }

    fn step(&self, text: &str) -> Result<usize, BadCron> {
        match digits(text) {
            Some(step) if (1..=self.max).contains(&step) => Ok(step as usize),
            _ => Err(BadCron::Step { field: self.name, text: excerpt(text), max: self.max }),
        }
    }

    fn number(&self, text: &str) -> Result<u32, BadCron> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let number = match named {
            Some(position) => Some(position as u32 + self.min),
            None => digits(text),
        };
        number.filter(|number| (self.min..=self.max).contains(number)).ok_or_else(|| BadCron::Value {
            field: self.name,
            text: excerpt(text),
            min: self.min,
            max: self.max,
            names: self.names_hint,
            example: self.example,
        })
    }
}

/// Parses digits only; `str::parse` alone would also accept `+5`.
fn digits(text: &str) -> Option<u32> {
    let only_digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if only_digits { text.parse().ok() } else { None }
}
