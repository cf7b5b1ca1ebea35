//! How a job ended, in numbers of three digits.

use bytes::Bytes;

/// What the first digit of an exit code means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 1xx and 3xx: run again later, nothing is wrong.
    Retry,
    /// 2xx
    Ok,
    /// 4xx: it will not get better.
    Failed,
    /// 5xx and everything else: run again later, something is wrong.
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

/// The code of a job that printed or gave back more than is kept.
pub const TOO_MUCH: &str = "TOO_MUCH";

/// What came of one job of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was run, or its handler cannot be; the outcome's status says what to do.
    Done(Outcome),
    /// It was not run to its end, through no fault of its own: it was stopped, or the server is stopping.
    Unrun(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub exitcode: u16,
    /// The word for the exit code, or a closer one.
    pub code: String,
    /// One line for people, where there is something to say.
    pub message: Option<String>,
    /// What the handler gave back.
    pub result: Bytes,
    /// Its other output, bounded.
    pub log: Bytes,
    pub new_jobs: Vec<NewJob>,
    /// Time in the handler.
    pub run_ms: u64,
}

/// A line `J: type|payload`: a job of the same client, because there is no other client it could name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// As it was printed.
    pub jobtype: String,
    pub payload: Bytes,
}

/// An exit code with its word, before output and times are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub exitcode: u16,
    pub code: String,
    pub message: Option<String>,
}

impl Verdict {
    /// By the guard's words about the end of a process: `code 7`, `signal 9`.
    pub fn of_end(words: &str) -> Verdict {
        let number = |rest: &str| rest.parse::<i32>().ok();
        match words.split_once(' ') {
            Some(("code", rest)) => number(rest).map(Verdict::exit),
            Some(("signal", rest)) => number(rest).map(Verdict::signal),
            _ => None,
        }
        .unwrap_or_else(|| Verdict::error("EXIT", "its process is gone"))
    }

    pub fn status(exitcode: u16) -> Verdict {
        Verdict { exitcode, code: Status::of(exitcode).code().to_owned(), message: None }
    }

    /// 500 and a closer word.
    pub fn error(code: &str, message: impl Into<String>) -> Verdict {
        Verdict { exitcode: 500, code: code.to_owned(), message: Some(message.into()) }
    }

    /// A process can only say 0 to 255: tens stand for hundreds.
    pub fn exit(code: i32) -> Verdict {
        match code {
            0 => Verdict::status(200),
            10..=19 | 20..=29 | 40..=49 | 50..=59 => {
                let (tens, ones) = (code / 10, code % 10);
                Verdict::status(u16::try_from(tens * 100 + ones).unwrap_or(500))
            }
            other => Verdict::error("EXIT", format!("exit code {other}")),
        }
    }

    pub fn signal(signal: i32) -> Verdict {
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
