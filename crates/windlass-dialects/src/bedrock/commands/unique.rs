//! Batch of jobs to create, and the meaning of `unique` in it: a job whose name exists already, in the store
//! or earlier in the batch, is that job.

use super::Commands;
use super::create::{PRIORITY_DEFAULT, Wanted};
use crate::bedrock::errors::{self, StatusLine};
use crate::bedrock::profile::Profile;
use crate::bedrock::{json, row};
use std::sync::Arc;
use windlass_core::event::Patch;
use windlass_core::repeat::Repeat;
use windlass_core::{Event, Job, JobId, Payload, Policy, Queue};
use windlass_engine::{Push, PushRefused, Pushed, Stop};

#[derive(Default)]
pub(super) struct Batch {
    pub entries: Vec<Entry>,
}

pub(super) enum Entry {
    New(Box<Push>),
    /// Same job as an earlier entry of the batch.
    Same(usize),
    Existing(JobId),
    /// Exists already and is changed.
    Changed(JobId, Box<Change>),
}

/// Fields that an existing unique job takes over from the request.
#[derive(Clone)]
pub(super) struct Change {
    data: Option<String>,
    priority: Option<i64>,
    repeat: Option<Repeat>,
    profile: Profile,
}

/// Existing job of the same name.
pub(super) enum Existing {
    Stored(Arc<Job>),
    /// Index in the batch.
    Pending(usize, Payload),
}

impl Existing {
    /// Returns the entry if nothing changes.
    pub(super) fn unchanged(&self, wanted: &Wanted, profile: Profile) -> Option<Entry> {
        let payload = match self {
            Existing::Stored(job) => &job.spec.payload,
            Existing::Pending(_, payload) => payload,
        };
        let same_data = *row::payload_text(payload) == *wanted.data.as_deref().unwrap_or("{}");
        let unchanged = !wanted.overwrites || (!profile.unique_replaces() && same_data);
        unchanged.then(|| match self {
            Existing::Stored(job) => Entry::Existing(job.id),
            Existing::Pending(place, _) => Entry::Same(*place),
        })
    }
}

impl Batch {
    pub(super) fn change(&mut self, existing: Existing, wanted: Wanted, profile: Profile) {
        let change = Change { data: wanted.data, priority: wanted.priority, repeat: wanted.repeat, profile };
        match existing {
            Existing::Stored(job) => self.entries.push(Entry::Changed(job.id, Box::new(change))),
            Existing::Pending(place, _) => {
                if let Some(Entry::New(push)) = self.entries.get_mut(place) {
                    change.apply(push);
                }
                self.entries.push(Entry::Same(place));
            }
        }
    }

    fn pending(&self, name: &str, queue: &str) -> Option<(usize, Payload)> {
        self.entries.iter().enumerate().find_map(|(place, entry)| match entry {
            Entry::New(push) if push.name.as_str() == name && push.queue.as_str() == queue => {
                Some((place, push.payload.clone()))
            }
            _ => None,
        })
    }
}

impl Change {
    fn data(&self, stored: &Payload) -> Option<Payload> {
        let data = self.data.as_deref();
        if self.profile.unique_replaces() {
            return data.map(Payload::json);
        }
        Some(Payload::json(&json::merged(&row::payload_text(stored), data.unwrap_or("{}"))))
    }

    fn priority(&self) -> Option<i32> {
        let absent = (!self.profile.unique_replaces()).then_some(PRIORITY_DEFAULT);
        self.priority.or(absent).map(row::engine_priority)
    }

    /// `Some(None)`: repeat is cleared.
    fn repeat(&self) -> Option<Option<Repeat>> {
        let absent = (!self.profile.unique_replaces()).then_some(None);
        self.repeat.clone().map(Some).or(absent)
    }

    fn patch(&self, job: &Job) -> Patch {
        Patch {
            payload: self.data(&job.spec.payload),
            priority: self.priority(),
            repeat: self.repeat(),
            ..Patch::default()
        }
    }

    fn apply(&self, push: &mut Push) {
        push.payload = self.data(&push.payload).unwrap_or_else(|| push.payload.clone());
        push.priority = self.priority().unwrap_or(push.priority);
        if let Some(repeat) = self.repeat() {
            push.policy = Arc::new(Policy { repeat, ..Policy::clone(&push.policy) });
        }
    }
}

