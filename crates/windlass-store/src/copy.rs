//! Copy of a whole store into another: jobs in all states with their ids and versions, settings, pauses,
//! the audit log, blobs, and the next id.
//!
//! The target has to be new. While it is being filled, a setting marks it ([`unfinished`]), and a server
//! refuses to start on it; an interrupted copy is started again from nothing. At the end both stores are read
//! again and compared, which also detects a source that was changed meanwhile.

use crate::audit::{AUDIT_PAGE_MAX, AuditBounds, AuditFilter};
use crate::blobs::{AddrForm, BlobAddr, ListedBlob, PutBlob};
use crate::query::{PAGE_MAX, Pages};
use crate::{Filter, KeyRule, QueueCounts, Result, Step, Store, StoreError, Verdict};
use windlass_core::{Job, JobId, Queue, Tenant, Timestamp};

/// Jobs per page. A page is held in memory: small enough for large payloads, large enough to amortise a
/// commit.
const PAGE: usize = 500;
const _: () = assert!(PAGE <= PAGE_MAX);

/// Setting that marks a store as an incomplete copy.
pub(crate) const UNFINISHED: &str = "copy/unfinished";

/// Number of times a page that is modified concurrently is read again before the copy fails.
const TRIES_MAX: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Deletes the remains of an interrupted copy.
    Clear,
    Copy,
    Blobs,
    /// Reads and compares both stores.
    Verify,
}

/// Numbers of copied items, and the checksum that both stores have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    pub jobs: u64,
    pub settings: u64,
    pub paused: u64,
    pub blobs: u64,
    pub next_id: JobId,
    /// CRC-32 over all jobs, newest first.
    pub checksum: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("the target is not empty: {0}; copy to a new store")]
    NotEmpty(String),
    #[error("the source is an unfinished copy, started {0}; finish that copy first")]
    Unfinished(String),
    #[error("cannot read the source: {0}")]
    Source(#[source] StoreError),
    #[error("cannot write the target: {0}")]
    Target(#[source] StoreError),
    #[error("the copy differs from the source: {0}; stop all servers on both stores and repeat the copy")]
    Differs(String),
}

/// Time and source of the copy, if this store is an incomplete copy.
pub async fn unfinished(store: &dyn Store) -> Result<Option<String>> {
    let found = store.settings(UNFINISHED).await?;
    Ok(found.into_iter().next().map(|(_, value)| String::from_utf8_lossy(&value).into_owned()))
}

/// Error of `restore` for an id that exists.
pub(crate) fn is_there(id: JobId) -> StoreError {
    StoreError::Unsupported(format!("job {id} already exists"))
}

pub(crate) fn holds_the_key(id: JobId) -> StoreError {
    StoreError::Unsupported(format!("job {id} has the unique key or alias"))
}

/// Copies everything. `note` is stored in the target until the copy is complete; `progress` receives (jobs
/// done, total jobs).
pub async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    note: &str,
    now: Timestamp,
    progress: &(dyn Fn(Stage, u64, u64) + Send + Sync),
) -> Result<Copied, CopyError> {
    if let Some(begun) = unfinished(from).await.map_err(CopyError::Source)? {
        return Err(CopyError::Unfinished(begun));
    }
    make_room(to, now, progress).await?;
    to.put_setting(UNFINISHED, Some(note.as_bytes().to_vec())).await.map_err(CopyError::Target)?;
    let next = from.next_id().await.map_err(CopyError::Source)?;
    copy_jobs(from, to, next, now, progress).await?;
    copy_settings(from, to, now).await?;
    copy_audit(from, to).await?;
    copy_blobs(from, to, progress).await?;
    let copied = verify(from, to, now, progress).await?;
    to.put_setting(UNFINISHED, None).await.map_err(CopyError::Target)?;
    Ok(copied)
}

