//! Queries: load, pages, filters, counts, settings, children.

use super::fixtures::{Rig, ask, at, finish, id, ids, job, name, queue, scope, tenant};
use super::random::{all_jobs, counted};
use crate::query::{PAGE_BYTES_MAX, job_bytes};
use crate::{Filter, StoreError};
use std::sync::Arc;
use windlass_core::event::Patch;
use windlass_core::job::AttemptError;
use windlass_core::{
    Body, Event, Format, Job, JobId, KeepFor, NameMatch, Payload, StateName, StateWord, Tenant,
};

/// Every page of the filter, in order.
async fn pages(rig: &Rig, filter: Filter) -> Vec<Arc<Job>> {
    let limit = filter.limit;
    let (mut jobs, mut before) = (Vec::new(), filter.before);
    loop {
        let page = rig.store.list(Filter { before, ..filter.clone() }).await.expect("list");
        assert!(page.jobs.len() <= limit, "at most as many as asked for");
        jobs.extend(page.jobs);
        match page.next {
            None => return jobs,
            Some(next) => {
                assert!(before.is_none_or(|before| next < before), "the cursor has to move on");
                before = Some(next);
            }
        }
    }
}

pub(super) async fn load_answers_in_the_order_asked(rig: &Rig) {
    rig.insert(vec![job("a"), job("b"), job("c")]).await;
    rig.happen(id(2), Event::Delete, at(0)).await;
    let asked = [3, 2, 9, 1, 3, u64::MAX].map(id);
    let found = rig.store.load(asked.to_vec()).await.expect("load");
    let found: Vec<Option<u64>> = found.iter().map(|job| job.as_ref().map(|job| job.id.get())).collect();
    assert_eq!(found, [Some(3), None, None, Some(1), Some(3), None]);
}

pub(super) async fn pages_contain_every_job_once(rig: &Rig) {
    rig.insert((0..25).map(|_| job("a")).collect()).await;
    let newest_first: Vec<u64> = (1..=25).rev().collect();
    for limit in [1, 4, 5, 24, 25, 26, 1_000, usize::MAX] {
        let listed = pages(rig, Filter { limit, ..Filter::default() }).await;
        assert_eq!(ids(&listed), newest_first, "all pages of {limit}");
    }
    let early = pages(rig, Filter { before: Some(id(4)), limit: 2, ..Filter::default() }).await;
    assert_eq!(ids(&early), [3, 2, 1], "only what comes before the cursor");
    let none = pages(rig, Filter { before: Some(id(1)), ..Filter::default() }).await;
    assert!(none.is_empty());
}

