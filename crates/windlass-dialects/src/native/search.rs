//! Search syntax, the same in the web UI, on the command line and in the API: `state:failed name:mail*
//! queue:default tag:x class:Timeout error:SMTP* id:7 args.user_id:42 age>1h ended<1h text`. A number is an id; a
//! word in quotes is text, whatever it looks like.
//!
//! Conditions that the store can evaluate (states, queue, name, tag, one text) go into its [`Filter`]; the
//! others are evaluated here, job by job, with a time limit. A page that hit the limit is short and has a
//! cursor to continue from.

#[cfg(test)]
mod tests;

pub(super) mod errors;
mod named;
mod words;

use super::errors::ApiError;
use crate::auth::Caller;
use crate::codec::{self, Encoding};
use crate::query::{Filter, Page, PageBuilder, QueueCounts};
use errors::ErrorMatch;
use named::ids;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::job::AttemptError;
use windlass_core::repeat::every::parse_duration_ms;
use windlass_core::{Format, Job, JobId, NameMatch, Payload, Queue, StateName, StateWord, Timestamp};
use windlass_engine::{Engine, EngineError};
use words::{Word, no_such_key, unknown_key, words};

pub(super) use words::without_states;

/// Time limit of one search, below the delay that a person notices.
const LOOKING_MAX: Duration = Duration::from_millis(80);
/// Jobs evaluated between two checks of the time: some have large payloads.
const STRIDE: usize = 200;
/// Words of one search: each is matched against every job that is read.
const WORDS_MAX: usize = 50;

/// Fields that a word may begin with, for messages and completion.
pub(super) const FIELDS: [&str; 12] =
    ["state", "queue", "name", "tag", "id", "alias", "class", "error", "group", "tenant", "worker", "origin"];

#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    pub filter: Filter,
    /// States as they are shown; empty: any.
    states: Vec<StateWord>,
    args: Vec<(Vec<String>, String)>,
    texts: Vec<Arc<str>>,
    older_than_ms: Option<i64>,
    younger_than_ms: Option<i64>,
    ended: Ended,
    worker: Option<String>,
    origin: Option<String>,
    /// Ids named; `None`: any.
    ids: Option<BTreeSet<JobId>>,
    alias: Option<String>,
    errors: Vec<ErrorMatch>,
}

/// Time since the end of the last run; a job that has not run, or is running, has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ended {
    longer_than_ms: Option<i64>,
    shorter_than_ms: Option<i64>,
}

impl Ended {
    fn fits(self, job: &Job, now: Timestamp) -> bool {
        if self == Ended::default() {
            return true;
        }
        job.progress.finished_at.map(|at| now.since_ms(at)).is_some_and(|ms| {
            self.longer_than_ms.is_none_or(|least| ms > least)
                && self.shorter_than_ms.is_none_or(|most| ms < most)
        })
    }
}

/// Number of matching jobs; `at_least` if the time limit ended the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub jobs: u64,
    pub at_least: bool,
}

