//! One job's process: its input, its output, its end.

use super::held::{Run, Table};
use crate::output;
use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// "Temporary failure" in sysexits.h.
pub const EXIT_RETRY: i32 = 75;
/// What the server takes as a result by default.
pub const RESULT_BYTES_MAX: usize = 16 << 20;
/// The end of standard error that becomes the message of a failure.
const MESSAGE_BYTES_MAX: usize = 4096;
/// Longest piece of a line that is looked at as a whole.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// After its end, how long something it started may hold its output open. It was killed, so it is not long.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
pub struct Job {
    pub id: u64,
    pub token: Value,
    pub name: String,
    #[serde(default)]
    queue: String,
    #[serde(default)]
    attempt: u64,
    #[serde(default)]
    priority: i64,
    #[serde(default)]
    payload: Option<Box<RawValue>>,
    #[serde(default)]
    payload_base64: Option<String>,
    #[serde(default)]
    format: Option<String>,
}

impl Job {
    /// The payload byte for byte.
    fn input(&self) -> Vec<u8> {
        let json = self.payload.as_deref().map(RawValue::get).unwrap_or_default();
        match (&self.payload_base64, self.format.as_deref()) {
            (Some(text), _) => BASE64.decode(text).unwrap_or_else(|_| text.as_bytes().to_vec()),
            // A text travels as a JSON string, in quotes that are not part of it.
            (None, Some("text")) => {
                serde_json::from_str(json).map_or_else(|_| json.into(), String::into_bytes)
            }
            (None, _) => json.into(),
        }
    }
}

/// How it ended.
#[derive(Debug)]
pub enum Ended {
    /// The command could not be started at all; that is no fault of the job.
    NotStarted(String),
    Code {
        code: i32,
        result: Option<Box<RawValue>>,
        stderr: String,
    },
    Signal {
        signal: i32,
        stderr: String,
    },
    /// The output is larger than a result may be.
    TooMuch,
}

pub fn run(job: &Job, run: Run, command: &[String], server: &str, table: &Arc<Table>) -> Ended {
    let mut child = match spawn(job, command, server) {
        Ok(child) => child,
        Err(error) => {
            let program = command.first().map(String::as_str).unwrap_or_default();
            return Ended::NotStarted(format!("cannot run {program}: {error}; is it installed and in PATH?"));
        }
    };
    let group = Pid::from_child(&child);
    table.process_started(run, group);
    if let Some(mut stdin) = child.stdin.take() {
        let input = job.input();
        // A command that does not read its input closes it, which is fine.
        thread::spawn(move || drop(stdin.write_all(&input)));
    }
    let reports = table.clone();
    let stdout = gather(child.stdout.take(), move |pipe, into| read_result(run, pipe, &reports, into));
    let prefix = (!table.quiet).then(|| format!("job {} | ", job.id));
    let stderr = gather(child.stderr.take(), move |pipe, into| read_messages(pipe, prefix.as_deref(), into));
    // The process is left unreaped until nobody will signal it any more: its number could be another's afterwards.
    let _ = waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    table.process_ended(run);
    let status = child.wait();
    let (stdout, stderr) = (stdout.take(), stderr.take());
    let stderr = String::from_utf8_lossy(&stderr.bytes).trim().to_string();
    match status {
        _ if stdout.bytes.len() > RESULT_BYTES_MAX => Ended::TooMuch,
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Ended::Code { code, result: result_of(&stdout.bytes), stderr },
            (None, signal) => Ended::Signal { signal: signal.unwrap_or(0), stderr },
        },
        Err(error) => {
            Ended::Code { code: -1, result: None, stderr: format!("its end was not seen: {error}") }
        }
    }
}

fn spawn(job: &Job, command: &[String], server: &str) -> std::io::Result<Child> {
    let (program, args) = command.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    Command::new(program)
        .args(args)
        .env("WINDLASS_JOB_ID", job.id.to_string())
        .env("WINDLASS_JOB_NAME", &job.name)
        .env("WINDLASS_JOB_QUEUE", &job.queue)
        .env("WINDLASS_JOB_ATTEMPT", job.attempt.to_string())
        .env("WINDLASS_JOB_PRIORITY", job.priority.to_string())
        .env("WINDLASS_SERVER", server)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own: Ctrl-C is for the worker, and stopping the job stops all it started.
        .process_group(0)
        .spawn()
}

/// What came out of a pipe so far.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
}

struct Gathering {
    output: Arc<Mutex<Output>>,
    done: Receiver<()>,
}

