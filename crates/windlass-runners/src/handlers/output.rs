//! Output of a job: lines that push new jobs, status lines, and the log.

use super::outcome::Verdict;
use super::settings::Settings;
use bytes::Bytes;
use windlass_core::handler::PrintedJob;

#[cfg(test)]
mod tests;

/// Error code of a job without a status line.
pub(super) const NO_RESPONSE: &str = "NO_RESPONSE";
/// Prefixes of a line that pushes a job; in a batch's output the second one also reads as a comment.
const NEW_JOB_MARKS: [&[u8]; 2] = [b"J: ", b"#J: "];

/// Longest prefix, job type or status around a result or payload in its line.
const LINE_EXTRA_BYTES: usize = 1024;

#[derive(Clone, Copy, Debug)]
pub(super) struct OutputLimits {
    pub log_bytes: usize,
    pub line_bytes: usize,
    pub new_jobs: usize,
    pub new_jobs_bytes: usize,
}

impl OutputLimits {
    pub(super) fn of(settings: &Settings) -> OutputLimits {
        OutputLimits {
            log_bytes: settings.log_bytes_max,
            line_bytes: settings.result_bytes_max.saturating_add(LINE_EXTRA_BYTES),
            new_jobs: settings.new_jobs_max,
            new_jobs_bytes: settings.new_jobs_bytes_max,
        }
    }
}

/// Output of one job, or of a batch that runs as a whole, while it arrives.
#[derive(Debug)]
pub(super) struct Output {
    limits: OutputLimits,
    /// Unfinished line that may push a job or be a status.
    line: Vec<u8>,
    /// The unfinished line belongs to the log.
    streaming: bool,
    statuses: Option<Statuses>,
    new_jobs: Vec<PrintedJob>,
    new_jobs_bytes: usize,
    log: Log,
    too_much: Option<String>,
}

impl Output {
    pub(super) fn new(limits: OutputLimits) -> Output {
        Output {
            limits,
            line: Vec::new(),
            streaming: false,
            statuses: None,
            new_jobs: Vec::new(),
            new_jobs_bytes: 0,
            log: Log::new(limits.log_bytes),
            too_much: None,
        }
    }

    /// Creates an output whose stdout lines are statuses, one for each of `jobs`.
    pub(super) fn with_statuses(limits: OutputLimits, jobs: usize) -> Output {
        Output { statuses: Some(Statuses::new(jobs)), ..Output::new(limits) }
    }

    pub(super) fn stderr(&mut self, bytes: &[u8]) {
        self.log.add(bytes);
    }

    pub(super) fn stdout(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
            let (piece, rest) = bytes.split_at(end);
            self.piece(piece);
            bytes = rest;
        }
    }

    /// Adds a line or a part of a line.
    fn piece(&mut self, piece: &[u8]) {
        let ends = piece.ends_with(b"\n");
        if self.streaming {
            self.log.add(piece);
        } else {
            self.line.extend_from_slice(piece);
            if self.line.len() > self.limits.line_bytes {
                self.complain(format!("a line of more than {} bytes", self.limits.line_bytes));
                self.flush_line();
            } else if ends {
                self.whole_line();
            } else if self.statuses.is_none() && !may_be_new_job(&self.line) {
                self.flush_line();
            }
        }
        self.streaming = self.streaming && !ends;
    }

    fn flush_line(&mut self) {
        self.log.add(&self.line);
        self.line.clear();
        self.streaming = true;
    }

    fn whole_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        if let Some(job) = new_job_in(text) {
            self.add_job(job);
        } else if self.statuses.as_mut().is_none_or(|statuses| !statuses.take(text)) {
            self.log.add(&line);
        }
    }

    fn add_job(&mut self, job: PrintedJob) {
        self.new_jobs_bytes += job.payload.len();
        if self.new_jobs.len() >= self.limits.new_jobs {
            self.complain(format!("more than {} new jobs", self.limits.new_jobs));
        } else if self.new_jobs_bytes > self.limits.new_jobs_bytes {
            self.complain(format!("new jobs of more than {} bytes", self.limits.new_jobs_bytes));
        } else {
            self.new_jobs.push(job);
        }
    }

    /// Records an exceeded limit. Truncated output makes the job fail, because its result cannot be trusted.
    fn complain(&mut self, what: String) {
        self.too_much.get_or_insert(what);
    }

    pub(super) fn finish(mut self) -> Finished {
        if !self.line.is_empty() {
            self.whole_line();
        }
        Finished {
            log: self.log.finish(),
            new_jobs: self.new_jobs,
            statuses: self.statuses.map(Statuses::finish).unwrap_or_default(),
            too_much: self.too_much,
        }
    }
}

#[derive(Debug)]
pub(super) struct Finished {
    pub log: Bytes,
    pub new_jobs: Vec<PrintedJob>,
    /// Statuses, one per job of the batch.
    pub statuses: Vec<(Verdict, Bytes)>,
    /// Limit that was exceeded, as text.
    pub too_much: Option<String>,
}

fn may_be_new_job(beginning: &[u8]) -> bool {
    NEW_JOB_MARKS.iter().any(|mark| {
        let both = mark.len().min(beginning.len());
        mark[..both] == beginning[..both]
    })
}

