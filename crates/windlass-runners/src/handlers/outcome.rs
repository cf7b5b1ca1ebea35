//! Outcome of a job, as a three-digit exit code.

use bytes::Bytes;

/// Meaning of the first digit of an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 1xx and 3xx: retry without an error.
    Retry,
    /// 2xx
    Ok,
    /// 4xx: permanent failure, no retry.
    Failed,
    /// 5xx and all others: retry after an error.
    Error,
}

impl Status {
    pub fn of(exitcode: u16) -> Status {
        match exitcode {
            100..=199 | 300..=399 => Status::Retry,
            200..=299 => Status::Ok,
            400..=499 => Status::Failed,
            _ => Status::Error,
        }
    }

    pub fn code(self) -> &'static str {
        match self {
            Status::Retry => "RETRY",
            Status::Ok => "OK",
            Status::Failed => "FAILED",
            Status::Error => "ERROR",
        }
    }
}

/// Error code of a job with too much output or too large a result.
pub(super) const TOO_MUCH: &str = "TOO_MUCH";

/// End of one job of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The job ran, or its handler cannot run; the status of the outcome decides what follows.
    Done(Outcome),
    /// The job did not complete, without fault of its own: it was stopped, or the server is shutting down.
    Unrun(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub exitcode: u16,
    /// Default word of the exit code, or a more specific one.
    pub code: String,
    /// Message for people, in one line, if any.
    pub message: Option<String>,
    /// Return value of the handler.
    pub result: Bytes,
    /// Other output, limited in size.
    pub log: Bytes,
    pub new_jobs: Vec<NewJob>,
    /// Time spent in the handler.
    pub run_ms: u64,
}

/// Job pushed by an output line `J: type|payload`. It belongs to the same client, as the line cannot name
/// another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Job type as printed.
    pub jobtype: String,
    pub payload: Bytes,
}

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
        .unwrap_or_else(|| Verdict::error("EXIT", "its process is gone"))
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
        Verdict::error("SIGNAL", format!("ended by signal {signal}"))
    }
}

impl Outcome {
    pub fn status(&self) -> Status {
        Status::of(self.exitcode)
    }

    pub(crate) fn without_output(verdict: Verdict) -> Outcome {
        let Verdict { exitcode, code, message } = verdict;
        let (result, log) = (Bytes::new(), Bytes::new());
        Outcome { exitcode, code, message, result, log, new_jobs: Vec::new(), run_ms: 0 }
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

    #[test]
    fn the_first_digit_decides() {
        let check = |exitcode, status| assert_eq!(Status::of(exitcode), status, "{exitcode}");
        check(100, Status::Retry);
        check(200, Status::Ok);
        check(302, Status::Retry);
        check(404, Status::Failed);
        check(503, Status::Error);
        check(7, Status::Error);
        check(999, Status::Error);
    }
}