/// Refuses a store that is in use; empties a store with an interrupted copy.
async fn make_room(
    to: &dyn Store,
    now: Timestamp,
    progress: &(dyn Fn(Stage, u64, u64) + Send + Sync),
) -> Result<(), CopyError> {
    if unfinished(to).await.map_err(CopyError::Target)?.is_some() {
        return clear(to, now, progress).await.map_err(CopyError::Target);
    }
    match contents(to, now).await.map_err(CopyError::Target)? {
        None => Ok(()),
        Some(found) => Err(CopyError::NotEmpty(found)),
    }
}

async fn contents(store: &dyn Store, now: Timestamp) -> Result<Option<String>> {
    let jobs = jobs_in(store, now).await?;
    if jobs > 0 {
        return Ok(Some(format!("{jobs} jobs")));
    }
    if let Some((key, _)) = store.settings("").await?.first() {
        return Ok(Some(format!("setting {key}")));
    }
    if let Some((_, queue)) = paused(store, now).await?.first() {
        return Ok(Some(format!("queue {queue} is paused")));
    }
    let blobs = blobs_of(store).await?.len();
    if blobs > 0 {
        return Ok(Some(format!("{blobs} blobs")));
    }
    // Ids are never reused, not even those of deleted jobs.
    let next = store.next_id().await?.get();
    Ok((next > 1).then(|| format!("it had {} jobs before", next - 1)))
}

async fn clear(
    store: &dyn Store,
    now: Timestamp,
    progress: &(dyn Fn(Stage, u64, u64) + Send + Sync),
) -> Result<()> {
    let all = jobs_in(store, now).await?;
    let mut done = 0;
    let mut tries = 0;
    loop {
        let jobs = all_jobs().next(store).await?.unwrap_or_default();
        if jobs.is_empty() {
            break;
        }
        let count = jobs.len();
        let steps = jobs.into_iter().map(|job| Step::change(job, None)).collect();
        let verdicts = store.commit(steps, now).await?;
        let gone = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Done(_))).count();
        done += gone as u64;
        progress(Stage::Clear, done, all.max(done));
        tries = if gone < count { tries + 1 } else { 0 };
        if tries == TRIES_MAX {
            let why = "jobs of the unfinished copy are being changed; stop all servers on it";
            return Err(StoreError::Unavailable(why.to_owned()));
        }
    }
    let none = AuditBounds { entries_max: 0, since: now };
    store.append_audit(Vec::new(), none).await?;
    for (tenant, queue) in paused(store, now).await? {
        store.set_paused(&tenant, &queue, false).await?;
    }
    for (key, _) in store.settings("").await?.into_iter().filter(|(key, _)| key != UNFINISHED) {
        store.put_setting(&key, None).await?;
    }
    for blob in blobs_of(store).await? {
        store.blobs().remove(&blob.tenant, &blob.info.digests, Timestamp::MAX).await?;
    }
    Ok(())
}

async fn copy_jobs(
    from: &dyn Store,
    to: &dyn Store,
    next: JobId,
    now: Timestamp,
    progress: &(dyn Fn(Stage, u64, u64) + Send + Sync),
) -> Result<(), CopyError> {
    let all = jobs_in(from, now).await.map_err(CopyError::Source)?;
    let mut pages = all_jobs();
    let mut done = 0;
    while let Some(jobs) = pages.next(from).await.map_err(CopyError::Source)? {
        done += jobs.len() as u64;
        to.restore(jobs, next, KeyRule::Yield).await.map_err(CopyError::Target)?;
        progress(Stage::Copy, done, all.max(done));
    }
    Ok(())
}

/// Copies the audit log, which is bounded; entries get new ids in the same order.
async fn copy_audit(from: &dyn Store, to: &dyn Store) -> Result<(), CopyError> {
    let mut entries = Vec::new();
    let mut before = None;
    loop {
        let filter = AuditFilter { before, limit: AUDIT_PAGE_MAX, ..AuditFilter::default() };
        let page = from.list_audit(filter).await.map_err(CopyError::Source)?;
        before = page.last().map(|entry| entry.id);
        entries.extend(page);
        if before.is_none() {
            break;
        }
    }
    entries.reverse();
    let all = AuditBounds { entries_max: u64::MAX, since: Timestamp::from_millis(i64::MIN) };
    for some in entries.chunks(PAGE) {
        to.append_audit(some.to_vec(), all).await.map_err(CopyError::Target)?;
    }
    Ok(())
}

