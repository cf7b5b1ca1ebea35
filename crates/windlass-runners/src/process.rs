//! Runner of commands: one process per job, with the payload on stdin, its output as result, and its exit
//! status.

use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// EX_TEMPFAIL, "temporary failure", in sysexits.h.
pub const EXIT_RETRY: i32 = 75;
/// Largest result that a server accepts by default.
pub const RESULT_BYTES_MAX: usize = 16 << 20;
/// Bytes at the end of stderr that are kept: the backtrace of a failure.
const STDERR_BYTES_MAX: usize = 32 * 1024;
/// Longest line; longer ones are processed in pieces.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Time to wait for the end of output after the exit; the remaining processes have been killed.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(2);

/// Command for one job.
pub struct Task<'a> {
    /// Program and arguments, not interpreted by a shell.
    pub command: &'a [String],
    /// Variables added to the environment.
    pub environment: Vec<(&'static str, String)>,
    /// Variables removed from the environment: secrets of the worker.
    pub removed: &'a [&'a str],
    pub input: Vec<u8>,
}

/// Observer of a running process. Called from other threads.
pub trait Watch: Send + Sync + 'static {
    /// The process runs in a process group of its own.
    fn started(&self, group: Pid);
    /// The process has exited but is not reaped, so its id is still taken: stop signalling the group now.
    fn ended(&self);
    /// Line `::progress 40 halfway there` on stdout.
    fn progress(&self, percent: u8, note: String);
    /// Line on stderr.
    fn message(&self, line: &str);
}

/// End of a process.
#[derive(Debug)]
pub enum ProcessEnd {
    /// The command could not be started, which is not the fault of the job.
    NotStarted(String),
    Code {
        code: i32,
        stdout: Vec<u8>,
        stderr: String,
    },
    Signal {
        signal: i32,
        stderr: String,
    },
    /// The output exceeds the size limit of a result.
    TooMuch,
}

/// Runs the command to its end.
pub fn run(task: Task<'_>, watch: Arc<dyn Watch>) -> ProcessEnd {
    let mut child = match spawn(&task) {
        Ok(child) => child,
        Err(error) => {
            let program = task.command.first().map(String::as_str).unwrap_or_default();
            return ProcessEnd::NotStarted(format!(
                "cannot run {program}: {error}; is it installed and in PATH?"
            ));
        }
    };
    let group = Pid::from_child(&child);
    watch.started(group);
    if let Some(mut stdin) = child.stdin.take() {
        let input = task.input;
        // A write error is ignored: a command need not read its input.
        thread::spawn(move || drop(stdin.write_all(&input)));
    }
    let reports = Arc::clone(&watch);
    let stdout = gather(child.stdout.take(), move |pipe, into| read_result(pipe, &*reports, into));
    let messages = Arc::clone(&watch);
    let stderr = gather(child.stderr.take(), move |pipe, into| read_messages(pipe, &*messages, into));
    // Not reaped before the observer stops signalling: afterwards the process id may be reused.
    let _ = waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    watch.ended();
    let status = child.wait();
    let (stdout, stderr) = (stdout.take(), stderr.take());
    let stderr = String::from_utf8_lossy(&stderr).trim().to_string();
    match status {
        _ if stdout.len() > RESULT_BYTES_MAX => ProcessEnd::TooMuch,
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => ProcessEnd::Code { code, stdout, stderr },
            (None, signal) => ProcessEnd::Signal { signal: signal.unwrap_or(0), stderr },
        },
        Err(error) => ProcessEnd::Code {
            code: -1,
            stdout: Vec::new(),
            stderr: format!("cannot wait for the command: {error}"),
        },
    }
}

