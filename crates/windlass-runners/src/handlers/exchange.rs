//! Execution of a batch in a context: the messages sent, the expected replies, and errors.

use super::context::{Context, Heard};
use super::find::{NoContext, find_context};
use super::frames::{Frame, ReplyStatus, What};
use super::handler::Lang;
use super::interpreter::Launch;
use super::outcome::{TOO_MUCH, Verdict};
use super::output::Output;
use super::portions::{FIRST, next_size};
use super::run::{Drive, Interrupt};
use bytes::{BufMut, Bytes, BytesMut};
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::handler::{Ended, PrintedJob, Report, Status};

/// Runs the batch in as many contexts as it needs: if a context breaks, the job that ran in it fails and the
/// rest continue in another context. Each iteration ends at least one job.
pub(super) async fn drive(drive: &mut Drive) {
    let settings = &drive.inner.settings;
    let allowed = drive.inner.check_isolation();
    let launch = match allowed.and_then(|()| Launch::find(drive.batch.handler.lang, &settings.interpreters)) {
        Ok(launch) => launch,
        Err(why) => return drive.tell_all(&Verdict::error("BAD_HANDLER", why)),
    };
    let mut is_first = true;
    loop {
        let pending = drive.pending();
        if pending.is_empty() {
            return;
        }
        if !std::mem::replace(&mut is_first, false) && drive.is_cut() {
            return drive.tell_all_unrun(Interrupt::Cut.why());
        }
        let (mut context, seat) = match find_context(drive, &launch).await {
            Ok(found) => found,
            Err(NoContext::Interrupted(interrupt)) => return drive.tell_all_unrun(interrupt.why()),
            Err(NoContext::NotStarted(why)) => return drive.tell_all(&Verdict::error("NO_CONTEXT", why)),
        };
        let usable = Exchange { drive, context: &mut context, held: Vec::new() }.run(&pending).await;
        let worn = if usable { context.is_worn(drive.recycle_jobs()).await } else { None };
        match usable && worn.is_none() {
            true => seat.keep(context),
            false => {
                if let Some(why) = worn {
                    tracing::debug!(client = drive.batch.client, "a handler process is replaced: {why}");
                }
                context.kill().await;
            }
        }
    }
}

/// Conversation between one batch and one context.
struct Exchange<'a> {
    drive: &'a mut Drive,
    context: &'a mut Context,
    /// Outcomes held back until afterEach has run.
    held: Vec<(usize, Report)>,
}

/// Result of one part of the handler (before, beforeEach, job, afterEach).
enum PartEnd {
    Answered(Verdict, Bytes),
    /// The context is unusable; the part that was running has this verdict.
    Broke(Verdict),
    Interrupted(Interrupt),
}

