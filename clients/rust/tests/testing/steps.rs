//! Durable steps in the test mode.

use super::{Count, app, second};
use serde_json::json;
use std::time::Duration;
use windlass_client::{BoxError, Call, Context, Error, Fail, OnChange, Task, Testing};

fn names(test: &Testing, id: u64) -> Vec<String> {
    test.job(id).steps.into_iter().map(|(name, _)| name).collect()
}

#[tokio::test]
async fn a_kept_step_is_never_run_again() {
    let app = app();
    let test = app.testing();
    let (charged, runs) = (Count::default(), Count::default());
    let (charge, run) = (charged.clone(), runs.clone());
    let order = app
        .task("order", move |total: u32, ctx: Context| {
            let (charge, run) = (charge.clone(), run.clone());
            async move {
                run.up();
                let receipt = ctx.step("charge", || async { Ok::<_, Error>(charge.up() * total) }).await?;
                ctx.sleep(3 * 86_400 * second()).await?;
                if run.get() == 2 {
                    return Err("a bad day".into());
                }
                let approved: Option<bool> = ctx.wait_for("approval").await?;
                Ok::<_, BoxError>((receipt, approved))
            }
        })
        .register();
    let job = order.push(&5).await.unwrap();
    test.run().await;
    assert_eq!(test.job(job.id()).state, "suspended");
    test.advance(3 * 86_400 * second() - second()).await;
    assert_eq!(runs.get(), 1, "no worker is held");
    test.advance(10 * second()).await;
    assert_eq!((test.job(job.id()).state.as_str(), runs.get()), ("suspended", 3));
    assert!(test.signal(job.id(), "approval", &true).await.unwrap());
    assert_eq!(job.wait().await.unwrap(), (5, Some(true)));
    assert_eq!(charged.get(), 1);
    assert_eq!(names(&test, job.id()), ["charge", "sleep", "wait:approval"]);
}

#[tokio::test]
async fn signals_that_come_early_are_kept_and_waits_can_time_out() {
    let app = app();
    let test = app.testing();
    let task = app
        .task("t", |(): (), ctx: Context| async move {
            let early: Option<u32> = ctx.wait_for("early").timeout(second()).await?;
            let late: Option<u32> = ctx.wait_for("late").timeout(second()).await?;
            Ok::<_, Error>((early, late))
        })
        .register();
    let job = task.push(&()).await.unwrap();
    assert!(!job.signal("early", &7).await.unwrap());
    test.run().await;
    test.advance(second()).await;
    assert_eq!(job.wait().await.unwrap(), (Some(7), None));
    assert!(matches!(job.signal("late", &1).await, Err(Error::Conflict { .. })));
}

#[tokio::test]
async fn children_run_without_the_parent_and_bring_their_results() {
    let app = app();
    let test = app.testing();
    let runs = Count::default();
    let pack = app
        .task("pack", |n: u32, ctx: Context| async move {
            if n == 3 && ctx.attempt == 1 {
                return Err("fragile".into());
            }
            Ok::<_, BoxError>(n * 10)
        })
        .register();
    let (child, run) = (pack.clone(), runs.clone());
    let order = app
        .task("order", move |items: Vec<u32>, ctx: Context| {
            let (pack, run): (Task<u32, u32>, _) = (child.clone(), run.clone());
            async move {
                run.up();
                let first = ctx.all(items.iter().map(|item| pack.call(item))).await?;
                let none = ctx.all(Vec::<Call<u32>>::new()).await?;
                let second = ctx.all([pack.call(&9)]).await?;
                Ok::<_, Error>((first, none, second))
            }
        })
        .register();
    let job = order.push(&vec![1, 2, 3]).await.unwrap();
    test.run().await;
    assert_eq!((test.job(job.id()).state.as_str(), runs.get()), ("suspended", 1), "child 3 is to be retried");
    test.advance(60 * second()).await;
    assert_eq!(job.wait().await.unwrap(), (vec![10, 20, 30], vec![], vec![90]));
    assert_eq!((test.pushed(&pack).len(), runs.get()), (4, 3), "replay pushes no child twice");
    assert_eq!(names(&test, job.id()), ["all", "all#3"]);
}

#[tokio::test]
async fn a_failed_child_is_an_error_or_a_value() {
    let app = app();
    let test = app.testing();
    let pack = app
        .task("pack", |n: u32, _: Context| async move {
            if n == 0 { Err(Error::from(Fail::new("empty"))) } else { Ok(n) }
        })
        .register();
    let child = pack.clone();
    let both = app
        .task("both", move |(): (), ctx: Context| {
            let pack = child.clone();
            async move {
                let settled = ctx.all_settled([pack.call(&0), pack.call(&1)]).await?;
                let failed = settled[0].as_ref().err().map(ToString::to_string);
                ctx.step("note", || async { Ok::<_, Error>(failed) }).await?;
                ctx.all([pack.call(&0)]).await
            }
        })
        .retry(1)
        .register();
    let job = both.push(&()).await.unwrap();
    test.run().await;
    let view = test.job(job.id());
    assert_eq!(view.steps[1], ("note".to_owned(), json!("child 2 is failed: empty")));
    assert_eq!((view.state.as_str(), view.class.as_deref()), ("failed", Some("ChildFailed")));
}

