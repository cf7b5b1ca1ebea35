//! Adding jobs.

use super::world::{RETRY_MS, Setup, World, journal_in, settings, settled};
use crate::support::Keys;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::Tenant;
use windlass_dialects::ServerOptions;
use windlass_dialects::auth::Role;
use windlass_dialects::miniq::Settings;
use windlass_engine::journal::ids;
use windlass_store::faulty::FaultyStore;
use windlass_store::memory::MemoryStore;

#[tokio::test]
async fn each_line_is_a_job_with_an_id_of_its_own() {
    let world = World::new().await;
    world.server.get("/stop").await;
    let reply = world.raw_add("acme", "resize", b"a\nb\n").await;
    assert_eq!(reply.status, 200);
    let answer = reply.json();
    assert_eq!((&answer["ok"], &answer["count"]), (&true.into(), &2.into()));
    let ids: Vec<&str> = answer["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert_eq!(ids.len(), 2);
    for (id, payload) in ids.iter().zip(["a", "b"]) {
        let job = world.job("acme", "resize", id).await;
        assert_eq!(
            (&job["type"], &job["data"], &job["lock"]),
            (&"acme-resize".into(), &payload.into(), &"".into())
        );
        assert_eq!(job["dt"], "2025-11-15T09:46:40.000Z", "it may run from when it was added");
    }
}

#[tokio::test]
async fn a_job_that_was_added_is_there_also_while_its_commit_is_under_way() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    let world = Setup { store: Some(store), ..Setup::default() }.start().await;
    world.server.get("/stop").await;
    let id = world.add("acme", "resize", "a").await.remove(0);
    world.job("acme", "resize", &id).await;
    let number = world.server.engine.find_alias(&Tenant::new("acme").unwrap(), &id).await.unwrap();
    faults.hide(number.unwrap());
    assert_eq!(world.job("acme", "resize", &id).await["data"], "a");
    assert_eq!(faults.pending(), 0, "it was looked for in vain at first");
}

#[tokio::test]
async fn empty_lines_and_comments_make_no_job() {
    let world = World::new().await;
    let check = async |body: &str, expected: usize| {
        assert_eq!(world.add("acme", "resize", body).await.len(), expected, "{body:?}");
    };
    check("", 0).await;
    check("\n\n", 0).await;
    check("a", 1).await;
    check("a\n\nb", 2).await;
    check("# comment\n#b\nc\n", 1).await;
}

#[tokio::test]
async fn payloads_arrive_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let options = ServerOptions { journal: journal_in(folder.path()), ..ServerOptions::default() };
    let world = Setup { options, ..Setup::default() }.start().await;
    world.handler("acme", "resize", "{}").await;
    let long = "x".repeat(1 << 20);
    let payloads = [
        "a|b||c",
        "ends in CR\r",
        "\u{fc}n\u{ef}c\u{f6}d\u{e9} \u{2028} \u{1f600}",
        &long,
        "\ttabs and  spaces ",
    ];
    world.add("acme", "resize", &payloads.join("\n")).await;
    let mut started = world.until_started(payloads.len()).await;
    started.sort_unstable();
    let mut expected: Vec<String> = payloads.iter().map(|text| (*text).to_owned()).collect();
    expected.sort_unstable();
    assert!(started == expected, "something has changed on the way");
}

#[tokio::test]
async fn bytes_that_are_no_text_are_kept_as_they_are() {
    let world = World::new().await;
    let reply = world.raw_add("acme", "raw", b"\xff\x00\xfe\n").await;
    let id = reply.json()["ids"][0].as_str().unwrap().to_owned();
    assert_eq!(world.job("acme", "raw", &id).await["dataBase64"], "/wD+");
}