impl Exchange<'_> {
    /// Returns true if the context can run another batch.
    async fn run(mut self, pending: &[usize]) -> bool {
        self.context.attend();
        let Some(handler) = self.define().await else { return false };
        let options = &self.drive.batch.handler.options;
        let usable = match options.batch {
            true => self.run_as_a_whole(handler, pending).await,
            false => self.run_one_by_one(handler, pending).await,
        };
        let reason = "the handler process exited before afterEach";
        self.release_held(Some(&Verdict::error("AFTER_EACH_FAILED", reason)));
        usable
    }

    fn is_sh(&self) -> bool {
        self.drive.batch.handler.lang == Lang::Sh
    }

    fn new_output(&self) -> Output {
        Output::new(self.drive.limits())
    }

    /// Number of the handler within the context, sending the code first if needed; `None` if that fails.
    async fn define(&mut self) -> Option<usize> {
        let batch = &self.drive.batch;
        if let Some((_, number)) = self.context.handlers.get(&batch.jobtype) {
            return Some(*number);
        }
        let number = self.context.handlers.len();
        if let Err(error) = self.send_handler(number) {
            self.drive.tell_all(&Verdict::error(
                "NO_CONTEXT",
                format!("cannot write the code of the handler: {error}"),
            ));
            return None;
        }
        let mut output = self.new_output();
        let end = self.part(What::Before, None, &mut output, self.drive.time_limit()).await;
        match end {
            PartEnd::Answered(verdict, _) if Status::of(verdict.exitcode) == Status::Ok => {
                if let Some(before) = &self.drive.batch.handler.before {
                    self.context.before.get_or_insert_with(|| before.clone());
                }
                let (jobtype, version) = (self.drive.batch.jobtype.clone(), self.drive.batch.version.clone());
                self.context.handlers.insert(jobtype, (version, number));
                self.context.note_rest();
                Some(number)
            }
            PartEnd::Answered(verdict, data) => {
                self.fail_all("BEFORE_FAILED", "before", verdict, &data, output);
                None
            }
            PartEnd::Broke(verdict) => {
                self.fail_all("BEFORE_FAILED", "before", verdict, b"", output);
                None
            }
            PartEnd::Interrupted(interrupt) => {
                self.drive.tell_all_unrun(interrupt.why());
                None
            }
        }
    }

    fn send_handler(&mut self, number: usize) -> std::io::Result<()> {
        let handler = self.drive.batch.handler.clone();
        // Handlers that share a context have the same `before`, and it has run.
        let before = handler.before.as_ref().filter(|_| self.context.before.is_none()).cloned();
        if self.is_sh() {
            let parts = [
                ("before", &before),
                ("beforeEach", &handler.before_each),
                ("body", &Some(handler.body.clone())),
                ("afterEach", &handler.after_each),
            ];
            for (name, code) in parts {
                if let Some(code) = code {
                    self.context.write_file(&format!("{number}.{name}"), format!("{code}\n").as_bytes())?;
                }
            }
            self.context.send(format!("H {number} 0\n"));
            return Ok(());
        }
        let parts = serde_json::json!({
            "jobtype": self.drive.batch.jobtype,
            "before": before,
            "beforeEach": handler.before_each,
            "body": handler.body,
            "afterEach": handler.after_each,
        });
        let parts = parts.to_string();
        self.context.send(format!("H {number} {}\n{parts}", parts.len()));
        Ok(())
    }

    /// Fails all pending jobs because before or beforeEach failed.
    fn fail_all(&mut self, code: &str, part: &str, verdict: Verdict, data: &[u8], output: Output) {
        let data = String::from_utf8_lossy(data);
        let why = verdict.message.unwrap_or_else(|| match data.is_empty() {
            true => format!("status {}", verdict.exitcode),
            false => data.into_owned(),
        });
        let verdict = Verdict::error(code, format!("{part} failed: {why}"));
        let mut log = Some(output.finish().log);
        for index in self.drive.pending() {
            let mut outcome = Report::from(verdict.clone());
            // The log goes to the first job only.
            outcome.log = log.take().unwrap_or_default();
            self.drive.tell(index, Ended::Done(outcome));
        }
    }

    /// Sends jobs in portions, because only the context can return jobs that were sent, and only between two
    /// of them.
    async fn run_one_by_one(&mut self, handler: usize, pending: &[usize]) -> bool {
        let mut left = pending;
        let mut size = if self.is_sh() { 1 } else { FIRST };
        let mut sent = &left[..size.min(left.len())];
        self.context.send(format!("B {handler} {} each 0\n", sent.len()));
        if !self.is_sh() {
            self.send_jobs(sent);
        }
        let Some(mut output) = self.before_each().await else { return false };
        loop {
            let began = match self.run_sent(sent, pending.len() - left.len(), &mut output).await {
                Ok(began) => began,
                Err(()) => return false,
            };
            left = &left[began..];
            if left.is_empty() {
                break;
            }
            if self.drive.is_cut() {
                left.iter().for_each(|index| {
                    self.drive.tell(*index, Ended::Unrun(Interrupt::Cut.why().to_owned()));
                });
                break;
            }
            size = if self.is_sh() { 1 } else { next_size(sent.len(), began) };
            sent = &left[..size.min(left.len())];
            if !self.is_sh() {
                self.context.send(format!("M {} 0\n", sent.len()));
                self.send_jobs(sent);
            }
        }
        self.after_each().await
    }

    /// Runs the sent jobs and returns how many were started. `Err`: the context is unusable and all outcomes
    /// are reported. `before`: jobs of this batch that the shell shim has already counted.
    async fn run_sent(&mut self, sent: &[usize], before: usize, output: &mut Output) -> Result<usize, ()> {
        for (place, index) in sent.iter().copied().enumerate() {
            if self.is_sh()
                && let Err(error) = self.send_payload_file(&[index])
            {
                self.drive
                    .tell_all(&Verdict::error("NO_CONTEXT", format!("cannot write the payload: {error}")));
                return Err(());
            }
            let number = if self.is_sh() { before } else { place };
            let began = Instant::now();
            let limit = self.drive.time_limit();
            let end = self.part(What::Job(number), Some(index), output, limit).await;
            if matches!(end, PartEnd::Interrupted(Interrupt::Cut)) {
                return Ok(place);
            }
            let printed = std::mem::replace(output, self.new_output());
            self.context.jobs = self.context.jobs.saturating_add(1);
            match end {
                PartEnd::Answered(verdict, data) => {
                    self.job_ended(index, verdict, data, printed, began.elapsed());
                }
                PartEnd::Broke(verdict) => {
                    let outcome = self.drive.outcome(verdict, Bytes::new(), printed, began.elapsed());
                    self.drive.tell(index, Ended::Done(outcome));
                    return Err(());
                }
                PartEnd::Interrupted(interrupt) => {
                    self.interrupted(index, interrupt);
                    return Err(());
                }
            }
        }
        Ok(sent.len())
    }

    fn interrupted(&mut self, index: usize, interrupt: Interrupt) {
        match interrupt {
            Interrupt::Stopped => self.drive.tell(index, Ended::Unrun(interrupt.why().to_owned())),
            Interrupt::Dropped | Interrupt::Stopping | Interrupt::Cut => {
                self.release_held(Some(&Verdict::error("AFTER_EACH_FAILED", interrupt.why())));
                self.drive.tell_all_unrun(interrupt.why());
            }
        }
    }

    fn job_ended(&mut self, index: usize, verdict: Verdict, data: Bytes, printed: Output, took: Duration) {
        let outcome = self.drive.outcome(verdict, data, printed, took);
        self.tell_or_hold(index, outcome);
    }

    fn tell_or_hold(&mut self, index: usize, outcome: Report) {
        match self.drive.batch.handler.after_each.is_some() {
            true => self.held.push((index, outcome)),
            false => self.drive.tell(index, Ended::Done(outcome)),
        }
    }

    fn send_jobs(&mut self, pending: &[usize]) {
        let jobs = &self.drive.batch.jobs;
        let bytes: usize = pending.iter().map(|index| jobs[*index].payload.len() + 80).sum();
        let mut order = BytesMut::with_capacity(bytes);
        for index in pending {
            let job = &jobs[*index];
            let header = format!("J {} {} {}\n", word(&job.id), job.attempt, job.payload.len());
            order.put_slice(header.as_bytes());
            order.put_slice(&job.payload);
        }
        self.context.send(order.freeze());
    }

    fn send_payload_file(&mut self, indexes: &[usize]) -> std::io::Result<()> {
        self.context.write_file("payload", &self.drive.lines(indexes))?;
        let jobs = &self.drive.batch.jobs;
        let first = indexes.first().map(|index| &jobs[*index]);
        let (id, attempt) = first.map_or(("-", 0), |job| (job.id.as_str(), job.attempt));
        self.context.send(format!("J {} {attempt} 0\n", word(id)));
        Ok(())
    }

    async fn run_as_a_whole(&mut self, handler: usize, pending: &[usize]) -> bool {
        // The shell shim gets all payloads in one file.
        let orders = if self.is_sh() { 1 } else { pending.len() };
        self.context.send(format!("B {handler} {orders} all 0\n"));
        if !self.is_sh() {
            self.send_jobs(pending);
        }
        let Some(before) = self.before_each().await else { return false };
        if self.is_sh()
            && let Err(error) = self.send_payload_file(pending)
        {
            self.drive.tell_all(&Verdict::error("NO_CONTEXT", format!("cannot write the payload: {error}")));
            return false;
        }
        let began = Instant::now();
        let mut output = Output::with_statuses(self.drive.limits(), pending.len());
        output.stderr(&before.finish().log);
        let jobs = u32::try_from(pending.len()).unwrap_or(u32::MAX);
        let limit = self.drive.whole_time_limit(pending.len());
        let end = self.part(What::WholeBatch, None, &mut output, limit).await;
        self.context.jobs = self.context.jobs.saturating_add(jobs);
        let (verdict, usable) = match end {
            PartEnd::Answered(verdict, _) => (verdict, true),
            PartEnd::Broke(verdict) => (verdict, false),
            PartEnd::Interrupted(interrupt) => {
                self.drive.tell_all_unrun(interrupt.why());
                return false;
            }
        };
        for (index, outcome) in self.drive.status_outcomes(pending, &verdict, usable, output, began.elapsed())
        {
            self.tell_or_hold(index, outcome);
        }
        usable && self.after_each().await
    }

    /// Runs beforeEach and returns its output, for the log of the first job. `None`: no job can run.
    async fn before_each(&mut self) -> Option<Output> {
        let mut output = self.new_output();
        if self.drive.batch.handler.before_each.is_none() {
            return Some(output);
        }
        match self.part(What::BeforeEach, None, &mut output, self.drive.time_limit()).await {
            PartEnd::Answered(verdict, _) if Status::of(verdict.exitcode) == Status::Ok => {
                return Some(output);
            }
            PartEnd::Answered(verdict, data) => {
                self.fail_all("BEFORE_EACH_FAILED", "beforeEach", verdict, &data, output);
            }
            PartEnd::Broke(verdict) => {
                self.fail_all("BEFORE_EACH_FAILED", "beforeEach", verdict, b"", output)
            }
            PartEnd::Interrupted(interrupt) => self.drive.tell_all_unrun(interrupt.why()),
        }
        None
    }

    async fn after_each(&mut self) -> bool {
        if self.drive.batch.handler.after_each.is_none() {
            return true;
        }
        self.context.send("E 0\n");
        let mut output = self.new_output();
        let end = self.part(What::AfterEach, None, &mut output, self.drive.time_limit()).await;
        let (failure, usable) = match end {
            PartEnd::Answered(verdict, _) if Status::of(verdict.exitcode) == Status::Ok => (None, true),
            PartEnd::Answered(verdict, data) => {
                let said = String::from_utf8_lossy(&data).into_owned();
                (Some(verdict.message.unwrap_or(said)), false)
            }
            PartEnd::Broke(verdict) => (Some(verdict.message.unwrap_or(verdict.code)), false),
            PartEnd::Interrupted(interrupt) => (Some(interrupt.why().to_owned()), false),
        };
        let finished = output.finish();
        if let Some((_, last)) = self.held.last_mut() {
            append(last, finished.log, finished.new_jobs);
        }
        let failure =
            failure.map(|why| Verdict::error("AFTER_EACH_FAILED", format!("afterEach failed: {why}")));
        self.release_held(failure.as_ref());
        usable
    }

    /// Reports the held outcomes. If afterEach failed, successful jobs fail as well.
    fn release_held(&mut self, failure: Option<&Verdict>) {
        for (index, mut outcome) in std::mem::take(&mut self.held) {
            if let Some(verdict) = failure
                && outcome.status() == Status::Ok
            {
                outcome = Report {
                    exitcode: verdict.exitcode,
                    code: verdict.code.clone(),
                    message: verdict.message.clone(),
                    result: Bytes::new(),
                    ..outcome
                };
            }
            self.drive.tell(index, Ended::Done(outcome));
        }
    }

    /// Waits for the end of one part.
    async fn part(
        &mut self,
        what: What,
        running: Option<usize>,
        output: &mut Output,
        limit: Duration,
    ) -> PartEnd {
        let deadline = Instant::now() + limit;
        let mut result = Bytes::new();
        loop {
            let heard = match running.is_some_and(|index| self.drive.is_stopped(index)) {
                true => return PartEnd::Interrupted(Interrupt::Stopped),
                false => tokio::select! {
                    biased;
                    heard = self.context.hear(output, deadline) => heard,
                    interrupt = self.drive.interrupted(running) => return PartEnd::Interrupted(interrupt),
                },
            };
            match heard {
                Heard::Frame(Frame::Output { stream: 1, bytes }) => output.stdout(&bytes),
                Heard::Frame(Frame::Output { stream: 3, bytes }) => result = bytes,
                Heard::Frame(Frame::Output { bytes, .. }) => output.stderr(&bytes),
                // Messages of the guard process were handled at startup.
                Heard::Frame(Frame::Word { .. }) => {}
                Heard::Frame(Frame::Reply { what: answered, status, data }) if answered == what => {
                    if self.is_sh() {
                        self.context.drain(output);
                    }
                    let verdict = match status {
                        ReplyStatus::TooMuch => self.drive.result_too_large(),
                        _ => verdict_of(status, &data),
                    };
                    let data = match (result.is_empty(), verdict.message.is_some()) {
                        (false, _) => result,
                        // An error message is not a result.
                        (true, true) => Bytes::new(),
                        (true, false) => data,
                    };
                    return PartEnd::Answered(verdict, data);
                }
                // The context may return jobs only after the first job of a portion.
                Heard::Frame(Frame::Reply { what: What::Rest, .. }) if matches!(what, What::Job(place) if place > 0) =>
                {
                    return PartEnd::Interrupted(Interrupt::Cut);
                }
                Heard::Frame(Frame::Reply { what: other, .. }) => {
                    let message = format!("the handler process replied {other:?} instead of {what:?}");
                    return PartEnd::Broke(Verdict::error("INVALID_RESPONSE", message));
                }
                Heard::Late => {
                    let message = format!("the handler exceeded its time limit of {} s", limit.as_secs_f64());
                    return PartEnd::Broke(Verdict::error("ETIMEDOUT", message));
                }
                Heard::Unbearable(verdict) | Heard::Gone(verdict) => return PartEnd::Broke(verdict),
            }
        }
    }
}

fn append(outcome: &mut Report, log: Bytes, new_jobs: Vec<PrintedJob>) {
    if !log.is_empty() {
        outcome.log = [&outcome.log[..], &log].concat().into();
    }
    if outcome.code != TOO_MUCH {
        outcome.new_jobs.extend(new_jobs);
    }
}

fn verdict_of(status: ReplyStatus, data: &Bytes) -> Verdict {
    let said = || String::from_utf8_lossy(data).into_owned();
    match status {
        ReplyStatus::Status(exitcode) => Verdict::status(exitcode),
        ReplyStatus::Exit(code) => Verdict::exit(code),
        ReplyStatus::Exception => Verdict::error("EXCEPTION", said()),
        ReplyStatus::NoStatus => Verdict::error("INVALID_RESPONSE", said()),
        ReplyStatus::TooMuch => Verdict::error(TOO_MUCH, said()),
    }
}

/// Job id as a single word for the socket protocol.
fn word(id: &str) -> String {
    let safe = |letter: char| if letter.is_ascii_graphic() { letter } else { '_' };
    match id.is_empty() {
        true => "-".to_owned(),
        false => id.chars().map(safe).take(60).collect(),
    }
}
