use super::*;
use windlass_core::ports::{Declared, Ports, RawJson, Side};
use windlass_core::{JobSpec, Name, Payload, Policy, Queue, Tenant, Timestamp, created};

fn job(number: u64, value: &str) -> Arc<Job> {
    let spec = JobSpec {
        tenant: Tenant::default(),
        queue: Queue::default(),
        name: Name::new("flow").unwrap(),
        payload: Payload::default(),
        priority: 0,
        created_at: Timestamp::EPOCH,
        policy: Arc::new(Policy::default()),
        extras: None,
    };
    let mut ports = Ports::new(Declared::from([("in".to_owned(), None)]), Declared::new()).unwrap();
    ports.write((Side::In, "in"), vec![RawJson::new(value).unwrap()]).unwrap();
    let body = Body { ports: Some(Arc::new(ports)), ..Body::default() };
    let id = JobId::new(number).unwrap();
    Arc::new(created(id, Arc::new(spec), Timestamp::EPOCH, false, Some(Arc::new(body))))
}

fn without_ports(job: &Job) -> Arc<Job> {
    let mut job = job.clone();
    job.body = None;
    Arc::new(job)
}

fn known(recent: &RecentJobs, number: u64) -> Option<Arc<Job>> {
    recent.get(JobId::new(number).unwrap())
}

#[test]
fn a_job_is_known_from_its_commit_to_its_next_write() {
    let recent = RecentJobs::default();
    let (first, second) = (job(1, "1"), job(1, "2"));
    recent.wrote(None, Some(&first));
    assert_eq!(known(&recent, 1), None, "not before it is on disk");
    recent.committed();
    assert_eq!(known(&recent, 1), Some(first.clone()));
    recent.wrote(Some(&first), Some(&second));
    assert_eq!(known(&recent, 1), None, "which of the two holds is not known now");
    recent.committed();
    assert_eq!(known(&recent, 1), Some(second));
}

#[test]
fn what_is_taken_back_or_gone_is_not_known() {
    let recent = RecentJobs::default();
    let [one, two, three] = [1, 2, 3].map(|number| job(number, "1"));
    for job in [&one, &two, &three] {
        recent.wrote(None, Some(job));
    }
    recent.committed();
    recent.wrote(Some(&one), Some(&job(1, "2")));
    recent.taken_back();
    // A job written and deleted in one commit, and a job that lost its ports.
    recent.wrote(Some(&two), Some(&job(2, "2")));
    recent.wrote(Some(&job(2, "2")), None);
    recent.wrote(Some(&three), Some(&without_ports(&three)));
    recent.committed();
    for number in 1..=3 {
        assert_eq!(known(&recent, number), None, "job {number}");
    }
}

#[test]
fn jobs_without_ports_are_nobodys_business() {
    let recent = RecentJobs::default();
    let plain = without_ports(&job(1, "1"));
    recent.wrote(None, Some(&plain));
    recent.wrote(Some(&plain), Some(&plain));
    assert!(recent.inner().written.is_empty());
}

#[test]
fn the_jobs_kept_are_bounded_and_the_ones_asked_for_stay() {
    let recent = RecentJobs::default();
    for number in 1..=3 * RECENT_JOBS_MAX as u64 {
        recent.wrote(None, Some(&job(number, "1")));
        recent.committed();
        assert!(known(&recent, 1).is_some(), "at {number}");
    }
    assert_eq!(known(&recent, 2), None);
    let generations = recent.inner();
    assert!(generations.young.jobs.len() + generations.old.jobs.len() <= RECENT_JOBS_MAX);
}

#[test]
fn the_bytes_kept_are_bounded_and_counted_right() {
    let recent = RecentJobs::default();
    let large = format!("\"{}\"", "x".repeat(1_000_000));
    for number in 1..=200 {
        recent.wrote(None, Some(&job(number, &large)));
        recent.committed();
    }
    let sum = |generation: &Generation| generation.jobs.values().map(|(_, bytes)| bytes).sum::<usize>();
    {
        let generations = recent.inner();
        for generation in [&generations.young, &generations.old] {
            assert_eq!(generation.bytes, sum(generation));
            assert!(generation.bytes <= RECENT_BYTES_MAX / 2);
        }
        assert!(!generations.old.jobs.is_empty());
    }
    for number in 1..=200 {
        recent.wrote(Some(&job(number, "1")), None);
    }
    recent.committed();
    let generations = recent.inner();
    assert_eq!((generations.young.bytes, generations.old.bytes), (0, 0));
}