#[tokio::test]
async fn names_that_could_be_taken_for_something_else_are_refused() {
    let world = World::new().await;
    for path in [
        "/a%7Cb/job/t/add",
        "/a%2Fb/job/t/add",
        "/a,b/job/t/add",
        "/a%0Ab/job/t/add",
        "/a-b/job/t/add",
        "//job/t/add",
        "/acme/job//add",
        "/acme/job/a%7Cb/add",
        "/acme/job/a%2Fb/add",
        "/acme/job/a,b/add",
        "/acme/job/a%0Ab/add",
        "/ui/job/t/add",
        "/docs/job/t/add",
        "/add",
        "/add?client=acme",
        "/add?client=a-b&jobtype=t",
        "/acme/job/t/add?delay=x",
    ] {
        let reply = world.server.connect().await.call("POST", path, &[], b"x\n").await;
        assert_eq!(reply.status, 400, "{path}: {}", reply.text());
        assert_eq!(reply.json()["code"], 400, "{path}");
    }
    for word in ["waiting", "archive", "add", "result", "get"] {
        assert_eq!(world.add("acme", word, "x\n").await.len(), 1, "{word} is a type like any other");
    }
    let reply = world.server.connect().await.call("POST", "/add?client=acme&jobtype=b-c", &[], b"x\n").await;
    assert_eq!((reply.status, reply.json()["count"].as_u64()), (200, Some(1)));
}

#[tokio::test]
async fn ids_are_unique_sort_by_time_and_tell_it() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.extend(world.add("acme", "resize", &"x\n".repeat(300)).await);
        world.later(n);
    }
    assert!(ids.is_sorted_by(|one, other| one < other), "later ones sort after earlier ones");
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 1_500);
    assert_eq!(ids::made_at_ms(&ids[0]), Some(1_763_200_000_000));
    assert_eq!(ids[0].split('-').nth(1), Some("tr"), "first and last letter of the host: {}", ids[0]);
}

#[tokio::test]
async fn a_job_with_a_delay_does_not_run_before_its_time() {
    let world = World::with("acme", "resize").await;
    let path = "/acme/job/resize/add?delay=5";
    let reply = world.server.connect().await.call("POST", path, &[], b"later\n").await;
    let id = reply.json()["ids"][0].as_str().unwrap().to_owned();
    assert_eq!(world.job("acme", "resize", &id).await["dt"], "2025-11-15T09:46:45.000Z");
    let path = "/acme/job/resize/add?dt=2025-11-15T09:46:50Z";
    assert_eq!(world.server.connect().await.call("POST", path, &[], b"much later\n").await.status, 200);
    world.add("acme", "resize", "now\n").await;
    assert_eq!(world.until_started(1).await, ["now"]);
    world.later(4_999);
    settled().await;
    assert_eq!(world.fake.payloads(), ["now"]);
    world.later(1);
    assert_eq!(world.until_started(2).await, ["now", "later"]);
    world.later(5_000);
    assert_eq!(world.until_started(3).await, ["now", "later", "much later"]);
}

#[tokio::test]
async fn clients_add_and_see_only_their_own() {
    let keys = Keys::for_tenants(&["acme", "bolt"]);
    let setup = Setup { options: keys.options(), ..Setup::default() };
    let world = setup.start().await;
    let as_worker = |client: &str| Some(keys.of(client, Role::Worker).to_owned());
    let acme = as_worker("acme");
    let reply = world.server.call_as(acme.as_deref(), "POST", "/acme/job/resize/add", "secret\n").await;
    let id = reply.json()["ids"][0].as_str().unwrap().to_owned();
    let bolt = as_worker("bolt");
    for (method, path) in [
        ("POST", "/acme/job/resize/add".to_owned()),
        ("GET", format!("/acme/job/resize/{id}")),
        ("GET", format!("/acme/job/resize/{id}/result")),
        ("GET", "/acme/job/resize/archive".to_owned()),
        ("GET", "/acme/job/waiting".to_owned()),
        ("GET", "/acme/handler/get/resize".to_owned()),
        ("GET", "/acme/handler/get".to_owned()),
    ] {
        let reply = world.server.call_as(bolt.as_deref(), method, &path, "x").await;
        assert_eq!(reply.status, 403, "{method} {path}: {}", reply.text());
        assert!(!reply.text().contains("secret"));
    }
    let own = world.server.call_as(bolt.as_deref(), "GET", &format!("/bolt/job/resize/{id}"), "").await;
    assert_eq!(own.status, 404, "the id of another's job is no id of one's own");
    let admin = keys.of("bolt", Role::Admin);
    assert_eq!(
        world.server.call_as(Some(admin), "GET", &format!("/acme/job/resize/{id}"), "").await.status,
        200
    );
    assert_eq!(world.server.call_as(None, "POST", "/acme/job/resize/add", "x").await.status, 401);
    let viewer = keys.of("acme", Role::Viewer);
    assert_eq!(world.server.call_as(Some(viewer), "POST", "/acme/job/resize/add", "x").await.status, 403);
}

