//! Outcome of a job, as a three-digit exit code.

use windlass_core::handler::{Report, Status};

/// Error code of a job with too much output or too large a result.
pub(super) const TOO_MUCH: &str = "TOO_MUCH";

/// Exit code with its word, before output and duration are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub exitcode: u16,
    pub code: String,
    pub message: Option<String>,
}

impl Verdict {
    /// Parses the guard's report of the end of a process: `code 7`, `signal 9`.
    pub(crate) fn of_end(words: &str) -> Verdict {
        let number = |rest: &str| rest.parse::<i32>().ok();
        match words.split_once(' ') {
            Some(("code", rest)) => number(rest).map(Verdict::exit),
            Some(("signal", rest)) => number(rest).map(Verdict::signal),
            _ => None,
        }
        .unwrap_or_else(|| Verdict::error("EXIT", "the handler process exited"))
    }

    pub(crate) fn status(exitcode: u16) -> Verdict {
        Verdict { exitcode, code: Status::of(exitcode).code().to_owned(), message: None }
    }

    /// Exit code 500 with a more specific word.
    pub(crate) fn error(code: &str, message: impl Into<String>) -> Verdict {
        Verdict { exitcode: 500, code: code.to_owned(), message: Some(message.into()) }
    }

    /// Maps a process exit code (0 to 255) to a status: 10-19, 20-29, 40-49 and 50-59 become 1xx, 2xx, 4xx
    /// and 5xx.
    pub(crate) fn exit(code: i32) -> Verdict {
        match code {
            0 => Verdict::status(200),
            10..=19 | 20..=29 | 40..=49 | 50..=59 => {
                let (tens, ones) = (code / 10, code % 10);
                Verdict::status(u16::try_from(tens * 100 + ones).unwrap_or(500))
            }
            other => Verdict::error("EXIT", format!("exit code {other}")),
        }
    }

    pub(crate) fn signal(signal: i32) -> Verdict {
        Verdict::error("SIGNAL", format!("killed by signal {signal}"))
    }
}

impl From<Verdict> for Report {
    fn from(verdict: Verdict) -> Report {
        let Verdict { exitcode, code, message } = verdict;
        Report { exitcode, code, message, ..Report::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_of_processes_stand_for_exit_codes_of_jobs() {
        let check = |code: i32, exitcode: u16, word: &str| {
            let verdict = Verdict::exit(code);
            assert_eq!((verdict.exitcode, verdict.code.as_str()), (exitcode, word), "exit {code}");
        };
        check(0, 200, "OK");
        check(10, 100, "RETRY");
        check(19, 109, "RETRY");
        check(20, 200, "OK");
        check(29, 209, "OK");
        check(40, 400, "FAILED");
        check(44, 404, "FAILED");
        check(50, 500, "ERROR");
        check(59, 509, "ERROR");
        for other in [1, 2, 9, 30, 39, 60, 75, 127, 255] {
            check(other, 500, "EXIT");
        }
    }
}