fn new_job_in(line: &[u8]) -> Option<PrintedJob> {
    let (jobtype, payload) = type_and_payload(line)?;
    Some(PrintedJob { jobtype: jobtype.to_owned(), payload: Bytes::copy_from_slice(payload) })
}

/// True if a response line pushes a job, or an unfinished one may do so, and so is not part of the result.
pub(super) fn is_marked(line: &[u8]) -> bool {
    may_be_new_job(line)
}

/// Parses `J: type|payload`. The payload may contain further bars.
fn type_and_payload(line: &[u8]) -> Option<(&str, &[u8])> {
    let rest = NEW_JOB_MARKS.iter().find_map(|mark| line.strip_prefix(*mark))?;
    let bar = rest.iter().position(|byte| *byte == b'|')?;
    let jobtype = std::str::from_utf8(&rest[..bar]).ok()?;
    (!jobtype.is_empty()).then_some((jobtype, &rest[bar + 1..]))
}

/// Result of a response that also pushes jobs. Keeps the response's memory budget allocated while it lives.
struct Rest {
    bytes: Vec<u8>,
    _answer: Bytes,
}

impl AsRef<[u8]> for Rest {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Removes the lines that push jobs from a response; the rest is its result.
pub(super) fn split_answer(answer: Bytes, limits: OutputLimits) -> (Bytes, Output) {
    let mut output = Output::new(limits);
    fn new_job(line: &[u8]) -> Option<(&str, &[u8])> {
        type_and_payload(line.strip_suffix(b"\n").unwrap_or(line))
    }
    // Most responses push no jobs and are returned without a copy.
    if !answer.split_inclusive(|byte| *byte == b'\n').any(|line| new_job(line).is_some()) {
        return (answer, output);
    }
    let mut bytes = Vec::new();
    for line in answer.split_inclusive(|byte| *byte == b'\n') {
        match new_job(line) {
            Some((jobtype, payload)) => {
                output
                    .add_job(PrintedJob { jobtype: jobtype.to_owned(), payload: answer.slice_ref(payload) });
            }
            None => bytes.extend_from_slice(line),
        }
    }
    (Bytes::from_owner(Rest { bytes, _answer: answer }), output)
}

/// Parser of lines `NNN[ data]`, one per job; ignores empty lines and lines that begin with `#`.
#[derive(Debug)]
struct Statuses {
    jobs: usize,
    found: Vec<(Verdict, Bytes)>,
    /// A line without a status was found, so later lines cannot be assigned to jobs.
    invalid: bool,
}

impl Statuses {
    fn new(jobs: usize) -> Statuses {
        Statuses { jobs, found: Vec::new(), invalid: false }
    }

    /// Consumes a line; false if it is not a status. Lines after the last status belong to the log.
    fn take(&mut self, line: &[u8]) -> bool {
        let blank = line.iter().all(u8::is_ascii_whitespace);
        if blank || line.starts_with(b"#") || self.invalid || self.found.len() >= self.jobs {
            return false;
        }
        match status_in(line) {
            Some(status) => self.found.push(status),
            None => self.invalid = true,
        }
        !self.invalid
    }

    fn finish(self) -> Vec<(Verdict, Bytes)> {
        let verdict = match self.invalid {
            true => Verdict::error("INVALID_RESPONSE", "the status line is not a number from 100 to 599"),
            false => Verdict::error(NO_RESPONSE, "no status line for this job"),
        };
        let mut all = self.found;
        all.resize(self.jobs, (verdict, Bytes::new()));
        all
    }
}

fn status_in(line: &[u8]) -> Option<(Verdict, Bytes)> {
    let line = line.strip_suffix(b"\r").unwrap_or(line).trim_ascii_start();
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let exitcode: u16 = std::str::from_utf8(&line[..digits]).ok()?.parse().ok()?;
    let data = &line[digits..];
    let data = data.strip_prefix(b" ").unwrap_or(data);
    (100..=599).contains(&exitcode).then(|| (Verdict::status(exitcode), Bytes::copy_from_slice(data)))
}

/// Bounded log that keeps the beginning and the end of the output.
#[derive(Debug)]
struct Log {
    half: usize,
    head: Vec<u8>,
    /// Grows to twice `half` before it is cut, so that cutting is amortized.
    tail: Vec<u8>,
    left_out: u64,
}

impl Log {
    fn new(bytes_max: usize) -> Log {
        Log { half: bytes_max / 2, head: Vec::new(), tail: Vec::new(), left_out: 0 }
    }

    fn add(&mut self, bytes: &[u8]) {
        let room = self.half.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        if rest.len() > self.half {
            let cut = rest.len() - self.half;
            self.left_out += (self.tail.len() + cut) as u64;
            self.tail.clear();
            self.tail.extend_from_slice(&rest[cut..]);
        } else {
            self.tail.extend_from_slice(rest);
            if self.tail.len() > 2 * self.half {
                self.cut_tail();
            }
        }
    }

    fn cut_tail(&mut self) {
        let cut = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..cut);
        self.left_out += cut as u64;
    }

    fn finish(mut self) -> Bytes {
        self.cut_tail();
        if self.left_out > 0 {
            self.head.extend_from_slice(format!("\n[{} bytes omitted]\n", self.left_out).as_bytes());
        }
        self.head.extend_from_slice(&self.tail);
        self.head.into()
    }
}