#[tokio::test]
async fn nothing_of_one_client_is_in_anothers_answers_or_run_by_anothers_handler() {
    let world = World::with("acme", "t").await;
    let acme = world.add("acme", "t", "of acme\n").await.remove(0);
    let bolt = world.add("bolt", "t", "of bolt\n").await.remove(0);
    world.until_code("acme", "t", &acme, "ok").await;
    let job = world.until_code("bolt", "t", &bolt, "BAD_HANDLER").await;
    assert_eq!(job["type"], "bolt-t");
    assert_eq!(world.fake.payloads(), ["of acme"], "acme's handler is for acme's jobs");
    world.handler("bolt", "t", "{}").await;
    world.later(RETRY_MS);
    world.until_code("bolt", "t", &bolt, "ok").await;
    for (client, own, others) in [("acme", &acme, &bolt), ("bolt", &bolt, &acme)] {
        for path in ["job/t/archive", "job/waiting", "handler/get"] {
            let answer = world.server.get(&format!("/{client}/{path}")).await.text();
            assert!(!answer.contains(others.as_str()), "{client}/{path}: {answer}");
        }
        let archive = world.server.get(&format!("/{client}/job/t/archive")).await.json();
        let ids: Vec<&str> =
            archive["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect();
        assert_eq!(ids, [own.as_str()]);
        assert_eq!(world.server.get(&format!("/{client}/job/t/{others}")).await.status, 404);
        assert_eq!(world.server.get(&format!("/{client}/job/t/{others}/result")).await.status, 404);
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_it_is_kept() {
    let world = World::new().await;
    let lines = world.raw_add("acme", "resize", &b"x\n".repeat(100_001)).await;
    assert_eq!(lines.status, 413);
    let bytes = world.raw_add("acme", "resize", &vec![b'x'; (16 << 20) + 1]).await;
    assert_eq!(bytes.status, 413, "{}", bytes.text());
}

#[tokio::test]
async fn what_is_in_the_journal_at_the_start_is_taken_in() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("journal")).unwrap();
    let line = "# by hand\n1234567-vm-0000-000|acme-resize|from before\nnonsense\n1234567-vm-0000-001|acme-resize|more|of it\n";
    std::fs::write(folder.path().join("journal/00000001.log"), line).unwrap();
    let options = ServerOptions { journal: journal_in(folder.path()), ..ServerOptions::default() };
    let patient = Settings { give_up_after_ms: i64::MAX / 4, ..settings() };
    let world = Setup { options, settings: patient, ..Setup::default() }.start().await;
    // There is no handler yet, so the first attempts fail and the jobs wait.
    for id in ["1234567-vm-0000-000", "1234567-vm-0000-001"] {
        for _ in 0..3_000 {
            if world.server.get(&format!("/acme/job/resize/{id}")).await.status == 200 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        world.until_put_off("acme", "resize", id, 1).await;
    }
    world.handler("acme", "resize", "{}").await;
    world.later(RETRY_MS);
    world.until_started(2).await;
    let mut started = world.fake.payloads();
    started.sort_unstable();
    assert_eq!(started, ["from before", "more|of it"]);
}
