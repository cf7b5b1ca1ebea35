//! CreateJob and CreateJobs. All checks precede the first change.

use super::unique::{Batch, Entry};
use super::{Answered, Commands};
use crate::bedrock::errors::{self, StatusLine};
use crate::bedrock::params::{self, Params};
use crate::bedrock::profile::Profile;
use crate::bedrock::row::{self, RowState};
use crate::bedrock::wire::{Reply, Request};
use crate::bedrock::{json, times};
use std::sync::Arc;
use windlass_core::family::Family;
use windlass_core::lease::{LeasePolicy, OnLapse};
use windlass_core::repeat::{Repeat, Span};
use windlass_core::retry::{Backoff, RetryPolicy};
use windlass_core::unique::{HeldUntil, OnConflict, Unique};
use windlass_core::{Extras, Job, JobId, Keep, KeepFor, Name, Payload, Policy, Queue};
use windlass_engine::{Push, RunAt};

/// Priority of a job without one.
pub(super) const PRIORITY_DEFAULT: i64 = 500;

/// Specification of a new job, as far as it has been checked.
pub(super) struct Wanted {
    pub name: Name,
    /// In the stored form.
    pub data: Option<String>,
    pub priority: Option<i64>,
    pub first_run: Option<String>,
    pub repeat: Option<Repeat>,
    pub retry_after: Option<Span>,
    pub parent: Option<Arc<Job>>,
    pub is_unique: bool,
    /// An existing unique job may be changed.
    pub overwrites: bool,
    pub is_mocked: bool,
}

/// Result of the checks that precede the lookup of an existing unique job.
pub(super) struct Checked<'p> {
    params: &'p Params<'p>,
    profile: Profile,
    wanted: Wanted,
}

impl Commands<'_> {
    pub(super) async fn create_job(&self, request: &Request) -> Answered {
        let ids = self.create(&[Params::Headers(request)], request.get("mockrequest").is_some()).await?;
        let id = ids.first().map_or(0, |id| id.get());
        Ok(Reply::ok().with_body(format!("{{\"jobID\":{id}}}")).into())
    }

    pub(super) async fn create_jobs(&self, request: &Request) -> Answered {
        let jobs = request.given("jobs").filter(|jobs| json::is_array(jobs)).ok_or(errors::INVALID_JSON)?;
        let jobs = json::minified(jobs);
        let elements = json::elements(&jobs);
        let is_good = |element: &&str| element.starts_with('{') && *element != "{}";
        if elements.is_empty() || !elements.iter().all(is_good) {
            return Err(errors::INVALID_JSON);
        }
        if elements.iter().any(|element| !element.contains("name")) {
            return Err(errors::MISSING_NAME);
        }
        let all: Vec<Params<'_>> = elements.into_iter().map(Params::of_object).collect();
        let ids = self.create(&all, request.get("mockrequest").is_some()).await?;
        let ids: Vec<String> = ids.iter().map(JobId::to_string).collect();
        Ok(Reply::ok().with_body(format!("{{\"jobIDs\":[{}]}}", ids.join(","))).into())
    }

    /// Checks the jobs in the order of the protocol, and creates them. A parent whose mock setting differs
    /// from the request's flips the setting of the whole request, which then must match all other parents in
    /// it.
    async fn create(&self, all: &[Params<'_>], asks_mocked: bool) -> Result<Vec<JobId>, StatusLine> {
        let mut is_mocked = asks_mocked;
        let mut checked = Vec::with_capacity(all.len());
        for params in all {
            let mut one = Checked::first(params, self.shared.profile)?;
            if let Some(id) = parent_id(params) {
                let parent = self.active_parent(id?).await?;
                if row::is_mocked(&parent) != asks_mocked {
                    is_mocked = !asks_mocked;
                }
                one.wanted.parent = Some(parent);
            }
            checked.push(one);
        }
        let mut batch = Batch::default();
        for one in checked {
            self.add(&mut batch, one, is_mocked).await?;
        }
        self.make(batch).await
    }

    /// Makes the remaining checks of one job and adds it to the batch.
    async fn add(
        &self,
        batch: &mut Batch,
        mut checked: Checked<'_>,
        is_mocked: bool,
    ) -> Result<(), StatusLine> {
        checked.mark(is_mocked);
        let existing = self.existing(batch, &checked.wanted).await?;
        if let Some(entry) =
            existing.as_ref().and_then(|existing| existing.unchanged(&checked.wanted, self.shared.profile))
        {
            batch.entries.push(entry);
            return Ok(());
        }
        let wanted = checked.last(is_mocked)?;
        match existing {
            Some(existing) => batch.change(existing, wanted, self.shared.profile),
            None => batch.entries.push(Entry::New(Box::new(self.push_of(wanted)))),
        }
        Ok(())
    }

    async fn active_parent(&self, id: JobId) -> Result<Arc<Job>, StatusLine> {
        let parent = self.find(id).await?.ok_or(errors::NO_PARENT)?;
        match RowState::of(&parent) {
            // A child that waits for its own parent is PAUSED too; a later check refuses grandchildren.
            RowState::Running | RowState::Runqueued | RowState::Paused => Ok(parent),
            RowState::Queued | RowState::Finished | RowState::Failed | RowState::Cancelled => {
                Err(errors::PARENT_NOT_ACTIVE)
            }
        }
    }

    fn push_of(&self, wanted: Wanted) -> Push {
        let now = self.engine.now();
        let (run_at, fact) = match &wanted.first_run {
            None => (RunAt::Now, None),
            Some(text) => {
                let at = times::moment_of(text);
                (RunAt::At(at), row::next_run_fact(text, at, now))
            }
        };
        let queue = if wanted.is_mocked { row::MOCK_QUEUE } else { row::QUEUE };
        let family = wanted.parent.as_ref().map(|parent| Family {
            parent: parent.id,
            child_name: None,
            rule: self.shared.profile.family_rule(),
        });
        let unique = wanted.is_unique.then(|| Unique {
            key: unique_key(&wanted.name, wanted.is_mocked).into(),
            on_conflict: OnConflict::Return,
            held_until: HeldUntil::Forgotten,
        });
        let is_seen = wanted.parent.as_ref().map(|parent| parent.spec.policy.forgets_children());
        let policy = policy(self.shared.profile, wanted.repeat, wanted.retry_after, is_seen);
        let extras = Extras {
            origin: Some("bedrock".into()),
            facts: fact.map(|text| (row::NEXT_RUN.into(), text)).into_iter().collect(),
            unique,
            family,
            ..Extras::default()
        };
        Push {
            queue: Queue::new(queue).unwrap_or_default(),
            name: wanted.name,
            payload: Payload::json(wanted.data.as_deref().unwrap_or("{}")),
            priority: row::engine_priority(wanted.priority.unwrap_or(PRIORITY_DEFAULT)),
            run_at,
            policy: Arc::new(policy),
            extras: Some(Box::new(extras)),
            body: None,
        }
    }
}

