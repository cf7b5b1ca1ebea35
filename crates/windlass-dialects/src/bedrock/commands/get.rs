//! GetJob and GetJobs: claims.

use super::{Answered, CommandOutcome, Commands};
use crate::bedrock::errors::{self, StatusLine};
use crate::bedrock::json::{self, Writer, guessed, quoted};
use crate::bedrock::params::{self, Params};
use crate::bedrock::row::{self, Row, RowState};
use crate::bedrock::wire::{Reply, Request};
use std::sync::Arc;
use windlass_core::event::{Patch, RetryWish};
use windlass_core::{Event, Holder, Job, JobId, Outcome as Ending, Payload, Queue};
use windlass_engine::{Claim, Delivery, Stop};

/// Wait of a claim without a `timeout` header.
const WAIT_MS_DEFAULT: u64 = 60_000;
/// Longest wait for one reply.
const WAIT_MS_MAX: u64 = 86_400_000;

/// Time that a claim waits for a job; 0: no wait.
pub fn patience_ms(request: &Request, waits: bool) -> u64 {
    let asks_to = request.get("connection").is_some_and(|text| text.eq_ignore_ascii_case("wait"));
    if !waits || !asks_to {
        return 0;
    }
    match request.given("timeout") {
        None => WAIT_MS_DEFAULT,
        Some(text) => u64::try_from(params::leading_number(text)).unwrap_or(0).min(WAIT_MS_MAX),
    }
}

