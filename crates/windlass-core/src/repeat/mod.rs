//! When a job that repeats runs again.
//!
//! Three ways to write it, told apart by their shape:
//!
//! | written | read by | counts from |
//! |---|---|---|
//! | `FINISHED, +1 DAY, START OF DAY, +4 HOURS`, `HOURLY` | [`bedrock`] | the base it names |
//! | `0 4 * * MON-FRI`, `TZ=Europe/Berlin @daily` | [`cron`] | the calendar; missed ticks are skipped |
//! | `every 5m` | [`every`] | the first scheduled run; missed slots are skipped |
//!
//! A rule never reads a clock: what it may look at is handed to it as [`Moments`].

pub mod bedrock;
pub mod cron;
pub mod every;
pub mod span;
pub mod sqlite_date;

#[cfg(test)]
mod tests;

use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

pub use bedrock::BadBedrock;
pub use cron::BadCron;
pub use every::{BadDuration, BadEvery};
pub use span::Span;

/// What a repeat rule may look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moments {
    /// When the run that just ended should have begun.
    pub scheduled: Timestamp,
    /// When it did begin; `None` when it was never handed out, and then `finished` stands in.
    pub started: Option<Timestamp>,
    /// When it ended, which is now.
    pub finished: Timestamp,
}

/// A repeat rule, valid by construction. Stored as its text and style, so that a better parser reads old
/// jobs too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Repeat {
    text: String,
    style: bedrock::Style,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Bedrock(bedrock::Schedule),
    Cron(cron::Cron),
    Every(every::Every),
}

impl Repeat {
    /// Reads any of the three syntaxes.
    pub fn parse(text: &str) -> Result<Repeat, BadRepeat> {
        Repeat::parse_styled(text, bedrock::Style::default())
    }

    /// As `parse`; `style` settles what the Bedrock syntax leaves open and means nothing to the others.
    pub fn parse_styled(text: &str, style: bedrock::Style) -> Result<Repeat, BadRepeat> {
        let rule = match Shape::of(text) {
            Shape::Empty => return Err(BadRepeat::Empty),
            Shape::Bedrock => Rule::Bedrock(bedrock::Schedule::parse(text, style)?),
            Shape::Cron => Rule::Cron(cron::Cron::parse(text)?),
            Shape::Every => Rule::Every(every::Every::parse(text)?),
            Shape::Unknown => return Err(BadRepeat::Unknown { text: excerpt(text) }),
        };
        Ok(Repeat { text: text.to_owned(), style, rule })
    }

    /// As it was entered.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn style(&self) -> bedrock::Style {
        self.style
    }

    /// When the job runs next. It may lie in the past, which means at once. `None`: never again, because
    /// no such day exists (cron for 30 February) or it lies beyond the year 9999.
    pub fn next(&self, at: &Moments) -> Option<Timestamp> {
        match &self.rule {
            Rule::Bedrock(schedule) => schedule.next(at),
            Rule::Cron(cron) => cron.next(at),
            Rule::Every(every) => every.next(at),
        }
    }

    /// Whether its runs are dates by the calendar; otherwise they are so far apart, whatever the calendar says.
    pub fn names_dates(&self) -> bool {
        match &self.rule {
            Rule::Bedrock(schedule) => schedule.names_dates(),
            Rule::Cron(_) => true,
            Rule::Every(_) => false,
        }
    }

    /// When a job that was given no time runs first. A rule that names moments waits for the first of them; one that
    /// counts from the last run begins at once.
    pub fn first(&self, now: Timestamp) -> Timestamp {
        match &self.rule {
            Rule::Cron(cron) => {
                cron.next(&Moments { scheduled: now, started: None, finished: now }).unwrap_or(now)
            }
            Rule::Bedrock(_) | Rule::Every(_) => now,
        }
    }

    /// The next `count` runs, if each begins on time and takes none.
    pub fn upcoming(&self, at: &Moments, count: usize) -> Vec<Timestamp> {
        let mut at = *at;
        let mut runs = Vec::new();
        while runs.len() < count {
            let Some(run) = self.next(&at) else { break };
            runs.push(run);
            // A run that is overdue begins now, not in the past.
            let begin = run.max(at.finished);
            at = Moments { scheduled: run, started: Some(begin), finished: begin };
        }
        runs
    }
}

impl fmt::Display for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text is no repeat rule, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRepeat {
    #[error("the repeat rule is empty; write for example `every 5m`")]
    Empty,
    #[error(
        "`{text}` is not a repeat rule; write an interval (`every 5m`), a cron rule (`0 4 * * *`) \
         or a base and modifiers (`FINISHED, +1 DAY, START OF DAY`)"
    )]
    Unknown { text: String },
    #[error(transparent)]
    Bedrock(#[from] BadBedrock),
    #[error(transparent)]
    Cron(#[from] BadCron),
    #[error(transparent)]
    Every(#[from] BadEvery),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Empty,
    Bedrock,
    Cron,
    Every,
    Unknown,
}

impl Shape {
    /// The first word decides where it can: `FINISHED, +1 DAY, START OF DAY` also has six words, as many
    /// as a cron rule.
    fn of(text: &str) -> Shape {
        let text = text.trim_start();
        let first = text.split([' ', '\t', ',', '=']).next().unwrap_or_default().to_ascii_uppercase();
        match first.as_str() {
            "" if text.is_empty() => Shape::Empty,
            "HOURLY" | "DAILY" | "WEEKLY" | "SCHEDULED" | "STARTED" | "FINISHED" => Shape::Bedrock,
            "EVERY" => Shape::Every,
            "TZ" | "CRON_TZ" => Shape::Cron,
            word if word.starts_with('@') => Shape::Cron,
            _ if matches!(text.split_whitespace().count(), 5 | 6) => Shape::Cron,
            _ => Shape::Unknown,
        }
    }
}

/// A repeat rule as it is stored. New fields need a default, so that old jobs can be read.
#[derive(Serialize, Deserialize)]
struct Written {
    text: String,
    #[serde(default)]
    style: bedrock::Style,
}

impl TryFrom<Written> for Repeat {
    type Error = BadRepeat;

    fn try_from(written: Written) -> Result<Repeat, BadRepeat> {
        Repeat::parse_styled(&written.text, written.style)
    }
}

impl From<Repeat> for Written {
    fn from(repeat: Repeat) -> Written {
        Written { text: repeat.text, style: repeat.style }
    }
}

/// `slots` intervals after `base`, or `None` beyond the end of the calendar, where `Timestamp` would clamp.
fn slot_after(base: Timestamp, slots: i64, interval_ms: i64) -> Option<Timestamp> {
    let ms = slots.checked_mul(interval_ms)?.checked_add(base.as_millis())?;
    (ms <= Timestamp::MAX.as_millis()).then(|| Timestamp::from_millis(ms))
}

/// A wrong text as shown in a message: enough to recognise it, and on one line.
fn excerpt(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 60;
    let mut shown: String =
        text.chars().take(SHOWN_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}
