//! Test mode: handlers, outcomes, steps and time travel without a server.

#![allow(clippy::unwrap_used, reason = "a test ends at the first error")]

mod steps;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use windlass_client::{Backoff, BoxError, Context, Error, Fail, Retry, Snooze, Windlass};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Mail {
    to: String,
}

fn mail(to: &str) -> Mail {
    Mail { to: to.to_owned() }
}

fn app() -> Windlass {
    // Nothing listens there: a call to a server would fail.
    Windlass::new("http://127.0.0.1:9").unwrap()
}

/// Counter shared with a handler.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU32>);

impl Count {
    fn up(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

fn second() -> Duration {
    Duration::from_secs(1)
}

#[tokio::test]
async fn pushes_are_collected_until_the_test_runs_them() {
    let app = app();
    let test = app.testing();
    let send = app
        .task("send", |mail: Mail, _: Context| async move { Ok::<_, Error>(mail.to) })
        .unique(|mail| mail.to.clone())
        .register();
    let other = app.declare::<Mail, ()>("other").register();
    let job = send.push(&mail("ann")).await.unwrap();
    assert!(job.is_new());
    let again = send.push(&mail("ann")).await.unwrap();
    assert!(!again.is_new() && again.id() == job.id(), "the unique key is taken");
    let many = send.push_many(&[mail("bob"), mail("eve")]).await.unwrap();
    assert_eq!(many.len(), 2);
    assert_eq!(test.pushed(&send), [mail("ann"), mail("bob"), mail("eve")]);
    test.assert_pushed(&send, |mail| mail.to == "bob");
    test.assert_not_pushed(&other);
    assert_eq!(test.job(job.id()).state, "ready");
    assert_eq!(test.run().await, 3);
    assert_eq!(job.wait().await.unwrap(), "ann");
    let after = send.push(&mail("ann")).await.unwrap();
    assert!(after.is_new(), "the key is free when the job is settled");
}

#[tokio::test]
#[should_panic(expected = r#"no such job of send among [{"to":"ann"}]"#)]
async fn an_assertion_that_fails_lists_what_was_pushed() {
    let app = app();
    let test = app.testing();
    let send = app.declare::<Mail, ()>("send").register();
    send.push(&mail("ann")).await.unwrap();
    test.assert_pushed(&send, |mail| mail.to == "bob");
}

#[tokio::test]
async fn an_idempotency_key_makes_one_job() {
    let app = app();
    let test = app.testing();
    let send = app.declare::<Mail, ()>("send").register();
    let first = send.with().idempotency_key("k").push(&mail("ann")).await.unwrap();
    let second = send.with().idempotency_key("k").push(&mail("bob")).await.unwrap();
    assert_eq!((first.id(), second.is_new()), (second.id(), false));
    assert_eq!(test.jobs().len(), 1);
}

#[tokio::test]
async fn delays_pass_with_the_time_of_the_test() {
    let app = app();
    let test = app.testing();
    let ran = Count::default();
    let count = ran.clone();
    let send = app
        .task("send", move |_: Mail, _: Context| {
            count.up();
            async { Ok::<_, Error>(()) }
        })
        .register();
    send.delay(60 * second()).push(&mail("ann")).await.unwrap();
    send.at(test.now() + 90 * second()).push(&mail("bob")).await.unwrap();
    assert_eq!((test.run().await, ran.get()), (0, 0));
    assert_eq!(test.advance(59 * second()).await, 0);
    assert_eq!((test.advance(second()).await, ran.get()), (1, 1));
    assert_eq!((test.advance(60 * second()).await, ran.get()), (1, 2));
}

#[tokio::test]
async fn a_job_pushed_by_a_handler_runs_inline() {
    let app = app();
    let test = app.testing().inline();
    let leaf = app.task("leaf", |n: u32, _: Context| async move { Ok::<_, Error>(n * 2) }).register();
    let task = leaf.clone();
    let root = app
        .task("root", move |n: u32, _: Context| {
            let leaf = task.clone();
            async move { leaf.push(&n).await?.wait().await }
        })
        .register();
    let job = root.push(&21).await.unwrap();
    assert_eq!(test.job(job.id()).result, Some(json!(42)));
    test.assert_pushed(&leaf, |n| *n == 21);
}

/// Runs a handler whose first run ends with this error. Returns the job after one run, and after a minute.
async fn after(
    error: impl Fn() -> BoxError + Send + Sync + 'static,
) -> (String, u32, Option<String>, String) {
    let app = app();
    let test = app.testing();
    let runs = Count::default();
    let error = Arc::new(error);
    let task = app
        .task("t", move |_: Value, _: Context| {
            let failed = (runs.up() == 1).then(|| error());
            async move { failed.map_or(Ok(1), Err) }
        })
        .retry(3)
        .backoff(Backoff::Fixed(10 * second()))
        .register();
    let job = task.push(&json!(null)).await.unwrap();
    test.run().await;
    let first = test.job(job.id());
    test.advance(60 * second()).await;
    let later = test.job(job.id()).state;
    (first.state, first.attempts, first.class, later)
}

#[tokio::test]
async fn each_outcome_has_its_effect() {
    let text = |s: &str| s.to_owned();
    let class = |s: &str| Some(s.to_owned());
    assert_eq!(after(|| "plain".into()).await, (text("retrying"), 1, class("Error"), text("completed")));
    assert_eq!(
        after(|| Retry::after(30 * second()).into()).await,
        (text("retrying"), 1, class("Retry"), text("completed"))
    );
    assert_eq!(after(|| Retry::after(90 * second()).into()).await.3, "retrying", "not before its time");
    assert_eq!(after(|| Fail::new("no").into()).await, (text("failed"), 1, class("Fail"), text("failed")));
    assert_eq!(
        after(|| Snooze::new(30 * second()).into()).await,
        (text("delayed"), 0, None, text("completed")),
        "a snooze does not count"
    );
    let outage = || Error::Unreachable { server: "s".into(), why: "w".into() };
    assert_eq!(after(move || Error::Other(Box::new(outage())).into()).await.1, 0, "an outage does not count");
    assert_eq!(after(|| panic!("boom")).await, (text("retrying"), 1, class("Panic"), text("completed")));
}

#[tokio::test]
async fn attempts_end_and_a_wrong_payload_is_not_tried_again() {
    let app = app();
    let test = app.testing();
    let task = app
        .task("t", |n: u32, _: Context| async move { Err::<(), BoxError>(format!("no {n}").into()) })
        .retry(2)
        .register();
    let job = task.push(&7).await.unwrap();
    test.advance(3_600 * second()).await;
    let Err(Error::NotCompleted { state, message, .. }) = job.wait().await else { panic!("not failed") };
    assert_eq!((state.as_str(), message.as_deref()), ("failed", Some("no 7")));
    assert_eq!(test.job(job.id()).attempts, 2);
    let text = app.declare::<String, ()>("t").register().push(&"seven".to_owned()).await.unwrap();
    test.run().await;
    let view = test.job(text.id());
    assert_eq!((view.state.as_str(), view.class.as_deref(), view.attempts), ("failed", Some("Payload"), 1));
}

#[tokio::test]
async fn a_handler_that_exceeds_its_timeout_is_dropped() {
    struct OnDrop(Count);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.up();
        }
    }
    let app = app();
    let test = app.testing();
    let dropped = Count::default();
    let count = dropped.clone();
    let task = app
        .task("t", move |(): (), _: Context| {
            let guard = OnDrop(count.clone());
            async move {
                let _guard = guard;
                std::future::pending::<()>().await;
                Ok::<_, Error>(())
            }
        })
        .timeout(Duration::from_millis(20))
        .retry(1)
        .register();
    let job = task.push(&()).await.unwrap();
    test.run().await;
    let view = test.job(job.id());
    assert_eq!((view.state.as_str(), view.class.as_deref()), ("failed", Some("Timeout")));
    assert_eq!(dropped.get(), 1);
}