impl Search {
    pub(super) fn parse(text: &str, caller: &Caller, tenant: Option<&str>) -> Result<Search, ApiError> {
        let words = words(text);
        if words.len() > WORDS_MAX {
            return Err(ApiError::bad_request(format!(
                "the search has too many terms; the maximum is {WORDS_MAX}"
            )));
        }
        let mut search = Search::default();
        let mut named_tenant = tenant.map(str::to_owned);
        for word in words {
            let (word, is_quoted) = word;
            match if is_quoted { Word::Text } else { Word::of(&word) } {
                Word::Field("state", value) => search.add_states(super::calls::list::states(Some(value))?),
                Word::Field("queue", value) => search.filter.queue = Some(Queue::new(value)?),
                Word::Field("name", value) => search.filter.names = NameMatch::glob(value),
                Word::Field("tag", value) => search.filter.tag = Some(value.into()),
                Word::Field("tenant", value) => named_tenant = Some(value.to_owned()),
                Word::Field("id", value) => search.add_ids(ids(value)?),
                Word::Field("alias", value) => search.alias = Some(value.to_owned()),
                Word::Field("class", value) => search.errors.push(ErrorMatch::class(value)),
                Word::Field("error", value) => search.errors.push(ErrorMatch::text(value)),
                Word::Field("group", value) => search.errors.push(ErrorMatch::Title(value.to_owned())),
                Word::Field("worker", value) => search.worker = Some(value.to_owned()),
                Word::Field("origin", value) => search.origin = Some(value.to_owned()),
                Word::Args(path, value) => {
                    search.args.push((path.split('.').map(str::to_owned).collect(), value.to_owned()));
                }
                Word::Age(older, age) => {
                    let ms = time_of(age, "age")?;
                    *(if older { &mut search.older_than_ms } else { &mut search.younger_than_ms }) = Some(ms);
                }
                Word::Ended(longer, time) => {
                    let ms = time_of(time, "ended")?;
                    let ended = &mut search.ended;
                    *(if longer { &mut ended.longer_than_ms } else { &mut ended.shorter_than_ms }) = Some(ms);
                }
                Word::Id(id) => search.add_ids([id].into()),
                Word::Text if !is_quoted && unknown_key(&word).is_some() => return Err(no_such_key(&word)),
                Word::Field(..) | Word::Text => search.texts.push(word.as_str().into()),
            }
        }
        search.filter.tenant = caller.tenants_for(named_tenant.as_deref())?;
        search.give_text_to_store();
        Ok(search)
    }

    /// Ids named twice are those in both places.
    fn add_ids(&mut self, ids: BTreeSet<JobId>) {
        self.ids = Some(match self.ids.take() {
            Some(known) => known.intersection(&ids).copied().collect(),
            None => ids,
        });
    }

    /// Adds states, any of which a job may have.
    pub(super) fn add_states(&mut self, states: Vec<StateWord>) {
        self.states.extend(states);
        self.filter.states = self.states.iter().map(|word| word.stored()).collect();
        let is_other = |word: &StateWord| word.stored() == StateName::Ready && *word != StateWord::Retrying;
        self.filter.retried = self.states.contains(&StateWord::Retrying) && !self.states.iter().any(is_other);
    }

    /// Restricts the search to these states; false if it asks for none of them.
    pub(super) fn keep_states(&mut self, states: &[StateWord]) -> bool {
        let asked = std::mem::take(&mut self.states);
        let is_asked = |word: &StateWord| asked.is_empty() || asked.contains(word);
        self.add_states(states.iter().copied().filter(is_asked).collect());
        !self.states.is_empty()
    }

    pub(super) fn states(&self) -> &[StateWord] {
        &self.states
    }

    /// True if the states depend on the time: some but not all words for ready jobs.
    fn depends_on_time(&self) -> bool {
        let asked = StateWord::OF_READY.iter().filter(|word| self.states.contains(word)).count();
        asked > 0 && asked < StateWord::OF_READY.len()
    }

    pub(super) fn add_text(&mut self, text: &str) {
        self.texts.push(text.into());
        self.texts.extend(self.filter.text.take());
        self.give_text_to_store();
    }

    /// Gives the store the longest text, which leaves the fewest jobs to read.
    fn give_text_to_store(&mut self) {
        if let Some(longest) = (0..self.texts.len()).max_by_key(|index| self.texts[*index].len()) {
            self.filter.text = Some(self.texts.swap_remove(longest));
        }
    }

    /// True if the search depends on the content of payloads or errors.
    pub(super) fn looks_into_payloads(&self) -> bool {
        let has_text = self.filter.text.is_some() || !self.texts.is_empty();
        has_text || !self.args.is_empty() || !self.errors.is_empty()
    }

    /// True if the store's filter expresses the whole search.
    fn is_plain(&self) -> bool {
        !self.depends_on_time() && self.has_only_states()
    }

    /// True if nothing but states is evaluated here.
    fn has_only_states(&self) -> bool {
        self.args.is_empty()
            && self.texts.is_empty()
            && self.older_than_ms.is_none()
            && self.younger_than_ms.is_none()
            && self.ended == Ended::default()
            && self.worker.is_none()
            && self.origin.is_none()
            && self.ids.is_none()
            && self.alias.is_none()
            && self.errors.is_empty()
    }

