//! Repeat rules: the next run of a repeating job.
//!
//! Three syntaxes, recognised by their form:
//!
//! | syntax | parser | counts from |
//! |---|---|---|
//! | `FINISHED, +1 DAY, START OF DAY, +4 HOURS`, `HOURLY` | [`modifiers`] | the base it names |
//! | `0 4 * * MON-FRI`, `TZ=Europe/Berlin @daily` | [`cron`] | the calendar; missed ticks are skipped |
//! | `every 5m` | [`every`] | the first scheduled run; missed slots are skipped |
//!
//! A rule never reads a clock: its input is [`Moments`].

pub mod cron;
pub mod every;
pub mod modifiers;
pub mod span;
pub mod sqlite_date;

#[cfg(test)]
mod tests;

use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

pub use cron::BadCron;
pub use every::{BadDuration, BadEvery};
pub use modifiers::BadModifiers;
pub use span::Span;

/// Most missed times that are counted; a larger number means "at least".
pub const MISSED_MAX: u32 = 1_000;

/// Times that a repeat rule may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moments {
    /// Scheduled start of the run that just ended.
    pub scheduled: Timestamp,
    /// Actual start; `None` if the job was never handed out, in which case `finished` is used.
    pub started: Option<Timestamp>,
    /// End of the run, which is now.
    pub finished: Timestamp,
}

/// Repeat rule, valid by construction. Stored as its text and style, so a later version of the parser also
/// reads old jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Repeat {
    text: String,
    style: modifiers::Style,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Modifiers(modifiers::Schedule),
    Cron(cron::Cron),
    Every(every::Every),
}

impl Repeat {
    /// Parses any of the three syntaxes.
    pub fn parse(text: &str) -> Result<Repeat, BadRepeat> {
        Repeat::parse_styled(text, modifiers::Style::default())
    }

    /// Like `parse`; `style` sets the variants of the Bedrock syntax and does not affect the others.
    pub fn parse_styled(text: &str, style: modifiers::Style) -> Result<Repeat, BadRepeat> {
        let rule = match Shape::of(text) {
            Shape::Empty => return Err(BadRepeat::Empty),
            Shape::Modifiers => Rule::Modifiers(modifiers::Schedule::parse(text, style)?),
            Shape::Cron => Rule::Cron(cron::Cron::parse(text)?),
            Shape::Every => Rule::Every(every::Every::parse(text)?),
            Shape::Unknown => return Err(BadRepeat::Unknown { text: excerpt(text) }),
        };
        Ok(Repeat { text: text.to_owned(), style, rule })
    }

    /// Text as it was entered.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn style(&self) -> modifiers::Style {
        self.style
    }

    /// Next run. A time in the past means at once. `None`: never again, because no such day exists (cron for
    /// 30 February) or the time is beyond the year 9999.
    pub fn next(&self, at: &Moments) -> Option<Timestamp> {
        match &self.rule {
            Rule::Modifiers(schedule) => schedule.next(at),
            Rule::Cron(cron) => cron.next(at),
            Rule::Every(every) => every.next(at),
        }
    }

    /// True if the runs are calendar dates, false if they are intervals.
    pub fn names_dates(&self) -> bool {
        match &self.rule {
            Rule::Modifiers(schedule) => schedule.names_dates(),
            Rule::Cron(_) => true,
            Rule::Every(_) => false,
        }
    }

    /// Scheduled times after `due`, up to and including `now`: they pass without a run while the run that was
    /// due then has not ended. At most [`MISSED_MAX`] are counted. A rule that counts from the previous run
    /// misses none.
    pub fn missed(&self, due: Timestamp, now: Timestamp) -> u32 {
        match &self.rule {
            Rule::Modifiers(_) => 0,
            Rule::Every(every) => {
                u32::try_from(now.since_ms(due) / every.interval_ms()).unwrap_or(MISSED_MAX).min(MISSED_MAX)
            }
            Rule::Cron(cron) => {
                let mut tick = due;
                let mut count = 0;
                while count < MISSED_MAX {
                    match cron.next(&Moments { scheduled: tick, started: None, finished: tick }) {
                        Some(next) if next <= now => tick = next,
                        Some(_) | None => break,
                    }
                    count += 1;
                }
                count
            }
        }
    }

    /// First run of a job that was pushed without a time. A cron rule waits for its first tick; a rule that
    /// counts from the previous run starts at once.
    pub fn first(&self, now: Timestamp) -> Timestamp {
        match &self.rule {
            Rule::Cron(cron) => {
                cron.next(&Moments { scheduled: now, started: None, finished: now }).unwrap_or(now)
            }
            Rule::Modifiers(_) | Rule::Every(_) => now,
        }
    }

    /// Next `count` runs, if each starts on time and takes no time.
    pub fn upcoming(&self, at: &Moments, count: usize) -> Vec<Timestamp> {
        let mut at = *at;
        let mut runs = Vec::new();
        while runs.len() < count {
            let Some(run) = self.next(&at) else { break };
            runs.push(run);
            // An overdue run starts now, not in the past.
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

/// Parse error of a repeat rule, with a suggestion.
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
    Modifiers(#[from] BadModifiers),
    #[error(transparent)]
    Cron(#[from] BadCron),
    #[error(transparent)]
    Every(#[from] BadEvery),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Empty,
    Modifiers,
    Cron,
    Every,
    Unknown,
}

impl Shape {
    /// Recognised by the first word where possible: `FINISHED, +1 DAY, START OF DAY` has six words, as many
    /// as a cron rule.
    fn of(text: &str) -> Shape {
        let text = text.trim_start();
        let first = text.split([' ', '\t', ',', '=']).next().unwrap_or_default().to_ascii_uppercase();
        match first.as_str() {
            "" if text.is_empty() => Shape::Empty,
            "HOURLY" | "DAILY" | "WEEKLY" | "SCHEDULED" | "STARTED" | "FINISHED" => Shape::Modifiers,
            "EVERY" => Shape::Every,
            "TZ" | "CRON_TZ" => Shape::Cron,
            word if word.starts_with('@') => Shape::Cron,
            _ if matches!(text.split_whitespace().count(), 5 | 6) => Shape::Cron,
            _ => Shape::Unknown,
        }
    }
}

/// Stored form of a repeat rule. New fields need a default, so that old jobs can be read.
#[derive(Serialize, Deserialize)]
struct Written {
    text: String,
    #[serde(default)]
    style: modifiers::Style,
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

/// Time `slots` intervals after `base`; `None` beyond the end of the calendar, where `Timestamp` would clamp.
fn slot_after(base: Timestamp, slots: i64, interval_ms: i64) -> Option<Timestamp> {
    let ms = slots.checked_mul(interval_ms)?.checked_add(base.as_millis())?;
    (ms <= Timestamp::MAX.as_millis()).then(|| Timestamp::from_millis(ms))
}

/// Excerpt of an invalid text for an error message: short and on one line.
fn excerpt(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 60;
    let mut shown: String =
        text.chars().take(SHOWN_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}