#[tokio::test]
async fn hooks_run_around_the_handler() {
    let app = app();
    let test = app.testing();
    let (seen, errors) = (Count::default(), Count::default());
    app.before(|ctx: Context| async move {
        ctx.log("before");
        if ctx.name == "stopped" { Err("not today".into()) } else { Ok(()) }
    });
    let count = seen.clone();
    app.after(move |_| {
        count.up();
        async {}
    });
    let count = errors.clone();
    app.on_error(move |ctx, message| {
        count.up();
        async move { ctx.log(message) }
    });
    let fine = app.task("fine", |(): (), _| async { Ok::<_, Error>(()) }).register();
    let stopped = app.task("stopped", |(): (), _| async { Ok::<_, Error>(()) }).retry(1).register();
    let sleeps =
        app.task("sleeps", |(): (), ctx: Context| async move { ctx.sleep(second()).await }).register();
    let fine = fine.push(&()).await.unwrap();
    let stopped = stopped.push(&()).await.unwrap();
    sleeps.push(&()).await.unwrap();
    test.run().await;
    assert_eq!(test.job(fine.id()).log, ["before"]);
    let view = test.job(stopped.id());
    assert_eq!((view.state.as_str(), view.log), ("failed", vec!["before".into(), "not today".into()]));
    assert_eq!((seen.get(), errors.get()), (1, 1), "a suspension is neither");
}

#[tokio::test]
async fn progress_and_log_arrive() {
    let app = app();
    let test = app.testing();
    let task = app
        .task("t", |(): (), ctx: Context| async move {
            ctx.progress(40, "half way");
            ctx.log("one");
            ctx.log("two");
            Ok::<_, Error>(())
        })
        .register();
    let job = task.push(&()).await.unwrap();
    test.run().await;
    let view = test.job(job.id());
    assert_eq!((view.progress, view.log.len()), (Some((40, Some("half way".into()))), 2));
}

#[tokio::test]
async fn the_test_mode_ends_with_its_value() {
    let app = app();
    let send = app.declare::<Mail, ()>("send").register();
    let test = app.testing();
    assert_eq!(send.push(&mail("ann")).await.unwrap().id(), 1);
    drop(test);
    let test = app.testing();
    assert!(test.jobs().is_empty());
    let sql = send.delay(second()).tag("x").sql(&mail("ann")).unwrap();
    assert_eq!(sql.statement(), "SELECT \"windlass\".push($1::text, $2::text::jsonb, $3::text::jsonb)");
    assert_eq!((sql.name.as_str(), sql.payload.as_str()), ("send", r#"{"to":"ann"}"#));
    assert_eq!(sql.options, r#"{"delay_ms":1000,"tags":["x"]}"#);
    assert!(sql.in_schema("my\"jobs").statement().starts_with("SELECT \"my\"\"jobs\".push("));
}