/// Key of a unique job; real and mocked jobs have separate keys.
fn unique_key(name: &Name, is_mocked: bool) -> String {
    format!("{}:{name}", if is_mocked { row::MOCK_QUEUE } else { "bedrock" })
}

/// Policy of a job. The lease lasts until the report or, with `retryAfter`, for that span; a late report
/// counts as long as no other worker has claimed the job. Attempts are unbounded. A completed job is dropped,
/// and the settled children that its last run has seen are deleted with it. A completed child is kept until
/// then; `is_seen` is `None` for a job without parent, and `Some(false)` if the parent deletes no children.
pub fn policy(
    profile: Profile,
    repeat: Option<Repeat>,
    retry_after: Option<Span>,
    is_seen: Option<bool>,
) -> Policy {
    let kept = match is_seen {
        None => KeepFor::Drop,
        Some(true) => KeepFor::Ever,
        Some(false) => Keep::default().completed,
    };
    Policy {
        lease: LeasePolicy {
            length_ms: None,
            on_lapse: OnLapse::AtLeaseEnd,
            accept_late: true,
            ..LeasePolicy::default()
        },
        lease_span: retry_after,
        retry: RetryPolicy { max_attempts: None, backoff: Backoff::None, give_up_after_ms: None },
        keep: Keep { completed: kept, failed: KeepFor::Ever, cancelled: KeepFor::Ever },
        repeat,
        retry_moves_slot: profile.retry_moves_slot(),
        ..Policy::default()
    }
}

/// Id of the parent. Text that is not a number, and 0, mean no parent.
fn parent_id(params: &Params<'_>) -> Option<Result<JobId, StatusLine>> {
    let number = params::leading_number(params.given("parentjobid")?);
    let id = u64::try_from(number).ok().and_then(JobId::new);
    (number != 0).then(|| id.ok_or(errors::NO_PARENT))
}

