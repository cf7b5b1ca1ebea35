//! Findings of `windlass doctor` and `windlass upgrade-check`: one line each, with what to do.

use crate::fault::Outcome;
use crate::output::{self, Colour, Style};
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Ok,
    /// Should be known, and may be as intended.
    Warn,
    /// Has to be changed.
    Fail,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        }
    }

    fn colour(self) -> Colour {
        match self {
            Level::Ok => Colour::Green,
            Level::Warn => Colour::Yellow,
            Level::Fail => Colour::Red,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub level: Level,
    /// Subject, in one or two words.
    pub about: &'static str,
    /// Reading.
    pub text: String,
    /// Change to make.
    pub advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(about: &'static str, text: impl Into<String>) -> Finding {
        Finding { level: Level::Ok, about, text: text.into(), advice: None }
    }

    pub(super) fn warn(about: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { level: Level::Warn, about, text: text.into(), advice: Some(advice.into()) }
    }

    pub(super) fn fail(about: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { level: Level::Fail, about, text: text.into(), advice: Some(advice.into()) }
    }

    fn lines(&self, about_width: usize, style: Style) -> Vec<String> {
        // Foreign text: names of queues, messages of a server.
        let text = output::harmless(&self.text);
        let whole = match &self.advice {
            Some(advice) => format!("{text}; {}", output::harmless(advice)),
            None => text.into_owned(),
        };
        let indent = 4 + 2 + about_width + 2;
        let rest = output::wrapped(&whole, style.width.saturating_sub(indent).max(20));
        let word = self.level.word();
        let gap = " ".repeat(4 - word.len());
        let mut lines = Vec::new();
        for (number, line) in rest.into_iter().enumerate() {
            lines.push(match number {
                0 => format!(
                    "{}{gap}  {:about_width$}  {line}",
                    style.paint(self.level.colour(), word),
                    self.about
                ),
                _ => format!("{:indent$}{line}", ""),
            });
        }
        lines
    }
}

/// Largest level among the findings.
pub(super) fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}

pub(super) fn count(findings: &[Finding], level: Level) -> usize {
    findings.iter().filter(|finding| finding.level == level).count()
}

pub(super) fn lines(findings: &[Finding], style: Style) -> Vec<String> {
    let width = findings.iter().map(|finding| finding.about.len()).max().unwrap_or(0);
    findings.iter().flat_map(|finding| finding.lines(width, style)).collect()
}

pub(super) fn print(findings: &[Finding]) -> Outcome {
    lines(findings, Style::of_stdout()).into_iter().try_for_each(output::say)
}

pub(super) fn as_json(findings: &[Finding]) -> Value {
    let one = |finding: &Finding| {
        json!({"level": finding.level.word(), "about": finding.about, "text": finding.text,
            "advice": finding.advice})
    };
    findings.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_in_a_pipe_and_wrapped_in_a_terminal() {
        let all = [
            Finding::ok("clock", "synchronized"),
            Finding::warn("disk space", "2.0 GB of 100.0 GB are free", "free some, or move the data folder"),
        ];
        let piped = lines(&all, Style { colours: false, width: 200 });
        assert_eq!(piped[0], "ok    clock       synchronized");
        assert_eq!(
            piped[1],
            "warn  disk space  2.0 GB of 100.0 GB are free; free some, or move the data folder"
        );
        let narrow = lines(&all, Style { colours: false, width: 60 });
        assert_eq!(narrow.len(), 3, "{narrow:?}");
        assert!(narrow.iter().all(|line| line.chars().count() <= 60), "{narrow:?}");
        assert!(narrow[2].starts_with(&" ".repeat(18)), "{narrow:?}");
    }

    #[test]
    fn the_worst_level_counts() {
        assert_eq!(worst(&[]), Level::Ok);
        let all = [Finding::fail("a", "b", "c"), Finding::warn("a", "b", "c"), Finding::ok("a", "b")];
        assert_eq!((worst(&all), count(&all, Level::Warn)), (Level::Fail, 1));
    }

    #[test]
    fn text_from_outside_cannot_reach_the_terminal() {
        let finding = Finding::warn("queues", "queue a\x1b[2Jb waits", "look");
        let shown = lines(&[finding], Style { colours: false, width: 200 });
        assert!(!shown[0].contains('\x1b'), "{shown:?}");
    }
}