impl Commands<'_> {
    /// Finds the existing job that a unique job stands for.
    pub(super) async fn existing(
        &self,
        batch: &Batch,
        wanted: &Wanted,
    ) -> Result<Option<Existing>, StatusLine> {
        if !wanted.is_unique {
            return Ok(None);
        }
        let queue = if wanted.is_mocked { row::MOCK_QUEUE } else { row::QUEUE };
        if let Some((place, payload)) = batch.pending(&wanted.name, queue) {
            return Ok(Some(Existing::Pending(place, payload)));
        }
        let queue = Queue::new(queue).unwrap_or_default();
        let Some(id) = self.engine.find_named(self.tenant, &queue, &wanted.name).await? else {
            return Ok(None);
        };
        let Some(job) = self.find(id).await? else { return Ok(None) };
        let wanted_parent = wanted.parent.as_ref().map(|parent| parent.id);
        let has_other_parent = job.spec.family().is_some_and(|family| Some(family.parent) != wanted_parent);
        if has_other_parent { Err(errors::OTHER_PARENT) } else { Ok(Some(Existing::Stored(job))) }
    }

    /// Applies the changes, then creates the jobs: a client that lost the reply may safely repeat the
    /// changes, but not the creation. Returns one id per entry.
    pub(super) async fn make(&self, batch: Batch) -> Result<Vec<JobId>, StatusLine> {
        for entry in &batch.entries {
            if let Entry::Changed(id, change) = entry {
                self.update_existing(*id, change).await?;
            }
        }
        let pushes: Vec<Push> = batch
            .entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::New(push) => Some(Push::clone(push)),
                _ => None,
            })
            .collect();
        let pushed =
            if pushes.is_empty() { Vec::new() } else { self.engine.push(self.tenant, pushes).await? };
        if let Some(refused) = pushed.iter().find_map(refusal) {
            return Err(self.delete_created(&pushed, refused).await);
        }
        let mut made = pushed.into_iter().filter_map(Pushed::id);
        let mut ids: Vec<Option<JobId>> = Vec::with_capacity(batch.entries.len());
        for entry in &batch.entries {
            ids.push(match entry {
                Entry::New(_) => made.next(),
                Entry::Same(place) => ids.get(*place).copied().flatten(),
                Entry::Existing(id) | Entry::Changed(id, _) => Some(*id),
            });
        }
        Ok(ids.into_iter().flatten().collect())
    }

    /// Deletes the jobs of a batch that was partly refused, because a parent ended between the check and the
    /// push.
    async fn delete_created(&self, pushed: &[Pushed], refused: PushRefused) -> StatusLine {
        let new = pushed.iter().filter_map(|pushed| match pushed {
            Pushed::New(id) => Some(*id),
            Pushed::Existing(_) | Pushed::Refused(_) => None,
        });
        let new: Vec<JobId> = new.collect();
        if !new.is_empty()
            && let Err(error) = self.engine.apply(self.tenant, new, Event::Delete).await
        {
            tracing::warn!(%error, "cannot delete the jobs of a refused batch");
        }
        match refused {
            PushRefused::NoParent(_) => errors::NO_PARENT,
            PushRefused::ParentNotActive(_) => errors::PARENT_NOT_ACTIVE,
            _ => errors::UNIQUE_VIOLATION,
        }
    }

    async fn update_existing(&self, id: JobId, change: &Change) -> Result<(), StatusLine> {
        let changed = self.engine.transact(self.tenant, vec![id], |tx| {
            // A job that has been deleted since the lookup is left alone; it existed when the request was
            // checked.
            if let Some(job) = tx.job(id)? {
                let _ = tx.apply(id, Event::Update(Box::new(change.patch(&job))))?;
            }
            Ok::<_, Stop<StatusLine>>(())
        });
        changed.await
    }
}

fn refusal(pushed: &Pushed) -> Option<PushRefused> {
    match pushed {
        Pushed::Refused(refused) => Some(*refused),
        Pushed::New(_) | Pushed::Existing(_) => None,
    }
}