async fn copy_settings(from: &dyn Store, to: &dyn Store, now: Timestamp) -> Result<(), CopyError> {
    for (key, value) in from.settings("").await.map_err(CopyError::Source)? {
        to.put_setting(&key, Some(value)).await.map_err(CopyError::Target)?;
    }
    for (tenant, queue) in paused(from, now).await.map_err(CopyError::Source)? {
        to.set_paused(&tenant, &queue, true).await.map_err(CopyError::Target)?;
    }
    Ok(())
}

/// The source store checks the bytes against their hash, and the target store hashes them again.
async fn copy_blobs(
    from: &dyn Store,
    to: &dyn Store,
    progress: &(dyn Fn(Stage, u64, u64) + Send + Sync),
) -> Result<(), CopyError> {
    let blobs = blobs_of(from).await.map_err(CopyError::Source)?;
    for (done, blob) in (1..).zip(&blobs) {
        copy_blob(from, to, blob).await?;
        progress(Stage::Blobs, done, blobs.len() as u64);
    }
    Ok(())
}

async fn copy_blob(from: &dyn Store, to: &dyn Store, blob: &ListedBlob) -> Result<(), CopyError> {
    let address = blob.info.digests.show(AddrForm::Sha256);
    let gone = || CopyError::Source(StoreError::Unavailable(format!("blob {address} not found")));
    let parsed = BlobAddr::parse(&address).ok_or_else(gone)?;
    let opened = from.blobs().open(&blob.tenant, &parsed).await.map_err(CopyError::Source)?;
    let mut reader = opened.ok_or_else(gone)?.reader;
    let mut writer = to.blobs().create(&blob.tenant).await.map_err(CopyError::Target)?;
    while let Some(piece) = reader.next().await.map_err(CopyError::Source)? {
        writer.write(&piece).await.map_err(CopyError::Target)?;
    }
    match writer.finish(blob.info.stored_at).await.map_err(CopyError::Target)? {
        PutBlob::New(_) | PutBlob::Known(_) => Ok(()),
        PutBlob::Sha1Taken => Err(CopyError::Differs(format!("blob {address} collides with another blob"))),
    }
}

async fn verify(
    from: &dyn Store,
    to: &dyn Store,
    now: Timestamp,
    progress: &(dyn Fn(Stage, u64, u64) + Send + Sync),
) -> Result<Copied, CopyError> {
    let all = 2 * jobs_in(from, now).await.map_err(CopyError::Source)?;
    let told = |done: u64| progress(Stage::Verify, done, all.max(done));
    let source = Contents::of(from, now, &told).await.map_err(CopyError::Source)?;
    let target =
        Contents::of(to, now, &|done| told(source.sum.jobs + done)).await.map_err(CopyError::Target)?;
    source.expect_same(&target).map_err(CopyError::Differs)?;
    Ok(Copied {
        jobs: source.sum.jobs,
        settings: source.settings.len() as u64,
        paused: source.counts.iter().filter(|counts| counts.paused).count() as u64,
        blobs: source.blobs.len() as u64,
        next_id: source.next_id,
        checksum: source.sum.checksum,
    })
}

/// Contents to compare: the jobs as a checksum, the rest in full.
struct Contents {
    sum: Sum,
    counts: Vec<QueueCounts>,
    settings: Vec<(String, Vec<u8>)>,
    blobs: Vec<ListedBlob>,
    next_id: JobId,
}