    /// True if the job matches, by the store's filter and by the conditions here.
    pub(super) fn finds(&self, job: &Job, now: Timestamp) -> bool {
        self.filter.fits(job) && self.fits(job, now)
    }

    fn fits(&self, job: &Job, now: Timestamp) -> bool {
        let age_ms = now.since_ms(job.spec.created_at);
        let holds = |text: &Arc<str>| contains(&job.spec.payload.bytes, text.as_bytes());
        (self.states.is_empty() || self.states.contains(&job.state_word(now)))
            && self.older_than_ms.is_none_or(|ms| age_ms > ms)
            && self.younger_than_ms.is_none_or(|ms| age_ms < ms)
            && self.ended.fits(job, now)
            && self.worker.as_ref().is_none_or(|worker| {
                job.state().lease().and_then(|lease| lease.worker.as_deref()) == Some(worker.as_str())
            })
            && self.origin.as_ref().is_none_or(|origin| super::views::origin(job) == origin)
            && self.ids.as_ref().is_none_or(|ids| ids.contains(&job.id))
            && self.alias.as_ref().is_none_or(|alias| job.spec.alias() == Some(alias))
            && (self.errors.is_empty() || self.errors_fit(job))
            && self.texts.iter().all(holds)
            && (self.args.is_empty() || self.args_fit(&job.spec.payload))
    }

    /// True if the last error of the job matches; a job without one is in the group of empty errors.
    fn errors_fit(&self, job: &Job) -> bool {
        let untold = AttemptError::default();
        let last = job.body.as_ref().and_then(|body| body.errors.last());
        self.errors.iter().all(|wanted| match last {
            Some(error) => wanted.fits(error),
            None => matches!(wanted, ErrorMatch::Title(_)) && wanted.fits(&untold),
        })
    }

    fn args_fit(&self, payload: &Payload) -> bool {
        let encoding = match payload.format {
            Format::Json => Encoding::Json,
            Format::Msgpack => Encoding::Msgpack,
            Format::Text | Format::Binary => return false,
        };
        let Ok(value) = codec::read::<Value>(encoding, &payload.bytes) else { return false };
        self.args.iter().all(|(path, wanted)| at(&value, path).is_some_and(|found| reads(found, wanted)))
    }

    /// Returns a page of matching jobs, newest first.
    pub(super) async fn page(
        &self,
        engine: &Engine,
        before: Option<JobId>,
        limit: usize,
    ) -> Result<Page, EngineError> {
        if self.is_plain() {
            return engine.list(Filter { before, limit, ..self.filter.clone() }).await;
        }
        if let Some(ids) = self.named_ids(engine).await? {
            return self.page_of(engine, ids, before, limit).await;
        }
        let mut page = PageBuilder::new(limit);
        let mut looking = Looking::begin(self, engine, before, LOOKING_MAX).await?;
        while let Some(job) = looking.next().await? {
            page.push(job);
            if page.is_full() {
                return Ok(page.end_here());
            }
        }
        Ok(page.end_at(looking.stopped_at()))
    }

    /// Counts the matching jobs: by the store's counters where possible, else by reading jobs within the time
    /// limit.
    pub(super) async fn count(&self, engine: &Engine) -> Result<Count, EngineError> {
        let by_counters = self.filter.names == NameMatch::Any
            && self.filter.tag.is_none()
            && self.filter.text.is_none()
            && self.has_only_states()
            && engine.counts_are_whole();
        if by_counters {
            let counts = engine.counts(self.filter.tenant.as_ref()).await?;
            return Ok(Count { jobs: self.counted(&counts), at_least: false });
        }
        if let Some(ids) = self.named_ids(engine).await? {
            return self.count_of(engine, ids).await;
        }
        let mut looking = Looking::begin(self, engine, None, LOOKING_MAX).await?;
        let mut jobs = 0;
        while looking.next().await?.is_some() {
            jobs += 1;
        }
        Ok(Count { jobs, at_least: looking.stopped_at().is_some() })
    }

