//! Handlers.

use super::world::{GIVE_UP_MS, RETRY_MS, Setup, World, settled};
use crate::stores::Chosen;
use crate::support::Keys;
use serde_json::json;
use windlass_dialects::auth::Role;

#[tokio::test]
async fn a_handler_is_kept_as_it_was_set() {
    let world = World::new().await;
    let full = json!({
        "eid": "e1", "lang": "http", "body": "http://127.0.0.1:9/x", "before": "b", "beforeEach": "be", "afterEach": "ae",
        "options": {"batch": true, "next": "thumb"}, "color": "red",
    });
    let reply = world.server.post("/acme/handler/add/resize/add?method=http", &full.to_string()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["ok"], true);
    let mut shown = world.server.get("/acme/handler/get/resize").await.json();
    let version = shown.as_object_mut().unwrap().remove("version");
    assert_eq!(version, Some(reply.json()["version"].clone()));
    let mut expected = full;
    expected.as_object_mut().unwrap().remove("color");
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn any_other_text_is_the_body_in_the_language_of_the_method() {
    let world = World::new().await;
    let mut connection = world.server.connect().await;
    let path = "/acme/handler/add/resize/add?method=sh";
    assert_eq!(connection.call("PUT", path, &[], b"tr a-z A-Z").await.status, 200);
    let shown = world.server.get("/acme/handler/get/resize").await.json();
    assert_eq!((&shown["lang"], &shown["body"]), (&"sh".into(), &"tr a-z A-Z".into()));
}

#[tokio::test]
async fn without_language_or_body_nothing_is_kept() {
    let world = World::new().await;
    for body in [r#"{"lang":"sh"}"#, r#"{"body":"x"}"#, "{}", "text"] {
        let reply = world.server.post("/acme/handler/add/resize/add", body).await;
        assert_eq!(
            (reply.status, reply.json()["message"].as_str()),
            (400, Some("lang and body required")),
            "{body}"
        );
    }
    assert_eq!(world.server.get("/acme/handler/get/resize").await.status, 404);
}

#[tokio::test]
async fn the_newest_version_is_in_force_and_deleting_removes_all() {
    let world = World::new().await;
    let set = async |body: &str| {
        let mut connection = world.server.connect().await;
        let path = "/acme/handler/add/resize/add?method=sh";
        assert_eq!(connection.call("POST", path, &[], body.as_bytes()).await.status, 200);
    };
    set("one").await;
    world.add("acme", "resize", "a\n").await;
    world.until_started(1).await;
    set("two").await;
    world.add("acme", "resize", "b\n").await;
    world.until_started(2).await;
    assert_eq!(world.fake.versions(), ["one", "two"]);
    assert_eq!(world.server.get("/acme/handler/get/resize").await.json()["body"], "two");
    let gone = world.server.call("DELETE", "/acme/handler/del/resize/delete", "").await;
    assert_eq!((gone.status, gone.json()["count"].as_u64()), (200, Some(2)));
    assert_eq!(world.server.get("/acme/handler/get/resize").await.status, 404);
    assert_eq!(world.server.post("/acme/handler/del/resize/delete", "").await.status, 404);
}

#[tokio::test]
async fn jobs_without_a_handler_are_tried_again_and_run_when_there_is_one() {
    let world = World::new().await;
    let id = world.add("acme", "resize", "a\n").await.remove(0);
    let job = world.until_code("acme", "resize", &id, "BAD_HANDLER").await;
    assert_eq!((&job["exitcode"], &job["status"], &job["lock"]), (&500.into(), &"error".into(), &"".into()));
    world.handler("acme", "resize", "{}").await;
    settled().await;
    assert!(world.fake.payloads().is_empty(), "not before the delay is over");
    world.later(RETRY_MS);
    assert_eq!(world.until_started(1).await, ["a"]);
    world.until_code("acme", "resize", &id, "ok").await;
}

#[tokio::test]
async fn jobs_that_never_get_a_handler_are_archived_when_their_time_is_over() {
    let world = World::new().await;
    let id = world.add("acme", "resize", "a\n").await.remove(0);
    let tries = usize::try_from(GIVE_UP_MS / RETRY_MS).unwrap() + 1;
    for n in 1..tries {
        world.until_put_off("acme", "resize", &id, n).await;
        world.later(RETRY_MS);
    }
    let job = world.until_code("acme", "resize", &id, "timeout").await;
    assert_eq!((&job["lock"], &job["attempts"]), (&"__done".into(), &tries.into()));
    assert!(world.fake.payloads().is_empty());
}

#[tokio::test]
async fn versions_in_a_name_are_run_by_their_own_handlers() {
    let world = World::new().await;
    for (jobtype, body) in [("resize", "one"), ("resize.v2", "two")] {
        let path = format!("/acme/handler/add/{jobtype}/add?method=sh");
        assert_eq!(world.server.connect().await.call("POST", &path, &[], body.as_bytes()).await.status, 200);
    }
    for (jobtype, count) in [("resize", 1), ("resize.v2", 2)] {
        world.add("acme", jobtype, "x\n").await;
        world.until_started(count).await;
    }
    assert_eq!(world.fake.versions(), ["one", "two"]);
}

#[tokio::test]
async fn versions_in_a_name_are_names_of_their_own() {
    let world = World::new().await;
    world.handler("acme", "resize", "{}").await;
    assert_eq!(world.server.get("/acme/handler/get/resize.v2").await.status, 404);
    world.handler("acme", "resize.v2", "{}").await;
    world.handler("bolt", "other", "{}").await;
    assert_eq!(world.server.get("/acme/handler/get").await.json()["types"], json!(["resize", "resize.v2"]));
    world.server.post("/acme/handler/del/resize/delete", "").await;
    assert_eq!(world.server.get("/acme/handler/get/resize.v2").await.status, 200);
}

#[tokio::test]
async fn handlers_and_jobs_are_there_after_a_restart() {
    let Chosen { store, folder: _folder } = Chosen::new().await;
    let first = Setup { store: Some(store.clone()), rooms: 0, ..Setup::default() }.start().await;
    first.handler("acme", "resize", "{}").await;
    let id = first.add("acme", "resize", "a\n").await.remove(0);
    first.job("acme", "resize", &id).await;
    let mut server = first.server;
    server.stop();
    server.serving.await.unwrap().unwrap();
    let second = Setup { store: Some(store), ..Setup::default() }.start().await;
    assert_eq!(second.until_started(1).await, ["a"]);
    assert_eq!(second.server.get("/acme/handler/get/resize").await.json()["body"], "cat");
}

#[tokio::test]
async fn only_the_latest_twenty_versions_are_kept() {
    let world = World::new().await;
    for _ in 0..25 {
        world.handler("acme", "resize", "{}").await;
    }
    assert_eq!(world.server.post("/acme/handler/del/resize/delete", "").await.json()["count"], 20);
}

#[tokio::test]
async fn a_handler_that_cannot_run_here_is_kept_with_a_warning() {
    let world = World::new().await;
    *world.fake.complains.lock().unwrap() = Some("php is not installed".to_owned());
    let reply = world.server.post("/acme/handler/add/x/add", r#"{"lang":"php","body":"x"}"#).await.json();
    assert_eq!((&reply["ok"], &reply["warning"]), (&true.into(), &"php is not installed".into()));
    assert_eq!(world.server.get("/acme/handler/get/x").await.json()["warning"], "php is not installed");
}

#[tokio::test]
async fn handlers_are_set_by_operators_of_the_client() {
    let keys = Keys::for_tenants(&["acme", "bolt"]);
    let world = Setup { options: keys.options(), ..Setup::default() }.start().await;
    let body = r#"{"lang":"sh","body":"x"}"#;
    let check = async |token: &str, method: &str, path: &str, expected: u16| {
        let reply = world.server.call_as(Some(token), method, path, body).await;
        assert_eq!(reply.status, expected, "{method} {path}: {}", reply.text());
    };
    let set = "/acme/handler/add/resize/add";
    check(keys.of("acme", Role::Worker), "POST", set, 403).await;
    check(keys.of("bolt", Role::Operator), "POST", set, 403).await;
    check(keys.of("acme", Role::Operator), "POST", set, 200).await;
    check(keys.of("bolt", Role::Operator), "GET", "/acme/handler/get/resize", 403).await;
    check(keys.of("bolt", Role::Operator), "GET", "/bolt/handler/get/resize", 404).await;
    check(keys.of("bolt", Role::Operator), "DELETE", "/acme/handler/del/resize/delete", 403).await;
    check(keys.of("acme", Role::Operator), "DELETE", "/acme/handler/del/resize/delete", 200).await;
}

#[tokio::test]
async fn no_more_texts_are_read_than_are_shown_at_once() {
    let world = World::new().await;
    let body = "x".repeat(900_000);
    for version in 0..3 {
        for jobtype in ["a", "b", "c"] {
            let handler = json!({"lang": "sh", "body": format!("{version}{body}")}).to_string();
            world.server.post(&format!("/acme/handler/add/{jobtype}/add"), &handler).await;
        }
    }
    let reply = world.server.get("/api/v1/handlers?tenant=acme").await;
    assert!(reply.body.len() < 6_000_000, "{} bytes", reply.body.len());
    let shown = reply.json()["handlers"].as_array().unwrap().clone();
    for handler in &shown {
        let versions = handler["versions"].as_array().unwrap();
        assert_eq!(versions.len(), 3, "all are named");
        assert!(versions[0]["text"]["body"].as_str().unwrap().starts_with("2x"), "the one in force is shown");
    }
    let texts = |handler: &serde_json::Value| {
        let versions = handler["versions"].as_array().unwrap();
        versions.iter().filter(|version| version.get("text").is_some()).count()
    };
    let texts: usize = shown.iter().map(texts).sum();
    assert!((3..9).contains(&texts), "{texts} texts are shown");
    assert_eq!(world.server.get("/acme/handler/get").await.json()["types"], json!(["a", "b", "c"]));
}