impl Commands<'_> {
    pub(super) async fn get_job(&self, request: &Request) -> Answered {
        let (names, priority) = self.asked_for(request, |request| {
            let has_number = request.given("numresults").is_some();
            if has_number { Err(errors::NUM_RESULTS_WITH_GET_JOB) } else { Ok(()) }
        })?;
        let (delivery, rows) = self.hand_out(request, names, priority, 1).await?;
        let body = rows.into_iter().next().unwrap_or_else(|| "{}".to_owned());
        Ok(CommandOutcome { reply: Reply::ok().with_body(body), delivery: Some(delivery) })
    }

    pub(super) async fn get_jobs(&self, request: &Request) -> Answered {
        let (names, priority) = self.asked_for(request, |request| {
            let has_number = request.given("numresults").is_some();
            if has_number { Ok(()) } else { Err(errors::MISSING_NUM_RESULTS) }
        })?;
        let count = params::leading_number(request.get("numresults").unwrap_or_default()).max(1);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let (delivery, rows) = self.hand_out(request, names, priority, count).await?;
        let body = format!("{{\"jobs\":[{}]}}", rows.join(","));
        Ok(CommandOutcome { reply: Reply::ok().with_body(body), delivery: Some(delivery) })
    }

    /// Makes the checks in the order of the protocol.
    fn asked_for(
        &self,
        request: &Request,
        number: impl FnOnce(&Request) -> Result<(), StatusLine>,
    ) -> Result<(windlass_core::NameMatch, Option<i64>), StatusLine> {
        let names = params::wanted_names(request)?;
        number(request)?;
        Ok((names, Params::Headers(request).priority("jobpriority")?))
    }

    /// Claims jobs, and renders each for its worker.
    async fn hand_out(
        &self,
        request: &Request,
        names: windlass_core::NameMatch,
        priority: Option<i64>,
        limit: usize,
    ) -> Result<(Delivery, Vec<String>), StatusLine> {
        let is_mocked = ["mockrequest", "getmockedjobs"].iter().any(|name| request.get(name).is_some());
        let queues: &[&str] = if is_mocked { &[row::QUEUE, row::MOCK_QUEUE] } else { &[row::QUEUE] };
        let claim = Claim {
            tenant: self.tenant.clone(),
            queues: queues.iter().filter_map(|queue| Queue::new(queue).ok()).collect(),
            names,
            priority: priority.map(row::engine_priority),
            limit,
            wait_ms: patience_ms(request, self.shared.profile.waits()),
            lease_ms: None,
            worker: request.given("requestid").map(Into::into),
        };
        let mut delivery = self.engine.claim(claim).await?;
        if delivery.jobs.is_empty() {
            return Err(errors::NO_JOB_FOUND);
        }
        self.fail_what_must_not_run(&mut delivery).await?;
        let mut rows = Vec::with_capacity(delivery.jobs.len());
        for job in &delivery.jobs {
            rows.push(self.job_json(job).await?);
        }
        for job in delivery.jobs.iter().filter(|job| row::stores_original_next_run(job)) {
            self.write_slot(job).await?;
        }
        Ok((delivery, rows))
    }

    /// Fails claimed jobs that have used up their claims, or whose name is on the crash list.
    async fn fail_what_must_not_run(&self, delivery: &mut Delivery) -> Result<(), StatusLine> {
        let (fail, keep): (Vec<Arc<Job>>, Vec<Arc<Job>>) =
            delivery.jobs.iter().cloned().partition(|job| self.must_not_run(job));
        if fail.is_empty() {
            return Ok(());
        }
        for job in fail {
            self.fail(&job).await?;
        }
        delivery.jobs = keep;
        Ok(())
    }

    /// Ends a run that no worker has begun, even if the job is changed concurrently: otherwise it would stay
    /// claimed forever.
    async fn fail(&self, job: &Job) -> Result<(), StatusLine> {
        self.change_run(job, |job, by| {
            let outcome = Ending {
                message: Some(
                    "failed when it was claimed: blocked by CrashBedrockJob, or claimed too often".to_owned(),
                ),
                ..Ending::default()
            };
            // This claim does not count.
            let attempts = Some(job.progress.attempts.saturating_sub(1));
            let uncounted = Patch { attempts, ..Patch::default() };
            vec![Event::fail(by, outcome, RetryWish::Never), Event::Update(Box::new(uncounted))]
        })
        .await
    }

    /// Writes the original `nextRun` of this run into the job's data, even if the job is changed
    /// concurrently.
    async fn write_slot(&self, job: &Job) -> Result<(), StatusLine> {
        let slot = quoted(&Row::before_run(job).next_run);
        self.change_run(job, |job, _| {
            let data = row::payload_text(&job.spec.payload);
            if !json::is_object(&data) {
                return Vec::new();
            }
            let payload = Some(Payload::json(&json::with(&data, row::SLOT, &slot)));
            vec![Event::Update(Box::new(Patch { payload, ..Patch::default() }))]
        })
        .await
    }

    /// Changes a job that was claimed a moment ago, unless that run has ended.
    async fn change_run(
        &self,
        job: &Job,
        decide: impl Fn(&Job, Holder) -> Vec<Event> + Sync,
    ) -> Result<(), StatusLine> {
        let id = job.id;
        let token = |job: &Job| job.state().lease().map(|lease| lease.token);
        let Some(ours) = token(job) else { return Ok(()) };
        let changed = self.engine.transact(self.tenant, vec![id], |tx| {
            let Some(job) = tx.job(id)?.filter(|job| token(job) == Some(ours)) else { return Ok(()) };
            for event in decide(&job, Holder::Token(ours)) {
                if tx.apply(id, event)?.is_err() {
                    break;
                }
            }
            Ok::<_, Stop<StatusLine>>(())
        });
        changed.await
    }

    fn must_not_run(&self, job: &Job) -> bool {
        let crashed = self.shared.crashed.read();
        let is_worn_out =
            self.shared.profile.hand_outs_max().is_some_and(|max| row::has_used_up_claims(job, max));
        let mut crashed = crashed.get(self.tenant).into_iter().flatten();
        is_worn_out || crashed.any(|glob| glob.matches(&job.spec.name))
    }

    /// Renders a job as JSON, with members sorted by name as in the protocol.
    async fn job_json(&self, job: &Job) -> Result<String, StatusLine> {
        let row = Row::before_run(job);
        let children = self.settled_children(job).await?;
        let parent = match job.spec.family() {
            Some(family) => self.find(family.parent).await?,
            None => None,
        };
        let mut out = Writer::new();
        if let Some((_, cancelled)) = &children {
            out.put("cancelledChildJobs", cancelled);
        }
        out.put("created", &guessed(&row.created)).put("data", &row.data);
        if let Some((finished, _)) = &children {
            out.put("finishedChildJobs", finished);
        }
        out.put("jobID", &row.job_id.to_string())
            .put("lastRun", &guessed(row.last_run.as_deref().unwrap_or_default()))
            .put("name", &self.name_text(row.name))
            .put("nextRun", &guessed(&row.next_run));
        if let Some(parent) = &parent {
            out.put("parentData", &Row::of(parent).data).put("parentJobID", &row.parent_job_id.to_string());
        }
        out.put("priority", &row.priority.to_string())
            .put("repeat", &guessed(row.repeat))
            .put("retryAfter", &guessed(row.retry_after));
        Ok(out.finish())
    }

    pub(super) fn name_text(&self, name: &str) -> String {
        if self.shared.profile.guesses_names() { guessed(name).into_owned() } else { quoted(name) }
    }

    /// Finished and cancelled children of a parent, for its next run; `None`: there are none.
    async fn settled_children(&self, job: &Job) -> Result<Option<(String, String)>, StatusLine> {
        // Created and claimed, with no other change: it never had children.
        if job.version <= 2 {
            return Ok(None);
        }
        let children = self.engine.children(self.tenant, job.id).await?;
        let list = |state: RowState| {
            let of_state = children.iter().filter(|child| RowState::of(child) == state);
            let texts: Vec<String> = of_state.map(|child| child_text(child)).collect();
            (texts.len(), format!("[{}]", texts.join(",")))
        };
        let (finished, cancelled) = (list(RowState::Finished), list(RowState::Cancelled));
        Ok((finished.0 + cancelled.0 > 0).then_some((finished.1, cancelled.1)))
    }
}

fn child_text(child: &Job) -> String {
    let id: JobId = child.id;
    Writer::new().put("data", &Row::of(child).data).put("jobID", &id.to_string()).finish()
}