    fn counted(&self, counts: &[QueueCounts]) -> u64 {
        let in_queue =
            |one: &&QueueCounts| self.filter.queue.as_ref().is_none_or(|queue| *queue == one.queue);
        let is_asked = |word: &StateWord| self.states.is_empty() || self.states.contains(word);
        let words = || StateWord::ALL.into_iter().filter(is_asked);
        counts.iter().filter(in_queue).flat_map(|one| words().map(|word| one.of_word(word))).sum()
    }
}

/// Iteration over the jobs from the newest, with a time limit.
pub(super) struct Looking<'a> {
    search: &'a Search,
    engine: &'a Engine,
    now: Timestamp,
    began: Instant,
    time_max: Duration,
    stride: std::vec::IntoIter<Arc<Job>>,
    /// Start of the next stride; the inner `None` is the newest job.
    next: Option<Option<JobId>>,
}

impl<'a> Looking<'a> {
    pub(super) async fn begin(
        search: &'a Search,
        engine: &'a Engine,
        before: Option<JobId>,
        time_max: Duration,
    ) -> Result<Looking<'a>, EngineError> {
        let (now, began) = (engine.now(), Instant::now());
        let before = match search.older_than_ms {
            Some(ms) => first_before(engine, before, now.plus_ms(-ms)).await?,
            None => before,
        };
        Ok(Looking {
            search,
            engine,
            now,
            began,
            time_max,
            stride: Vec::new().into_iter(),
            next: Some(before),
        })
    }

    pub(super) async fn next(&mut self) -> Result<Option<Arc<Job>>, EngineError> {
        loop {
            for job in self.stride.by_ref() {
                if self
                    .search
                    .younger_than_ms
                    .is_some_and(|ms| self.now.since_ms(job.spec.created_at) > ms + SKEW_MS)
                {
                    // All remaining jobs are older.
                    self.next = None;
                    return Ok(None);
                }
                if self.search.fits(&job, self.now) {
                    return Ok(Some(job));
                }
            }
            let Some(before) = self.next.filter(|_| self.began.elapsed() < self.time_max) else {
                return Ok(None);
            };
            let page =
                self.engine.list(Filter { before, limit: STRIDE, ..self.search.filter.clone() }).await?;
            self.stride = page.jobs.into_iter();
            self.next = page.next.map(Some);
        }
    }

    /// Cursor to continue from, if the time limit ended the iteration.
    pub(super) fn stopped_at(&self) -> Option<JobId> {
        self.next.flatten()
    }
}

/// Maximum disorder of ids and creation times: a job gets its id a moment after its time.
const SKEW_MS: i64 = 60_000;

/// Finds an id above all jobs created before `at`, by binary search: ids grow with time. This avoids reading
/// the newer jobs.
async fn first_before(
    engine: &Engine,
    before: Option<JobId>,
    at: Timestamp,
) -> Result<Option<JobId>, EngineError> {
    let newest = engine.list(Filter { before, limit: 1, ..Filter::default() }).await?;
    let Some(newest) = newest.jobs.first() else { return Ok(before) };
    let at = at.plus_ms(SKEW_MS);
    let (mut old, mut new) = (1, newest.id.get() + 1);
    while new - old > STRIDE as u64 {
        let middle = old + (new - old) / 2;
        let filter = Filter { before: JobId::new(middle), limit: 1, ..Filter::default() };
        match engine.list(filter).await?.jobs.first() {
            Some(job) if job.spec.created_at > at => new = middle,
            _ => old = middle,
        }
    }
    Ok(JobId::new(new))
}

/// Parses the time of `age>1h` and the like.
fn time_of(text: &str, key: &str) -> Result<i64, ApiError> {
    let explain =
        |_| ApiError::bad_request(format!("`{text}` is not a time; use the form {key}>1h or {key}<30m"));
    parse_duration_ms(text).map_err(explain)
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    text.is_empty() || bytes.windows(text.len()).any(|window| window == text)
}

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, step| match value {
        Value::Object(fields) => fields.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

/// True if the value equals the text, in its JSON form.
fn reads(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        other => {
            let written = other.to_string();
            written == wanted
        }
    }
}
