//! Requests.

use super::World;
use serde_json::{Value, json};
use windlass_dialects::HttpOptions;
use windlass_dialects::sidejob::Settings;

// scenarios 142
#[tokio::test]
async fn a_job_is_shown_with_its_state_and_the_sizes_of_its_ports() {
    let w = World::new().await;
    assert_eq!(w.get("/").await, json!({"version": "1.0"}));
    let job = w.create("Add").await;
    w.post(&format!("/jobs/{job}/inports/a/write"), json!({"list": [1, 2]})).await;
    let view = w.view(job).await;
    assert_eq!(view["job"], json!(job));
    assert_eq!(view["inports"], json!({"a": {"size": 2}, "b": {"size": 0, "default": 10}}));
    assert_eq!(view["outports"], json!({"sum": {"size": 0}}));
    let native = w.server.get(&format!("/api/v1/jobs/{job}")).await.json();
    assert_eq!(native["ports"]["inports"]["a"], json!({"size": 2, "values": [1, 2]}));
    assert_eq!(native["ports"]["inports"]["b"], json!({"size": 0, "default": 10, "values": []}));
    assert_eq!(native["custom_state"], json!({}));
}

// scenarios 143
#[tokio::test]
async fn any_call_may_run_the_job_afterwards_and_that_is_no_state() {
    let w = World::new().await;
    let parent = w.idle("W", "failed").await;
    let job = w.child("IO", parent, "c").await;
    w.drain().await;
    let body = json!({"k": 1, "run": {}, "log_context": {"u": 1}});
    w.post(&format!("/jobs/{job}/state"), body).await;
    let state = w.get(&format!("/jobs/{job}/state")).await;
    assert_eq!((&state["k"], state.get("run"), state.get("log_context")), (&json!(1), None, None));
    assert_eq!(w.drain().await, [job]);
    let body = json!({"run": {"parent": true, "force": true}});
    w.post(&format!("/jobs/{job}/inports/a/read"), body).await;
    assert_eq!(w.drain().await, [parent]);
    assert_eq!(w.refused("POST", &format!("/jobs/{job}/state"), json!({"run": 1})).await.0, 422);
}

// scenarios 144
#[tokio::test]
async fn adoption_works_over_http() {
    let w = World::new().await;
    let (parent, child) = (w.create("W").await, w.create("W").await);
    w.post(&format!("/jobs/{parent}/adopt"), json!({"child": child, "name": "c"})).await;
    assert_eq!(w.get(&format!("/jobs/{parent}/child/c")).await, json!({"job": child}));
}

// scenarios 145, 146
#[tokio::test]
async fn what_is_not_understood_is_refused_in_one_shape() {
    let w = World::new().await;
    let job = w.create("IO").await;
    let refusal = w.refused("POST", &format!("/jobs/{job}/inports/a/peek"), json!({})).await;
    assert_eq!(refusal, (422, "Unknown port operation: peek".to_owned()));
    assert_eq!(w.refused("POST", &format!("/jobs/{job}/midports/a/read"), json!({})).await.0, 404);
    assert_eq!(w.refused("PUT", &format!("/jobs/{job}/run"), json!({})).await.0, 405);
    for body in ["[1]", "5", "\"x\"", "{\"data\":NaN}"] {
        let reply = w.server.post(&format!("/sidejob/jobs/{job}/inports/a/write"), body).await;
        assert_eq!(reply.status, 400, "{body}");
        assert!(reply.json()["error"].is_string());
    }
    for (path, body) in [
        ("run", json!({"force": "yes"})),
        ("run", json!({"at": "tomorrow"})),
        ("run", json!({"wait": "x"})),
        ("terminate", json!({"recursive": 1})),
        ("finish", json!({"token": "1", "status": "done"})),
        ("finish", json!({"status": "completed"})),
        ("for_inputs", json!({})),
        ("unset", json!({"keys": "a"})),
        ("adopt", json!({"name": "x"})),
        ("ports", json!({"inports": []})),
    ] {
        assert_eq!(w.refused("POST", &format!("/jobs/{job}/{path}"), body).await.0, 422, "{path}");
    }
}

// scenarios 147
#[tokio::test]
async fn other_web_sites_are_let_in_only_when_they_are_configured() {
    let origins = vec!["https://a.example".to_owned(), "https://b.example".to_owned()];
    let sidejob = Settings { origins, ..Settings::default() };
    let open = World::serving(HttpOptions { sidejob, ..HttpOptions::default() }).await;
    let shut = World::new().await;
    let from = |origin: &'static str| vec![("origin", origin), ("content-type", "application/json")];
    let body = br#"{"queue":"q","class":"W"}"#;
    for (w, origin, status) in [
        (&shut, "https://a.example", 403),
        (&open, "https://evil.example", 403),
        (&open, "https://b.example", 200),
    ] {
        let reply = w.server.connect().await.call("POST", "/sidejob/jobs", &from(origin), body).await;
        assert_eq!(reply.status, status, "{origin}");
        let allowed = reply.header("access-control-allow-origin");
        assert_eq!(allowed, (status == 200).then_some(origin));
        let preflight = w.server.connect().await.call("OPTIONS", "/sidejob/jobs", &from(origin), b"").await;
        assert_eq!(preflight.header("access-control-allow-origin"), (status == 200).then_some(origin));
        let elsewhere = w.server.connect().await.call("POST", "/api/v1/jobs", &from(origin), b"{}").await;
        assert_eq!(elsewhere.status, 403, "the other dialects let nobody in");
    }
}

#[tokio::test]
async fn jobs_of_other_dialects_can_be_worked_on() {
    let w = World::new().await;
    let pushed = w.server.post("/api/v1/jobs", r#"{"name":"mail","queue":"q","payload":{"to":"you"}}"#).await;
    let job = pushed.json()["id"].as_u64().unwrap();
    let run = w.claimed().await;
    assert_eq!(
        (run.job, &run.all["class"], &run.all["args"]),
        (job, &json!("mail"), &json!([{"to": "you"}]))
    );
    w.finish(&run, "completed").await;
    assert_eq!(w.server.get(&format!("/api/v1/jobs/{job}")).await.json()["state"], "completed");
    assert_eq!(w.view(job).await["inports"], Value::Object(Default::default()));
}
