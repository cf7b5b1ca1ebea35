//! Locks.

use super::World;
use serde_json::{Value, json};

#[tokio::test]
async fn a_lock_is_held_by_its_token_for_its_time() {
    let w = World::new().await;
    let job = w.idle("W", "completed").await;
    let path = |what: &str| format!("/jobs/{job}/{what}");
    let token = w.post(&path("lock"), json!({"ttl": 10})).await["token"].clone();
    assert!(token.as_str().unwrap().len() >= 32);
    assert_eq!(w.post(&path("lock"), json!({"ttl": 10})).await, json!({"token": null}));
    assert_eq!(w.post(&path("unlock"), json!({"token": "wrong"})).await, json!({"unlock": false}));
    w.pass(9_000).await;
    assert_eq!(
        w.post(&path("refresh_lock"), json!({"ttl": 10, "token": token})).await,
        json!({"refresh": true})
    );
    assert_eq!(
        w.post(&path("refresh_lock"), json!({"ttl": 10, "token": "wrong"})).await,
        json!({"refresh": false})
    );
    w.pass(9_999).await;
    assert_eq!(w.post(&path("lock"), json!({"ttl": 10})).await, json!({"token": null}));
    w.pass(1).await;
    assert_eq!(
        w.post(&path("refresh_lock"), json!({"ttl": 10, "token": token})).await,
        json!({"refresh": false})
    );
    let second = w.post(&path("lock"), json!({"ttl": 10})).await["token"].clone();
    assert_ne!(second, Value::Null);
    assert_ne!(second, token);
    assert_eq!(w.post(&path("unlock"), json!({"token": second})).await, json!({"unlock": true}));
    assert_eq!(w.post(&path("unlock"), json!({"token": second})).await, json!({"unlock": false}));
    for ttl in [json!(0), json!(-1), json!("soon")] {
        let refusal = w.refused("POST", &path("lock"), json!({"ttl": ttl})).await;
        assert_eq!(refusal.0, 422, "{}", refusal.1);
    }
    assert_eq!(
        w.refused("POST", &path("refresh_lock"), json!({"ttl": 1})).await,
        (422, "Missing token".to_owned())
    );
}

#[tokio::test]
async fn a_locked_job_is_not_run_until_it_is_free() {
    let w = World::new().await;
    let job = w.create("W").await;
    let token = w.post(&format!("/jobs/{job}/lock"), json!({"ttl": 100})).await["token"].clone();
    for _ in 0..3 {
        assert!(w.claim().await.is_none());
        assert_eq!(w.status(job).await, "queued");
        w.pass(1_000).await;
    }
    w.post(&format!("/jobs/{job}/unlock"), json!({"token": token})).await;
    assert_eq!(w.drain().await, [job]);
}

#[tokio::test]
async fn a_job_that_runs_cannot_be_locked_from_outside() {
    let w = World::new().await;
    let job = w.create("W").await;
    let run = w.claimed().await;
    assert_eq!(w.post(&format!("/jobs/{job}/lock"), json!({"ttl": 1})).await, json!({"token": null}));
    w.finish(&run, "completed").await;
    assert_ne!(w.post(&format!("/jobs/{job}/lock"), json!({"ttl": 1})).await, json!({"token": null}));
}