impl Gathering {
    /// A process that left our group may hold the pipe open for ever; then what has come is what counts.
    fn take(self) -> Output {
        let _ = self.done.recv_timeout(OUTPUT_PATIENCE);
        std::mem::take(&mut lock(&self.output))
    }
}

fn lock(output: &Mutex<Output>) -> MutexGuard<'_, Output> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gather<P: Read + Send + 'static>(
    pipe: Option<P>,
    read: impl FnOnce(BufReader<P>, &Mutex<Output>) + Send + 'static,
) -> Gathering {
    let output = Arc::<Mutex<Output>>::default();
    let (ending, done) = channel();
    let into = output.clone();
    thread::spawn(move || {
        if let Some(pipe) = pipe {
            read(BufReader::new(pipe), &into);
        }
        let _ = ending.send(());
    });
    Gathering { output, done }
}

/// The next line, or a piece of it if it is very long. `None` at the end.
fn next_piece(pipe: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut piece = Vec::new();
    match pipe.take(LINE_BYTES_MAX).read_until(b'\n', &mut piece) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(piece),
    }
}

/// Keeps the output, up to one byte more than is allowed, and takes the lines about progress out of it.
fn read_result(run: Run, mut pipe: impl BufRead, table: &Table, into: &Mutex<Output>) {
    let mut line_begins = true;
    while let Some(piece) = next_piece(&mut pipe) {
        let progress = if line_begins { progress_in(&piece) } else { None };
        line_begins = piece.ends_with(b"\n");
        if let Some((percent, note)) = progress {
            table.report(run, percent, note);
            continue;
        }
        let kept = &mut lock(into).bytes;
        let room = (RESULT_BYTES_MAX + 1).saturating_sub(kept.len());
        kept.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

/// `::progress 40 halfway there`
fn progress_in(line: &[u8]) -> Option<(u8, String)> {
    let words = std::str::from_utf8(line.strip_prefix(b"::progress ")?).ok()?.trim();
    let (percent, note) = words.split_once(' ').unwrap_or((words, ""));
    let percent: u8 = percent.trim_end_matches('%').parse().ok()?;
    Some((percent.min(100), note.trim().to_string()))
}

/// Shows the lines to whoever watches the worker, and keeps the last of them.
fn read_messages(mut pipe: impl BufRead, prefix: Option<&str>, into: &Mutex<Output>) {
    while let Some(piece) = next_piece(&mut pipe) {
        if let Some(prefix) = prefix {
            let line = String::from_utf8_lossy(&piece);
            output::note(format!("{prefix}{}", output::harmless(line.trim_end())));
        }
        let tail = &mut lock(into).bytes;
        tail.extend_from_slice(&piece);
        let surplus = tail.len().saturating_sub(MESSAGE_BYTES_MAX);
        tail.drain(..surplus);
    }
}

/// JSON if it is JSON, else text without the newline at its end; nothing if there is nothing.
fn result_of(stdout: &[u8]) -> Option<Box<RawValue>> {
    let text = String::from_utf8_lossy(stdout);
    let text = text.trim_end_matches(['\n', '\r']);
    match serde_json::from_str::<Box<RawValue>>(text) {
        Ok(json) => Some(json),
        Err(_) if text.is_empty() => None,
        Err(_) => to_raw_value(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_json_if_it_can_be_and_text_otherwise() {
        let check = |stdout: &str, result: Option<&str>| {
            assert_eq!(result_of(stdout.as_bytes()).as_deref().map(RawValue::get), result, "{stdout:?}");
        };
        check("", None);
        check("\n", None);
        check("{\"b\":1, \"a\":2}\n", Some("{\"b\":1, \"a\":2}"));
        check("42\n", Some("42"));
        check("two words\nand more\n", Some("\"two words\\nand more\""));
    }

    #[test]
    fn progress_lines_are_told_apart_from_output() {
        assert_eq!(progress_in(b"::progress 40 halfway there\n"), Some((40, "halfway there".to_string())));
        assert_eq!(progress_in(b"::progress 7%\n"), Some((7, String::new())));
        assert_eq!(progress_in(b"::progress 200\n"), Some((100, String::new())));
        assert_eq!(progress_in(b"::progress soon\n"), None);
        assert_eq!(progress_in(b"progress 40\n"), None);
    }

    #[test]
    fn only_the_end_of_standard_error_is_kept() {
        let into = Mutex::default();
        let text = "x".repeat(10_000) + "the end";
        read_messages(text.as_bytes(), None, &into);
        let kept = lock(&into).bytes.clone();
        assert_eq!(kept.len(), MESSAGE_BYTES_MAX);
        assert!(kept.ends_with(b"the end"));
    }
}