pub(super) async fn a_page_ends_by_the_bytes_of_its_jobs(rig: &Rig) {
    let payload = |bytes: usize| Payload::new(Format::Text, vec![b'x'; bytes]);
    let error = AttemptError { backtrace: Some("x".repeat(3 << 19)), ..AttemptError::default() };
    let failed_once = Body { errors: vec![error], ..Body::default() };
    for number in 0..24 {
        let draft = job("a").keep_all(KeepFor::Ever).tag("t");
        match number % 4 {
            0 => _ = rig.job_in(StateName::Failed, draft.payload(payload(2 << 20))).await,
            1 => _ = rig.push(draft.payload(payload(1 << 20))).await,
            2 => {
                let retried = rig.push(draft.body(failed_once.clone())).await;
                rig.happen(retried.id, tried(1, 5_000), at(0)).await;
            }
            _ => _ = rig.push(draft).await,
        }
    }
    // A job that is larger than a page is the last of its page.
    rig.push(job("a").tag("t").payload(payload(PAGE_BYTES_MAX + 1))).await;
    let all = all_jobs(&*rig.store).await;
    assert_eq!(ids(&all), (1..=25).rev().collect::<Vec<u64>>());
    for filter in [
        Filter { limit: 1_000, ..Filter::default() },
        Filter { states: vec![StateName::Failed], limit: 1_000, ..Filter::default() },
        Filter { states: vec![StateName::Ready], limit: 1_000, ..Filter::default() },
        Filter { states: vec![StateName::Failed, StateName::Ready], limit: 7, ..Filter::default() },
        Filter {
            states: vec![StateName::Failed, StateName::Ready],
            retried: true,
            limit: 1_000,
            ..Filter::default()
        },
        Filter { tag: Some("t".into()), queue: Some(queue("default")), limit: 1_000, ..Filter::default() },
        Filter { text: Some("xx".into()), limit: 1_000, ..Filter::default() },
    ] {
        let fitting: Vec<Arc<Job>> = all.iter().filter(|job| filter.fits(job)).cloned().collect();
        let (mut seen, mut before, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = rig.store.list(Filter { before, ..filter.clone() }).await.expect("list");
            pages += 1;
            let bytes = |jobs: &[Arc<Job>]| jobs.iter().map(|job| job_bytes(job)).sum::<usize>();
            let all_but_one = page.jobs.split_last().map_or(0, |(_, others)| bytes(others));
            assert!(all_but_one < PAGE_BYTES_MAX, "{filter:?}: {all_but_one} bytes and one more job");
            seen.extend(ids(&page.jobs));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert!(pages > 1, "{filter:?}: all on one page");
        assert_eq!(seen, ids(&fitting), "{filter:?}: nothing is skipped, nothing comes twice");
    }
}

pub(super) async fn pages_hold_still_while_jobs_come_and_go(rig: &Rig) {
    rig.insert((0..12).map(|_| job("a")).collect()).await;
    let (mut seen, mut before) = (Vec::new(), None);
    for round in 0..4 {
        let page = rig.store.list(Filter { before, limit: 3, ..Filter::default() }).await.expect("list");
        seen.extend(ids(&page.jobs));
        before = page.next;
        // Between the pages a job is added, a listed job is deleted, and a job not listed yet changes.
        rig.push(job("b")).await;
        rig.happen(id(12 - 3 * round), Event::Delete, at(0)).await;
        if round < 3 {
            rig.happen(id(1), Event::Terminate, at(0)).await;
        }
    }
    assert_eq!(seen, (1..=12).rev().collect::<Vec<u64>>(), "each job that was there throughout comes once");
}

pub(super) async fn a_job_is_found_by_its_name_in_every_state(rig: &Rig) {
    let there = job("due").keep_all(KeepFor::Ever);
    rig.insert(vec![there, job("later").run_at(9_000), job("other").queue("q2"), job("other").tenant("t2")])
        .await;
    let found = async |text: &str| {
        let found = rig.store.find_named(&tenant("default"), &queue("default"), &name(text)).await;
        found.expect("find_named").map(JobId::get)
    };
    assert_eq!((found("due").await, found("later").await), (Some(1), Some(2)));
    assert_eq!((found("other").await, found("never").await), (None, None), "by queue and tenant, too");
    rig.claim(ask(), at(10)).await;
    assert_eq!(found("due").await, Some(1), "while it runs");
    rig.happen(id(1), finish(), at(20)).await;
    assert_eq!(found("due").await, Some(1), "after its end");
    rig.happen(id(1), Event::Delete, at(30)).await;
    assert_eq!(found("due").await, None);
}

pub(super) async fn filters_pick_what_fits(rig: &Rig) {
    let names = ["mail", "mail.out", "report", "žurnál"];
    for (number, state) in StateName::ALL.into_iter().enumerate() {
        for (text, other) in [("x", false), ("y", true)] {
            let payload = format!("{{\"to\": \"{text}{number}\"}}");
            let draft = job(names[number % 4]).queue(text).payload(Payload::json(&payload));
            let draft = if other { draft.tag("odd").tag(text).tenant("other") } else { draft };
            rig.job_in(state, draft).await;
        }
    }
    rig.push(job("mail").payload(Payload::new(Format::Binary, vec![0xff, b'x', b'3', 0, 0xfe]))).await;
    for (name, queue, attempts) in [("mail", "x", 1), ("mail", "y", 0), ("report", "x", 3)] {
        let retried = rig.push(job(name).queue(queue)).await;
        rig.happen(retried.id, tried(attempts, 5_000), at(0)).await;
    }
    let all = all_jobs(&*rig.store).await;
    let cases = [
        Filter::default(),
        Filter { tenant: Some(tenant("other")), ..Filter::default() },
        Filter { tenant: Some(tenant("absent")), ..Filter::default() },
        Filter { states: vec![StateName::Failed], ..Filter::default() },
        Filter { states: StateName::ALL.to_vec(), ..Filter::default() },
        Filter { states: vec![StateName::Ready, StateName::Terminated], ..Filter::default() },
        Filter { queue: Some(queue("x")), ..Filter::default() },
        Filter { names: NameMatch::Exact("mail".into()), ..Filter::default() },
        Filter { names: NameMatch::OneOf(vec!["mail".into(), "report".into()]), ..Filter::default() },
        Filter { names: NameMatch::glob("*mail*"), ..Filter::default() },
        Filter { names: NameMatch::glob("ž[a-z]*"), ..Filter::default() },
        Filter { scope: scope(&["x"]), ..Filter::default() },
        Filter { scope: scope(&["*/mail", "y/r*"]), ..Filter::default() },
        Filter { scope: scope(&["nowhere"]), ..Filter::default() },
        Filter {
            scope: scope(&["x", "y/mail"]),
            states: vec![StateName::Ready, StateName::Failed],
            queue: Some(queue("x")),
            ..Filter::default()
        },
        Filter { tag: Some("odd".into()), ..Filter::default() },
        Filter { tag: Some("od".into()), ..Filter::default() },
        Filter { repeating: true, ..Filter::default() },
        Filter { repeating: true, states: vec![StateName::Ready], ..Filter::default() },
        Filter { text: Some("x3".into()), ..Filter::default() },
        Filter { text: Some("X3".into()), ..Filter::default() },
        Filter { text: Some("".into()), ..Filter::default() },
        Filter { text: Some("%".into()), ..Filter::default() },
        Filter {
            tenant: Some(tenant("other")),
            states: vec![StateName::Completed, StateName::Running],
            queue: Some(queue("y")),
            names: NameMatch::glob("*"),
            tag: Some("y".into()),
            text: Some("to".into()),
            ..Filter::default()
        },
    ];
    for case in cases.into_iter().chain(filters_of_retried_jobs()) {
        for limit in [2, 50] {
            let filter = Filter { limit, ..case.clone() };
            let expected: Vec<Arc<Job>> = all.iter().filter(|job| filter.fits(job)).cloned().collect();
            let listed = pages(rig, filter.clone()).await;
            assert_eq!(ids(&listed), ids(&expected), "jobs that fit {filter:?}");
            assert_eq!(listed, expected);
        }
    }
}

fn filters_of_retried_jobs() -> Vec<Filter> {
    let retried = || Filter { states: vec![StateName::Ready], retried: true, ..Filter::default() };
    vec![
        retried(),
        Filter { tenant: Some(tenant("other")), ..retried() },
        Filter { states: vec![StateName::Failed, StateName::Ready], ..retried() },
        Filter { queue: Some(queue("x")), ..retried() },
        Filter { names: NameMatch::glob("m*"), ..retried() },
        Filter { states: vec![StateName::Failed, StateName::Ready], scope: scope(&["*/mail"]), ..retried() },
        Filter { text: Some("to".into()), ..retried() },
    ]
}

/// A number of attempts is behind the job, and the next is at `run_at`.
fn tried(attempts: u32, run_at: i64) -> Event {
    let patch = Patch { attempts: Some(attempts), run_at: Some(at(run_at)), ..Patch::default() };
    Event::Update(Box::new(patch))
}

async fn z_ids(rig: &Rig) -> Vec<u64> {
    ids(&pages(rig, Filter { queue: Some(queue("z")), ..Filter::default() }).await)
}

pub(super) async fn counts_equal_rows(rig: &Rig) {
    let check = async |now: i64| {
        let jobs = all_jobs(&*rig.store).await;
        let kept = rig.store.counts(None, at(now)).await.expect("counts");
        assert_eq!(counted(&kept), counted(&super::random::count(&jobs, &kept, at(now))), "counts at {now}");
    };
    check(0).await;
    for state in StateName::ALL {
        rig.job_in(state, job("a").queue("x")).await;
        rig.job_in(state, job("a").queue("y").tenant("other")).await;
        check(0).await;
    }
    rig.insert(vec![job("late").run_at(70).queue("x"), job("later").run_at(90).queue("x")]).await;
    for now in [0, 69, 70, 90, 91] {
        check(now).await;
    }
    for (name, run_at) in [("tried", 75), ("tried", 95), ("late", 95)] {
        let retried = rig.push(job(name).queue("z")).await;
        rig.happen(retried.id, tried(2, run_at), at(0)).await;
    }
    let shut_down = rig.job_in(StateName::Terminating, job("late").queue("z")).await;
    let later = Patch { run_at: Some(at(95)), ..Patch::default() };
    rig.happen(shut_down, Event::Update(Box::new(later)), at(0)).await;
    for now in [0, 74, 75, 94, 95] {
        check(now).await;
    }
    let counts = rig.store.counts(None, at(80)).await.expect("counts");
    let z = counts.iter().find(|counts| counts.queue == queue("z")).expect("queue z");
    let words = [StateWord::Ready, StateWord::Delayed, StateWord::Retrying, StateWord::Terminating];
    assert_eq!(words.map(|word| z.of_word(word)), [1, 0, 2, 1], "{z:?}");
    rig.happen(id(z_ids(rig).await[1]), tried(0, 95), at(0)).await;
    check(80).await;
    for gone in z_ids(rig).await {
        rig.happen(id(gone), Event::Delete, at(0)).await;
    }
    check(80).await;
    let one_tenant = rig.store.counts(Some(&Tenant::default()), at(80)).await.expect("counts");
    let one_tenant = counted(&one_tenant);
    assert_eq!(one_tenant.len(), 1, "only queues of the tenant asked for: {one_tenant:?}");
    let counts = &one_tenant[0];
    assert_eq!((counts.of(StateName::Ready), counts.of(StateName::Running)), (3, 1));
    assert_eq!((counts.delayed, counts.oldest_due, counts.paused), (1, Some(at(0)), false));

    rig.claim(ask(), at(80)).await;
    check(80).await;
    rig.store.set_paused(&Tenant::default(), &queue("empty"), true).await.expect("set_paused");
    rig.store.set_paused(&tenant("other"), &queue("y"), true).await.expect("set_paused");
    let counts = rig.store.counts(None, at(80)).await.expect("counts");
    let paused: Vec<_> =
        counts.iter().filter(|counts| counts.paused).map(|counts| counts.queue.as_str()).collect();
    assert_eq!(paused, ["empty", "y"], "a paused queue shows, with jobs or without");
}

pub(super) async fn waiting_names_are_those_with_a_job_to_give_out(rig: &Rig) {
    let waiting = async |asked: &str, now: i64| {
        let names = rig.store.waiting(&queue(asked), at(now)).await.expect("waiting");
        let shown = |one: &crate::WaitingName| format!("{}/{} {}", one.tenant, one.name, one.ready);
        names.iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(waiting("x", 0).await, Vec::<String>::new());
    for state in StateName::ALL {
        rig.job_in(state, job(&format!("in-{}", state.as_str())).queue("x")).await;
    }
    let several = vec![
        job("b").queue("x"),
        job("a").queue("x").tenant("other"),
        job("b").queue("x").priority(-1),
        job("a").queue("y"),
        job("late").run_at(70).queue("x"),
        job("b").run_at(70).queue("x"),
    ];
    rig.insert(several).await;
    let early = ["default/b 2", "default/in-ready 1", "default/in-terminating 1", "other/a 1"];
    assert_eq!(waiting("x", 69).await, early);
    let later =
        ["default/b 3", "default/in-ready 1", "default/in-terminating 1", "default/late 1", "other/a 1"];
    assert_eq!(waiting("x", 70).await, later);
    assert_eq!(waiting("y", 0).await, ["default/a 1"]);
    assert_eq!(waiting("z", 0).await, Vec::<String>::new());
    rig.store.set_paused(&tenant("other"), &queue("x"), true).await.expect("set_paused");
    assert_eq!(waiting("x", 70).await, later[..4]);
    rig.claim(ask(), at(70)).await;
    let after = rig.store.waiting(&queue("x"), at(70)).await.expect("waiting");
    let jobs = all_jobs(&*rig.store).await;
    let is_ready = |job: &&Arc<Job>| job.state().claimable_at().is_some() && *job.spec.queue == *"x";
    let ready = jobs.iter().filter(is_ready).filter(|job| job.spec.tenant == Tenant::default()).count();
    assert_eq!(after.iter().map(|one| one.ready).sum::<u64>(), ready as u64);
}

pub(super) async fn settings_are_kept_by_key(rig: &Rig) {
    let put = async |key: &str, value: Option<&[u8]>| {
        rig.store.put_setting(key, value.map(<[u8]>::to_vec)).await.expect("put_setting");
    };
    let get = async |prefix: &str| {
        let settings = rig.store.settings(prefix).await.expect("settings");
        let keys = rig.store.setting_keys(prefix).await.expect("setting_keys");
        assert!(keys.iter().eq(settings.iter().map(|(key, _)| key)), "{keys:?} {settings:?}");
        settings.into_iter().map(|(key, value)| format!("{key}={value:?}")).collect::<Vec<_>>()
    };
    assert!(get("").await.is_empty());
    let written: [(&str, &[u8]); 8] = [
        ("limit/b", &[2]),
        ("limit/a", &[0, 255]),
        ("limit", &[]),
        ("limit%", &[3]),
        ("limit_", &[4]),
        ("Limit/a", &[5]),
        ("token/ž", &[6]),
        ("my limit/a", &[7]),
    ];
    for (key, value) in written {
        put(key, Some(value)).await;
    }
    assert_eq!(get("limit/").await, ["limit/a=[0, 255]", "limit/b=[2]"], "sorted by key");
    assert_eq!(get("limit%").await, ["limit%=[3]"], "a prefix is no pattern");
    assert_eq!(get("limit_").await, ["limit_=[4]"], "a prefix is no pattern");
    assert_eq!(get("token/ž").await, ["token/ž=[6]"]);
    assert_eq!(get("absent").await, [""; 0]);
    let keys: Vec<String> =
        get("").await.iter().map(|line| line[..line.find('=').unwrap_or(0)].into()).collect();
    let mut sorted: Vec<String> = written.iter().map(|(key, _)| (*key).to_owned()).collect();
    sorted.sort_unstable();
    assert_eq!(keys, sorted, "the empty prefix gives all, by the bytes of their keys");

    put("limit/a", Some(&[9])).await;
    put("limit/b", None).await;
    put("never there", None).await;
    assert_eq!(get("limit/").await, ["limit/a=[9]"], "overwritten and removed");
}

pub(super) async fn children_are_found_by_their_parent(rig: &Rig) {
    let parent = rig.push(job("parent")).await.id;
    let other = rig.push(job("other parent")).await.id;
    let children = [job("a").child_of(parent, false), job("b").child_of(other, true)];
    rig.insert(children.into()).await;
    rig.insert(vec![job("c").child_of(parent, true), job("d"), job("e").child_of(parent, false)]).await;
    let of = async |parent: JobId| {
        let children = rig.store.children(parent).await.expect("children");
        children.into_iter().map(JobId::get).collect::<Vec<_>>()
    };
    assert_eq!(of(parent).await, [3, 5, 7], "in the order of their ids");
    assert_eq!(of(other).await, [4]);
    assert_eq!(of(id(6)).await, [0; 0], "a job without children");
    assert_eq!(of(id(999)).await, [0; 0], "a job that never was");

    rig.happen(id(5), Event::ParentPaused, at(0)).await;
    rig.happen(id(3), Event::Delete, at(0)).await;
    let orphaned = windlass_core::event::Patch { extras: Some(Box::default()), ..Default::default() };
    rig.happen(id(7), Event::Update(Box::new(orphaned)), at(0)).await;
    assert_eq!(of(parent).await, [5], "one is gone, one has no parent any more");
    rig.happen(parent, Event::Delete, at(0)).await;
    assert_eq!(of(parent).await, [5], "the tie is the child's");
}

pub(super) async fn a_closed_store_says_so(rig: &Rig) {
    rig.push(job("a")).await;
    rig.store.health().await.expect("an open store is well");
    rig.store.close().await.expect("close");
    rig.store.reopen("k");
    let answers = [
        rig.store.commit(vec![], at(0)).await.err(),
        rig.store.claim(ask(), at(0)).await.err(),
        rig.store.load(vec![id(1)]).await.err(),
        rig.store.due(at(0), 1).await.err(),
        rig.store.list(Filter::default()).await.err(),
        rig.store.counts(None, at(0)).await.err(),
        rig.store.put_setting("k", None).await.err(),
        rig.store.health().await.err(),
    ];
    for (number, answer) in answers.into_iter().enumerate() {
        assert!(matches!(answer, Some(StoreError::Closed)), "call {number} to a closed store: {answer:?}");
    }
}