impl Contents {
    async fn of(store: &dyn Store, now: Timestamp, told: &(dyn Fn(u64) + Send + Sync)) -> Result<Contents> {
        let says_something =
            |counts: &QueueCounts| counts.paused || counts.by_state.iter().any(|count| *count > 0);
        let mut counts = store.counts(None, now).await?;
        counts.retain(says_something);
        counts.sort_by(|one, two| (&one.tenant, &one.queue).cmp(&(&two.tenant, &two.queue)));
        let mut settings = store.settings("").await?;
        settings.retain(|(key, _)| key != UNFINISHED);
        let sum = Sum::of(store, told).await?;
        let mut blobs = blobs_of(store).await?;
        blobs.sort_by(|one, two| {
            (&one.tenant, one.info.digests.sha256).cmp(&(&two.tenant, two.info.digests.sha256))
        });
        Ok(Contents { sum, counts, settings, blobs, next_id: store.next_id().await? })
    }

    fn expect_same(&self, target: &Contents) -> Result<(), String> {
        let (jobs, copied) = (self.sum.jobs, target.sum.jobs);
        if jobs != copied {
            return Err(format!("the source has {jobs} jobs, the target has {copied}"));
        }
        if self.counts != target.counts {
            return Err("job counts of a queue differ".to_owned());
        }
        if self.settings != target.settings {
            return Err(format!("{} settings and {}", self.settings.len(), target.settings.len()));
        }
        if self.blobs != target.blobs {
            return Err(format!("{} blobs and {}", self.blobs.len(), target.blobs.len()));
        }
        // An earlier, interrupted copy may have used more ids.
        if target.next_id < self.next_id {
            return Err(format!("the next ids are {} and {}", self.next_id, target.next_id));
        }
        let (sum, copied) = (self.sum.checksum, target.sum.checksum);
        if sum != copied {
            return Err(format!("the checksums of {jobs} jobs are {sum:08x} and {copied:08x}"));
        }
        Ok(())
    }
}

struct Sum {
    jobs: u64,
    checksum: u32,
}

impl Sum {
    async fn of(store: &dyn Store, told: &(dyn Fn(u64) + Send + Sync)) -> Result<Sum> {
        let mut hasher = crc32fast::Hasher::new();
        let mut jobs = 0;
        let mut pages = all_jobs();
        while let Some(page) = pages.next(store).await? {
            for job in &page {
                add_to_sum(&mut hasher, job)?;
            }
            jobs += page.len() as u64;
            told(jobs);
        }
        Ok(Sum { jobs, checksum: hasher.finalize() })
    }
}

/// Hashes every field of a job, in a form that does not depend on the store.
fn add_to_sum(hasher: &mut crc32fast::Hasher, job: &Job) -> Result<()> {
    let spec = &*job.spec;
    let asked = (
        (spec.tenant.as_str(), spec.queue.as_str(), spec.name.as_str(), spec.priority),
        (spec.created_at, &spec.payload, &*spec.policy, &spec.extras),
    );
    let moves = (&job.progress, &job.body, job.state());
    let bytes = rmp_serde::to_vec(&(job.id.get(), job.version, asked, moves));
    let bytes = bytes.map_err(|error| StoreError::Corrupt(format!("job {}: {error}", job.id)))?;
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(&bytes);
    Ok(())
}

/// Lists the blobs; empty for a store without blob support.
async fn blobs_of(store: &dyn Store) -> Result<Vec<ListedBlob>> {
    match store.blobs().list(None).await {
        Err(StoreError::Unsupported(_)) => Ok(Vec::new()),
        listed => listed,
    }
}

fn all_jobs() -> Pages {
    Pages::new(Filter { limit: PAGE, ..Filter::default() })
}

async fn jobs_in(store: &dyn Store, now: Timestamp) -> Result<u64> {
    let counts = store.counts(None, now).await?;
    Ok(counts.iter().flat_map(|counts| counts.by_state).sum())
}

async fn paused(store: &dyn Store, now: Timestamp) -> Result<Vec<(Tenant, Queue)>> {
    let counts = store.counts(None, now).await?;
    Ok(counts
        .into_iter()
        .filter(|counts| counts.paused)
        .map(|counts| (counts.tenant, counts.queue))
        .collect())
}
