//! Job log: one JSON line for each job added, started and ended, in a rotated file. A thread writes it, and
//! callers never wait; if the disk is too slow, lines are dropped and the log reports their number.

use super::times;
use parking_lot::Mutex;
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use windlass_core::Timestamp;

/// Most chunks that wait for the disk; a chunk holds the lines of one call or batch.
const WAITING_MAX: usize = 4_096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    pub path: PathBuf,
    /// File size at which the log is rotated.
    pub bytes_max: u64,
    /// Rotated files kept: `jobs.log.1` is the newest.
    pub files_kept: usize,
}

/// Details of a job. Unset fields are left out.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Info<'a> {
    pub id: &'a str,
    #[serde(rename = "type")]
    pub jobtype: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// From the time it was due to the start of the run.
    #[serde(rename = "waitMs", skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exitcode: Option<u16>,
    /// Time in the handler.
    #[serde(rename = "runMs", skip_serializing_if = "Option::is_none")]
    pub run_ms: Option<u64>,
    /// From the add to the end.
    #[serde(rename = "totalMs", skip_serializing_if = "Option::is_none")]
    pub total_ms: Option<i64>,
    #[serde(rename = "resultBytes", skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<usize>,
    /// True for the last run of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<bool>,
}

#[derive(Serialize)]
struct LogLine<'a> {
    time: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    level: u8,
    id: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<Info<'a>>,
}

pub const ADDED: &str = "job added";
pub const STARTED: &str = "job started";
pub const ENDED: &str = "job ended";
/// The job was claimed but not run, and waits for another claim.
pub const RETURNED: &str = "job returned";

/// Lines written together.
pub struct LogLines<'a> {
    bytes: Vec<u8>,
    time: String,
    sysid: &'a str,
}

impl<'a> LogLines<'a> {
    pub fn new(now: Timestamp, sysid: &'a str) -> LogLines<'a> {
        LogLines { bytes: Vec::new(), time: times::iso(now), sysid }
    }

    pub fn push(&mut self, message: &str, info: Info<'_>) {
        let (time, info) = (self.time.clone(), Some(info));
        self.add(&LogLine { time: &time, kind: "INFO", level: 6, id: self.sysid, message, info });
    }

    /// Warning that concerns no single job.
    pub fn warn(&mut self, message: &str) {
        let (time, id) = (self.time.clone(), self.sysid);
        self.add(&LogLine { time: &time, kind: "WARNING", level: 4, id, message, info: None });
    }

    fn add(&mut self, line: &LogLine<'_>) {
        // Cannot fail: writes texts and numbers into memory.
        let _ = serde_json::to_writer(&mut self.bytes, line);
        self.bytes.push(b'\n');
    }
}

/// Costs nothing when the log is off.
#[derive(Default)]
pub struct JobLog {
    send: Mutex<Option<SyncSender<Vec<u8>>>>,
    left_out: AtomicU64,
    is_on: bool,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl JobLog {
    pub fn start(settings: Option<LogSettings>) -> io::Result<JobLog> {
        let Some(settings) = settings else { return Ok(JobLog::default()) };
        let (send, receive) = sync_channel(WAITING_MAX);
        let thread = thread::Builder::new()
            .name("job-log".to_owned())
            .spawn(move || write_all(&settings, &receive))?;
        Ok(JobLog {
            send: Mutex::new(Some(send)),
            left_out: AtomicU64::new(0),
            is_on: true,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// True if lines are written; callers skip building them otherwise.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    pub fn write(&self, lines: LogLines<'_>) {
        let send = self.send.lock();
        let Some(send) = &*send else { return };
        let mut lines = lines;
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            lines.warn(&format!("{left_out} parts of the log were dropped: the disk is too slow"));
        }
        if send.try_send(lines.bytes).is_err() {
            self.left_out.fetch_add(left_out + 1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines are written.
    pub async fn close(&self) {
        drop(self.send.lock().take());
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

fn write_all(settings: &LogSettings, receive: &Receiver<Vec<u8>>) {
    let mut file: Option<(File, u64)> = None;
    let mut complained = false;
    while let Ok(bytes) = receive.recv() {
        if let Err(error) = write(settings, &mut file, &bytes) {
            file = None;
            if !complained {
                tracing::error!(%error, "cannot write the job log {}", settings.path.display());
                complained = true;
            }
        }
    }
}

fn write(settings: &LogSettings, file: &mut Option<(File, u64)>, bytes: &[u8]) -> io::Result<()> {
    if file.as_ref().is_some_and(|(_, size)| *size > 0 && size + bytes.len() as u64 > settings.bytes_max) {
        *file = None;
        rotate(&settings.path, settings.files_kept)?;
    }
    if file.is_none() {
        if let Some(folder) = settings.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(&settings.path)?;
        let size = opened.metadata()?.len();
        *file = Some((opened, size));
    }
    if let Some((file, size)) = file {
        file.write_all(bytes)?;
        *size += bytes.len() as u64;
    }
    Ok(())
}

/// Renames `log.1` to `log.2` and so on; deletes the oldest.
fn rotate(path: &Path, kept: usize) -> io::Result<()> {
    let numbered = |n: usize| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{n}"));
        PathBuf::from(name)
    };
    if kept == 0 {
        return fs::remove_file(path);
    }
    for n in (1..kept).rev() {
        match fs::rename(numbered(n), numbered(n + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, numbered(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_json_and_files_are_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/jobs.log");
        let settings = LogSettings { path: path.clone(), bytes_max: 1_000, files_kept: 2 };
        let log = JobLog::start(Some(settings)).unwrap();
        for n in 0..40 {
            let id = format!("id-{n:03}");
            let mut lines = LogLines::new(Timestamp::from_millis(n), "vm-0000");
            lines.push(ENDED, Info { id: &id, jobtype: "a-\"b\"", exitcode: Some(200), ..Info::default() });
            log.write(lines);
        }
        log.close().await;
        let mut found = Vec::new();
        for name in ["jobs.log.2", "jobs.log.1", "jobs.log"] {
            let text = fs::read_to_string(folder.path().join("logs").join(name)).unwrap();
            assert!(text.len() <= 1_000, "{name}");
            for line in text.lines() {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(
                    (&line["type"], &line["level"], &line["id"]),
                    (&"INFO".into(), &6.into(), &"vm-0000".into())
                );
                assert_eq!(line["info"]["type"], "a-\"b\"");
                found.push(line["info"]["id"].as_str().unwrap().to_owned());
            }
        }
        assert!(found.is_sorted() && found.last().unwrap() == "id-039", "{found:?}");
        assert!(!folder.path().join("logs/jobs.log.3").exists());
    }

    #[tokio::test]
    async fn without_a_place_nothing_is_written() {
        let log = JobLog::start(None).unwrap();
        assert!(!log.is_on());
        log.write(LogLines::new(Timestamp::from_millis(0), "vm-0000"));
        log.close().await;
    }
}
