//! Requests.

use super::World;
use serde_json::{Value, json};
use windlass_dialects::ServerOptions;
use windlass_dialects::settings::DialectSettings;
use windlass_dialects::sidejob::Settings;

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

#[tokio::test]
async fn adoption_works_over_http() {
    let w = World::new().await;
    let (parent, child) = (w.create("W").await, w.create("W").await);
    w.post(&format!("/jobs/{parent}/adopt"), json!({"child": child, "name": "c"})).await;
    assert_eq!(w.get(&format!("/jobs/{parent}/child/c")).await, json!({"job": child}));
}

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

#[tokio::test]
async fn other_web_sites_are_let_in_only_when_they_are_configured() {
    let origins = vec!["https://a.example".to_owned(), "https://b.example".to_owned()];
    let sidejob = Settings { origins, ..Settings::default() };
    let open =
        World::serving(ServerOptions { settings: DialectSettings::of(sidejob), ..ServerOptions::default() })
            .await;
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

/// A misspelled member must not be taken for an omitted one: `{"dat":1}` is not a write of null.
#[tokio::test]
async fn members_that_a_call_does_not_know_are_refused_and_nothing_is_done() {
    let world = World::new().await;
    let job = world.create("IO").await;
    let other = world.create("IO").await;
    let run = world.claimed().await;
    let (before, other_before) = (world.view(job).await, world.view(other).await);
    let token = run.token.as_str();
    let to = json!({"job": other, "inport": "a"});
    let cases = [
        ("/jobs", json!({"queue": "q", "class": "W", "arg": [1]}), "arg"),
        ("/jobs", json!({"queue": "q", "class": "W", "run": {}}), "run"),
        ("/jobs", json!({"queue": "q", "class": "W", "inports": {"p": {"defualt": 1}}}), "defualt"),
        ("/queues/q/claim", json!({"class": ["W"]}), "class"),
        ("/group", json!({"operation": []}), "operation"),
        ("/group", json!({"operations": [{"job": job, "inport": "a", "read": true, "x": 1}]}), "x"),
        ("J/run", json!({"forced": true}), "forced"),
        ("J/run", json!({"run": {"forced": true}}), "forced"),
        ("J/terminate", json!({"recursiv": true}), "recursiv"),
        ("J/status", json!({"status": "failed", "error": "no"}), "error"),
        ("J/unset", json!({"keys": [], "key": "a"}), "key"),
        ("J/adopt", json!({"child": other, "name": "c", "child_name": "d"}), "child_name"),
        ("J/disown", json!({"names": "c"}), "names"),
        ("J/ports", json!({"inport": {}}), "inport"),
        ("J/ports", json!({"inports": {"a": {"channels": []}}}), "channels"),
        ("J/inports/a/read", json!({"data": 1}), "data"),
        ("J/inports/a/entries", json!({"limit": 1}), "limit"),
        ("J/inports/a/write", json!({"dat": 1}), "dat"),
        ("J/inports/a/write", json!({"data": 1, "run": {"forced": true}}), "forced"),
        ("J/inports/a/default", json!({"data": 1}), "data"),
        ("J/inports/a/connect", json!({"ports": to}), "ports"),
        ("J/inports/a/connect", json!({"to": [to, {"job": other, "inport": "b", "port": "c"}]}), "port"),
        ("J/lock", json!({"ttl": 5, "retries": 1}), "retries"),
        ("J/refresh_lock", json!({"ttl": 5, "token": token, "x": 1}), "x"),
        ("J/unlock", json!({"token": "a", "ttl": 1}), "ttl"),
        ("J/for_inputs", json!({"inports": ["a"], "token": token, "write": []}), "write"),
        (
            "J/for_inputs",
            json!({"inports": ["a"], "token": token, "writes": {"outport": "x", "dat": 1}}),
            "dat",
        ),
        ("J/finish", json!({"token": token, "staus": "failed"}), "staus"),
    ];
    for (path, body, unknown) in cases {
        let path = path.replace("J/", &format!("/jobs/{job}/"));
        let (status, message) = world.refused("POST", &path, body.clone()).await;
        assert_eq!(status, 400, "{path} {body}");
        assert!(
            message.contains(&format!("unknown member {unknown}; the members are: ")),
            "{path} {body}: {message}"
        );
    }
    assert_eq!((world.view(job).await, world.view(other).await), (before, other_before));
    assert_eq!(world.take_logs().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_write_has_one_kind_of_value_and_only_a_write_to_a_port_may_leave_it_out() {
    let world = World::new().await;
    let job = world.create("IO").await;
    let run = world.claimed().await;
    let port = format!("/jobs/{job}/inports/a/write");
    let (status, message) = world.refused("POST", &port, json!({"data": 1, "list": [2]})).await;
    assert_eq!((status, message.as_str()), (400, "data and list cannot be combined; send one of them"));
    for call in ["for_inputs", "finish"] {
        let body = json!({"token": run.token, "inports": ["a"], "writes": [{"outport": "x"}]});
        let body =
            if call == "finish" { json!({"token": run.token, "writes": body["writes"]}) } else { body };
        let (status, message) = world.refused("POST", &format!("/jobs/{job}/{call}"), body).await;
        assert_eq!((status, message.as_str()), (400, "a write requires data or list: x"));
    }
    let both = json!({"operations": [{"job": job, "inport": "a", "write": 1, "list": [2]}]});
    let (_, message) = world.refused("POST", "/group", both).await;
    assert_eq!(message, "unknown operation; use read, entries, write or list");
    assert_eq!(world.port(&format!("{job}/inports/a")).await, json!({"size": 0}), "none of it was written");
    // As in the original SideJob.
    world.post(&port, json!({})).await;
    assert_eq!(world.read(&format!("{job}/inports/a")).await, json!({"data": null}));
}

#[tokio::test]
async fn a_run_may_be_asked_for_with_every_call_on_a_job() {
    let world = World::new().await;
    let parent = world.idle("IO", "suspended").await;
    let child = world.idle("IO", "completed").await;
    let wish = json!({"force": true});
    world.post(&format!("/jobs/{parent}/adopt"), json!({"child": child, "name": "c", "run": wish})).await;
    assert_eq!(world.drain().await, [parent]);
    world.post(&format!("/jobs/{parent}/disown"), json!({"child": child, "run": wish})).await;
    assert_eq!(world.drain().await, [parent]);
    world.post(&format!("/jobs/{child}/run"), json!({})).await;
    let run = world.claimed().await;
    let beat = json!({"ttl": 60, "token": run.token, "run": {}});
    assert_eq!(world.post(&format!("/jobs/{child}/refresh_lock"), beat).await, json!({"refresh": true}));
    world.finish(&run, "completed").await;
    assert_eq!(world.drain().await, [child], "a run that is asked for during a run follows it");
}

#[tokio::test]
async fn an_object_of_too_many_members_is_refused() {
    let w = World::new().await;
    let job = w.create("W").await;
    let many = |count: usize| -> Value {
        Value::Object((0..count).map(|number| (format!("k{number}"), json!({}))).collect())
    };
    let too_many = "has more than 10000 members; send several calls";
    for (method, path, body, what) in [
        ("PUT", "/workers/other".to_owned(), many(10_001), "the body"),
        ("POST", "/logs".to_owned(), json!({"entry": many(10_001)}), "entry"),
        ("POST", format!("/jobs/{job}/state"), many(10_001), "the body"),
        ("POST", format!("/jobs/{job}/ports"), json!({"inports": many(10_001)}), "inports"),
    ] {
        assert_eq!(w.refused(method, &path, body).await, (413, format!("{what} {too_many}")), "{path}");
    }
    let (status, message) = w.refused("POST", "/logs", json!({"a": 1, "log_context": many(101)})).await;
    assert_eq!((status, &*message), (413, "log_context has more than 100 members; send several calls"));
    assert_eq!(w.post(&format!("/jobs/{job}/state"), many(10_000)).await, Value::Null);
    assert_eq!(w.view(job).await["state"]["k9999"], json!({}));
    w.register("other", many(10_000)).await;
    assert_eq!(w.get("/workers/other").await.as_object().unwrap().len(), 10_000);
}