/// Parses `repeat` by the rules of the profile; an empty text means no repeat.
pub(super) fn repeat_of(params: &Params<'_>, profile: Profile) -> Result<Option<Repeat>, StatusLine> {
    let Some(text) = params.given("repeat") else { return Ok(None) };
    let text = profile.repeat_text(text);
    // Refuses the repeat syntaxes of other dialects, which the engine would accept.
    windlass_core::repeat::modifiers::Schedule::parse(&text, profile.repeat_style())
        .map_err(|_| errors::MALFORMED_REPEAT)?;
    Repeat::parse_styled(&text, profile.repeat_style()).map(Some).map_err(|_| errors::MALFORMED_REPEAT)
}

impl<'p> Checked<'p> {
    fn first(params: &'p Params<'p>, profile: Profile) -> Result<Checked<'p>, StatusLine> {
        let name = params.name()?;
        let priority = params.priority("jobpriority")?;
        let data = params.get("data").map(params::checked_data).transpose()?.map(str::to_owned);
        let retry_after = match params.given("retryafter") {
            Some(text) => Some(Span::parse(text).map_err(|_| errors::MALFORMED_RETRY_AFTER)?),
            None => None,
        };
        let is_unique = params.get("unique") == Some("true");
        if retry_after.is_some() && !profile.combines_retry_after() {
            if params.given("repeat").is_some() {
                return Err(errors::RECURRING_RETRY);
            }
            if is_unique {
                return Err(errors::UNIQUE_RETRY);
            }
        }
        let wanted = Wanted {
            name,
            data,
            priority,
            first_run: params.given("firstrun").map(str::to_owned),
            repeat: None,
            retry_after,
            parent: None,
            is_unique,
            overwrites: params.given("overwrite").is_none_or(|text| text == "true"),
            is_mocked: false,
        };
        Ok(Checked { params, profile, wanted })
    }

    /// Sets the mock marker in the data of a mocked job, and marks a job whose data has it as mocked.
    fn mark(&mut self, is_mocked: bool) {
        let wanted = &mut self.wanted;
        let data = wanted.data.as_deref().unwrap_or("{}");
        wanted.is_mocked = is_mocked || row::says_mocked(data);
        if is_mocked {
            wanted.data = Some(mocked_data(data));
        }
    }

    fn last(self, is_mocked: bool) -> Result<Wanted, StatusLine> {
        let Checked { params, profile, mut wanted } = self;
        let repeat = repeat_of(params, profile)?;
        wanted.repeat = repeat.filter(|_| !wanted.is_mocked);
        if wanted.priority.is_none() {
            wanted.priority = params.priority("priority")?;
        }
        if let Some(parent) = &wanted.parent {
            if row::is_mocked(parent) != is_mocked {
                return Err(errors::OTHERWISE_MOCKED);
            }
            if parent.spec.family().is_some() {
                return Err(errors::GRANDCHILDREN);
            }
        }
        Ok(wanted)
    }
}

/// Returns the data with the mock marker. The protocol rewrites the whole object: members sorted by name,
/// values with guessed types.
fn mocked_data(data: &str) -> String {
    let data = json::minified(data);
    let mut all: Vec<(String, String)> = json::members(&data)
        .into_iter()
        .map(|member| (member.name().into_owned(), json::guessed(&json::plain(member.value)).into_owned()))
        .filter(|(name, _)| !name.eq_ignore_ascii_case("mockRequest"))
        .collect();
    all.push(("mockRequest".to_owned(), "true".to_owned()));
    all.sort_by_key(|(name, _)| name.to_ascii_lowercase());
    let quoted: Vec<(String, String)> =
        all.into_iter().map(|(name, value)| (json::quoted(&name), value)).collect();
    json::composed(quoted.iter().map(|(key, value)| json::Member { key, value }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mocked_data_is_written_anew() {
        let data = r#"{"b": "5", "A": "true", "c": 1.50, "d": {"x": "7"}, "e": "text"}"#;
        let expected = r#"{"A":true,"b":5,"c":"1.50","d":{"x":"7"},"e":"text","mockRequest":true}"#;
        assert_eq!(mocked_data(data), expected);
        assert_eq!(mocked_data("{}"), r#"{"mockRequest":true}"#);
    }
}
