//! Job log ([`Log`]) and history of outside actions ([`Mark`]).
//!
//! Both are bounded. A job without log lines and without outside actions stores neither: its timestamps show
//! when it was pushed, claimed and finished, and its attempt errors show what failed.

use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of text per job. The whole log is rewritten with every batch of lines, so it must stay small; a job
/// with more output writes its own log file and names it in the result.
pub const LOG_BYTES_MAX: usize = 64 * 1024;
/// Lines per job: empty lines take space too.
pub const LOG_LINES_MAX: usize = 1_000;
/// Bytes per line. A longer line is truncated and ends in `…`.
pub const LOG_LINE_BYTES_MAX: usize = 8 * 1024;
/// Marks kept per job: enough to see who did what, few enough to keep the job small.
pub const MARKS_KEPT: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    pub at: Timestamp,
    /// Attempt that wrote the line; zero before the first.
    #[serde(rename = "n")]
    pub attempt: u32,
    /// Output stream, such as `stderr`.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Arc<str>>,
    #[serde(rename = "t")]
    pub text: String,
}

/// Last log lines of a job, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Log {
    pub lines: VecDeque<LogLine>,
    /// Lines dropped because the log was full.
    pub dropped: u64,
}

impl Log {
    /// Appends a line without its trailing line ends, dropping the oldest lines if the log is full.
    pub fn add(&mut self, mut line: LogLine) {
        line.text.truncate(line.text.trim_end_matches(['\n', '\r']).len());
        cut(&mut line.text);
        self.lines.push_back(line);
        let mut bytes: usize = self.lines.iter().map(|line| line.text.len()).sum();
        while bytes > LOG_BYTES_MAX || self.lines.len() > LOG_LINES_MAX {
            let Some(oldest) = self.lines.pop_front() else { return };
            bytes -= oldest.text.len();
            self.dropped += 1;
        }
    }
}

fn cut(text: &mut String) {
    const MARK: char = '…';
    if text.len() <= LOG_LINE_BYTES_MAX {
        return;
    }
    let mut end = LOG_LINE_BYTES_MAX - MARK.len_utf8();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push(MARK);
}

/// Action on a job from outside its runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub at: Timestamp,
    pub what: MarkKind,
    pub who: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    Cancelled,
    /// The job was running; its worker was asked to stop.
    CancelAsked,
    /// Started at once or at a time, without resetting its attempts.
    Run,
    /// Started over, attempts reset.
    Retried,
    Terminated,
    Changed,
}

impl MarkKind {
    pub fn as_str(self) -> &'static str {
        match self {
            MarkKind::Cancelled => "cancelled",
            MarkKind::CancelAsked => "cancel_asked",
            MarkKind::Run => "run",
            MarkKind::Retried => "retried",
            MarkKind::Terminated => "terminated",
            MarkKind::Changed => "changed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> LogLine {
        LogLine { at: Timestamp::EPOCH, attempt: 1, source: None, text: text.to_owned() }
    }

    #[test]
    fn the_oldest_lines_make_room() {
        let mut log = Log::default();
        for number in 0..LOG_LINES_MAX + 3 {
            log.add(line(&number.to_string()));
        }
        assert_eq!((log.lines.len(), log.dropped), (LOG_LINES_MAX, 3));
        assert_eq!(log.lines.front().map(|line| line.text.as_str()), Some("3"));
    }

    #[test]
    fn the_bytes_of_all_lines_are_bounded() {
        let mut log = Log::default();
        for _ in 0..20 {
            log.add(line(&"x".repeat(LOG_LINE_BYTES_MAX)));
        }
        let bytes: usize = log.lines.iter().map(|line| line.text.len()).sum();
        assert!(bytes <= LOG_BYTES_MAX, "{bytes} bytes are kept");
        assert_eq!((log.lines.len(), log.dropped), (8, 12));
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let mut log = Log::default();
        log.add(line(&"ä".repeat(LOG_LINE_BYTES_MAX)));
        let text = &log.lines[0].text;
        assert!(text.len() <= LOG_LINE_BYTES_MAX && text.ends_with("ä…"), "{} bytes", text.len());
    }

    #[test]
    fn the_end_of_a_line_is_not_part_of_it() {
        let mut log = Log::default();
        log.add(line("  done\r\n"));
        assert_eq!(log.lines[0].text, "  done");
    }
}