#[tokio::test]
async fn a_step_has_tries_of_its_own() {
    let app = app();
    let test = app.testing();
    let tries = Count::default();
    let count = tries.clone();
    let task = app
        .task("t", move |enough: u32, ctx: Context| {
            let count = count.clone();
            async move {
                let step = ctx.step_retry("s", enough, || async {
                    if count.up() < 3 { Err("not yet".to_owned()) } else { Ok(count.get()) }
                });
                step.backoff(Duration::from_millis(1)).await
            }
        })
        .retry(1)
        .register();
    let fails = task.push(&1).await.unwrap();
    test.run().await;
    assert_eq!(tries.get(), 2);
    let view = test.job(fails.id());
    assert_eq!((view.message.as_deref(), view.steps.len()), (Some("step s: not yet"), 0), "no kept step");
    let works = task.push(&1).await.unwrap();
    assert_eq!(works.wait().await.unwrap(), 3);
}

#[tokio::test]
async fn concurrent_steps_are_kept_and_named_by_the_order_of_the_calls() {
    let app = app();
    let test = app.testing();
    let task = app
        .task("t", |(): (), ctx: Context| async move {
            let value = |n: u32| move || async move { Ok::<_, Error>(n) };
            let (a, b, c) =
                tokio::join!(ctx.step("x", value(1)), ctx.step("y", value(2)), ctx.step("x", value(3)),);
            ctx.sleep(second()).await?;
            Ok::<_, Error>((a?, b?, c?))
        })
        .register();
    let job = task.push(&()).await.unwrap();
    test.advance(second()).await;
    assert_eq!(job.wait().await.unwrap(), (1, 2, 3));
    assert_eq!(names(&test, job.id()), ["x", "y", "x#2", "sleep"]);
}

/// Job that has kept the steps `old` and `sleep`, and a task whose code has changed since.
async fn changed(on_change: OnChange) -> (String, Option<String>, Vec<String>) {
    let app = app();
    let test = app.testing();
    let runs = Count::default();
    let task = app
        .task("t", move |(): (), ctx: Context| {
            let is_new = runs.up() > 1;
            async move {
                let name = if is_new { "new" } else { "old" };
                ctx.step(name, || async { Ok::<_, Error>(()) }).await?;
                ctx.sleep(second()).await
            }
        })
        .on_change(on_change)
        .register();
    let job = task.push(&()).await.unwrap();
    test.advance(10 * second()).await;
    let view = test.job(job.id());
    (view.state, view.class, view.log)
}

#[tokio::test]
async fn changed_code_is_reported_or_refused() {
    let (state, _, log) = changed(OnChange::Warn).await;
    assert_eq!((state.as_str(), log.len()), ("completed", 1));
    assert!(log[0].contains("step new is reached without the kept steps old, sleep"), "{log:?}");
    let (state, class, _) = changed(OnChange::Refuse).await;
    assert_eq!((state.as_str(), class.as_deref()), ("failed", Some("StepsChanged")));
}

#[tokio::test]
async fn a_job_keeps_the_version_of_its_first_step() {
    let app = app();
    let test = app.testing();
    let register = |version: u32| {
        app.task("t", move |(): (), ctx: Context| async move {
            let before = ctx.version();
            ctx.sleep(second()).await?;
            ctx.step("last", || async { Ok::<_, Error>(()) }).await?;
            Ok::<_, Error>((before, version))
        })
        .version(version)
        .register()
    };
    let job = register(1).push(&()).await.unwrap();
    test.run().await;
    register(2);
    test.advance(second()).await;
    assert_eq!(job.wait().await.unwrap(), (1, 2), "begun with version 1, ended by version 2");
    assert_eq!(names(&test, job.id()), ["@version", "sleep", "last"]);
}

#[tokio::test]
async fn a_handler_that_catches_the_suspension_is_suspended_all_the_same() {
    let app = app();
    let test = app.testing();
    let task = app
        .task("t", |(): (), ctx: Context| async move {
            let _ = ctx.sleep(second()).await;
            let after = ctx.step("after", || async { Ok::<_, Error>(1) }).await;
            Ok::<_, Error>(after.is_ok())
        })
        .register();
    let job = task.push(&()).await.unwrap();
    test.run().await;
    assert_eq!(test.job(job.id()).state, "suspended");
    assert_eq!(names(&test, job.id()).len(), 0, "no step runs after the suspension");
    test.advance(second()).await;
    assert!(job.wait().await.unwrap());
}

#[tokio::test]
async fn a_retry_goes_on_after_the_kept_steps_or_from_a_step() {
    let app = app();
    let test = app.testing();
    let (a, b, ends) = (Count::default(), Count::default(), Count::default());
    let counts = (a.clone(), b.clone(), ends.clone());
    let task = app
        .task("t", move |(): (), ctx: Context| {
            let (a, b, ends) = counts.clone();
            async move {
                ctx.step("a", || async { Ok::<_, Error>(a.up()) }).await?;
                ctx.step("b", || async { Ok::<_, Error>(b.up()) }).await?;
                if ends.up() == 1 { Err(Error::from(Fail::new("no"))) } else { Ok(()) }
            }
        })
        .register();
    let job = task.push(&()).await.unwrap();
    test.run().await;
    job.retry().await.unwrap();
    job.wait().await.unwrap();
    assert_eq!((a.get(), b.get()), (1, 1), "a failed job keeps its steps");
    job.retry_from("b").await.unwrap();
    job.wait().await.unwrap();
    assert_eq!((a.get(), b.get()), (1, 2));
    job.retry().await.unwrap();
    job.wait().await.unwrap();
    assert_eq!((a.get(), b.get()), (2, 3), "a completed job starts without steps");
    assert!(matches!(job.retry_from("c").await, Err(Error::NotFound { .. })));
}