fn spawn(task: &Task<'_>) -> std::io::Result<Child> {
    let (program, args) = task.command.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    for name in task.removed {
        command.env_remove(name);
    }
    command
        .args(args)
        .envs(task.environment.iter().map(|(name, value)| (*name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A process group per job: Ctrl-C reaches only the worker, and stopping a job stops all its
        // processes.
        .process_group(0)
        .spawn()
}

/// Output being read from a pipe.
struct Gathering {
    output: Arc<Mutex<Vec<u8>>>,
    done: Receiver<()>,
}

impl Gathering {
    /// Returns the output after its end, or after a timeout: a process that left the group may keep the pipe
    /// open.
    fn take(self) -> Vec<u8> {
        let _ = self.done.recv_timeout(OUTPUT_PATIENCE);
        std::mem::take(&mut lock(&self.output))
    }
}

fn lock(output: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    output.lock()
}

fn gather<P: Read + Send + 'static>(
    pipe: Option<P>,
    read: impl FnOnce(BufReader<P>, &Mutex<Vec<u8>>) + Send + 'static,
) -> Gathering {
    let output = Arc::<Mutex<Vec<u8>>>::default();
    let (ending, done) = channel();
    let into = Arc::clone(&output);
    thread::spawn(move || {
        if let Some(pipe) = pipe {
            read(BufReader::new(pipe), &into);
        }
        let _ = ending.send(());
    });
    Gathering { output, done }
}

/// Next line, or a piece of a very long one. `None` at end of file.
fn next_piece(pipe: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut piece = Vec::new();
    match pipe.take(LINE_BYTES_MAX).read_until(b'\n', &mut piece) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(piece),
    }
}

/// Collects the output without progress lines, up to one byte more than allowed.
fn read_result(mut pipe: impl BufRead, watch: &dyn Watch, into: &Mutex<Vec<u8>>) {
    let mut line_begins = true;
    while let Some(piece) = next_piece(&mut pipe) {
        let progress = if line_begins { progress_in(&piece) } else { None };
        line_begins = piece.ends_with(b"\n");
        if let Some((percent, note)) = progress {
            watch.progress(percent, note);
            continue;
        }
        let mut kept = lock(into);
        let room = (RESULT_BYTES_MAX + 1).saturating_sub(kept.len());
        kept.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

/// Parses `::progress 40 halfway there`.
fn progress_in(line: &[u8]) -> Option<(u8, String)> {
    let words = std::str::from_utf8(line.strip_prefix(b"::progress ")?).ok()?.trim();
    let (percent, note) = words.split_once(' ').unwrap_or((words, ""));
    let percent: u8 = percent.trim_end_matches('%').parse().ok()?;
    Some((percent.min(100), note.trim().to_string()))
}

/// Passes lines to the observer and keeps the last bytes.
fn read_messages(mut pipe: impl BufRead, watch: &dyn Watch, into: &Mutex<Vec<u8>>) {
    while let Some(piece) = next_piece(&mut pipe) {
        watch.message(String::from_utf8_lossy(&piece).trim_end());
        let mut tail = lock(into);
        tail.extend_from_slice(&piece);
        let surplus = tail.len().saturating_sub(STDERR_BYTES_MAX);
        tail.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Watch for Notes {
        fn started(&self, _group: Pid) {}
        fn ended(&self) {
            self.0.lock().push("ended".to_owned());
        }
        fn progress(&self, percent: u8, note: String) {
            self.0.lock().push(format!("{percent} {note}"));
        }
        fn message(&self, line: &str) {
            self.0.lock().push(line.to_owned());
        }
    }

    fn sh(script: &str, input: &str) -> (ProcessEnd, Vec<String>) {
        let command = ["sh", "-c", script].map(str::to_owned);
        let environment = vec![("WINDLASS_JOB_ID", "7".to_owned())];
        let watch = Arc::new(Notes::default());
        let task = Task { command: &command, environment, removed: &[], input: input.as_bytes().to_vec() };
        let ended = run(task, watch.clone());
        let mut notes = watch.0.lock().clone();
        notes.sort();
        (ended, notes)
    }

    #[test]
    fn a_process_gets_its_input_and_environment_and_gives_its_output() {
        let (ended, notes) = sh("echo '::progress 40 half'; cat; echo $WINDLASS_JOB_ID; echo oh >&2", "in ");
        let ProcessEnd::Code { code: 0, stdout, stderr } = ended else { panic!("{ended:?}") };
        assert_eq!((stdout.as_slice(), stderr.as_str()), (&b"in 7\n"[..], "oh"));
        assert_eq!(notes, ["40 half", "ended", "oh"]);
    }

    #[test]
    fn ends_are_told_apart() {
        assert!(matches!(sh("exit 75", "").0, ProcessEnd::Code { code: EXIT_RETRY, .. }));
        assert!(matches!(sh("kill -9 $$", "").0, ProcessEnd::Signal { signal: 9, .. }));
        let nothing = ["no-such-program-here".to_owned()];
        let task = Task { command: &nothing, environment: Vec::new(), removed: &[], input: Vec::new() };
        let ProcessEnd::NotStarted(why) = run(task, Arc::new(Notes::default())) else { panic!("it started") };
        assert!(why.contains("no-such-program-here"), "{why}");
    }

    #[test]
    fn too_much_output_is_noticed_and_not_kept() {
        assert!(matches!(sh("head -c 20000000 /dev/zero", "").0, ProcessEnd::TooMuch));
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
        let text = "x".repeat(2 * STDERR_BYTES_MAX) + "the end";
        read_messages(text.as_bytes(), &Notes::default(), &into);
        let kept = lock(&into).clone();
        assert_eq!(kept.len(), STDERR_BYTES_MAX);
        assert!(kept.ends_with(b"the end"));
    }
}
