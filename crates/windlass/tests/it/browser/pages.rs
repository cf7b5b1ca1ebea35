//! Contents and actions of each page.

use super::*;

#[test]
fn an_empty_server_shows_how_to_put_in_the_first_job_and_then_shows_it_come() {
    let server = Server::start(&[]);
    let browser = Browser::open();
    // `/` redirects a browser to the UI.
    browser.go(&server.url());
    browser.until_shows("#first-steps", &format!("curl {}/api/v1/jobs", server.url()));
    browser.until_shows("[data-state=ready] .value", "0");
    browser.picture("empty");
    push(&server, json!({"name": "hello"}));
    browser.until_shows("[data-state=ready] .value", "1");
    browser.until("document.querySelector('#first-steps').parentNode.hidden");
    browser.until("document.querySelector('w-chart svg')");
    let claimed = claim(&server, json!({}));
    browser.until_shows("[data-state=running] .value", "1");
    settle(&server, &claimed, json!({"outcome": "finish"}));
    browser.until_shows("[data-state=completed] .value", "1");
    browser.until_shows("table[aria-label=Queues]", "default");
    // The time span of the chart can be selected, and the selection is kept.
    browser.click("[data-span='30d']");
    browser.reload();
    browser.until("document.querySelector('[data-span=\"30d\"]')?.getAttribute('aria-pressed') === 'true'");
}

#[test]
fn the_form_makes_the_job_it_describes_and_shows_how_to_do_it_elsewhere() {
    let server = Server::start(&["--bedrock", "127.0.0.1:0"]);
    let browser = Browser::open();
    browser.go(&page(&server, "push"));
    browser.until_shows("main", "bedrock on 127.0.0.1:");
    browser.fill("#push-name", "mail");
    browser.fill("#push-queue", "out");
    browser.fill("#push-payload", r#"{"to": "ann"}"#);
    browser.fill("#push-delay", "1h30m");
    browser.fill("#push-priority", "-3");
    browser.fill("#push-retry", "2");
    browser.fill("#push-tags", "red, blue");
    browser.click("#push-send");
    browser.until_shows("main", "Pushed: job 1");
    let job = server.job(1);
    assert_eq!(
        (&job["queue"], &job["payload"], &job["priority"], &job["max_attempts"], &job["tags"]),
        (&json!("out"), &json!({"to": "ann"}), &json!(-3), &json!(2), &json!(["red", "blue"]))
    );
    assert_eq!(job["run_at"].as_i64().unwrap() - job["created_at"].as_i64().unwrap(), 5_400_000);
    browser.fill("#push-delay", "soon");
    browser.click("#push-send");
    browser.until_shows("[role=alert]", "“soon” is not a duration");
}

#[test]
fn a_search_finds_jobs_page_by_page_and_can_be_linked_to() {
    let server = Server::start(&[]);
    failed(&server, 60, "mail.out");
    push(&server, json!({"name": "other", "payload": {"user_id": 42}}));
    let browser = Browser::open();
    browser.go(&page(&server, "jobs"));
    browser.until_shows("#found", "61 jobs");
    // Completion: field names first, then their values.
    browser.fill("#search", "sta");
    browser.until_shows("#suggestions", "state:");
    browser.fill("#search", "state:fa");
    browser.until_shows("#suggestions", "state:failed");
    browser.fill("#search", "state:failed name:mail*");
    browser.keys("\u{e007}");
    browser.until_shows("#found", "60 jobs");
    assert_eq!(browser.count("main tbody tr"), 50);
    assert!(browser.js("location.hash").as_str().unwrap().contains("search="));
    browser.click("#older");
    browser.until("document.querySelectorAll('main tbody tr').length === 10");
    browser.reload();
    browser.until("document.querySelectorAll('main tbody tr').length === 10");
    browser.go(&page(&server, "jobs?search=args.user_id%3A42"));
    browser.until_shows("#found", "1 job");
    browser.until_shows("main tbody", "other");
    browser.go(&page(&server, "jobs?search=state%3Alost"));
    browser.until_shows("[role=alert]", "unknown state `lost`");
}

#[test]
fn all_matches_are_retried_at_once_and_single_rows_too() {
    let server = Server::start(&[]);
    failed(&server, 60, "mail");
    failed(&server, 1, "other");
    let browser = Browser::open();
    browser.go(&page(&server, "jobs?search=state%3Afailed%20name%3Amail"));
    browser.until_shows("#found", "60 jobs");
    browser.click("#pick-all");
    browser.until_shows("#picked", "50 selected");
    browser.click("#pick-matches");
    browser.until_shows("#picked", "all 60 jobs");
    browser.click("[data-action=retry]");
    browser.until_shows("dialog", "all 60 jobs matching state:failed name:mail");
    browser.picture("bulk");
    browser.click("#ask-yes");
    browser.until_shows(".toasts", "60 retried");
    browser.until_shows("#found", "0 jobs");
    let totals = &server.call("GET", "/api/v1/stats", None).1["totals"];
    assert_eq!((&totals["ready"], &totals["failed"]), (&json!(60), &json!(1)));

    browser.go(&page(&server, "jobs?search=state%3Aready"));
    browser.until_shows("#found", "60 jobs");
    browser.click("main tbody tr:nth-child(1) input");
    browser.click("main tbody tr:nth-child(2) input");
    browser.until_shows("#picked", "2 selected");
    browser.click("[data-action=priority]");
    browser.fill("#ask-priority", "-7");
    browser.click("#ask-yes");
    browser.until_shows(".toasts", "2 changed");
    assert_eq!(server.job(60)["priority"], -7);
    browser.click("main tbody tr:nth-child(1) input");
    browser.click("[data-action=cancel]");
    browser.click("#ask-yes");
    browser.until_shows(".toasts", "1 cancelled");
    assert_eq!(server.state_of(60), "cancelled");
    browser.until_shows("#found", "59 jobs");
}

#[test]
fn the_page_of_a_job_follows_it_through_its_life() {
    let server = Server::start(&[]);
    let id = push(&server, json!({"name": "report", "payload": {"pages": [1, 2]}, "retry": 1}));
    let browser = Browser::open();
    browser.go(&page(&server, &format!("job/{id}")));
    browser.until_shows("#state", "ready");
    browser.until_shows("#why", "waits for a worker");
    browser.until_shows("[data-part=payload] .tree", "pages");
    let claimed = claim(&server, json!({"worker": "w-7"}));
    browser.until_shows("#state", "running");
    browser.until_shows("#lease", "w-7");
    let beat =
        json!({"extend": [{"id": id, "token": claimed[0]["token"], "progress": 40, "note": "page 4"}]});
    server.call("POST", "/api/v1/extend", Some(beat));
    browser.until_shows("main", "40 % page 4");
    settle(&server, &claimed, json!({"outcome": "fail", "error": "no paper"}));
    browser.until_shows("#state", "failed");
    browser.until_shows(".error-item", "no paper");
    browser.until_shows("#events", "failed");
    browser.picture("job");
    browser.click("[data-action=retry]");
    browser.until_shows("#state", "ready");
    let claimed = claim(&server, json!({}));
    settle(&server, &claimed, json!({"outcome": "finish", "result": {"sheets": 12}}));
    browser.until_shows("[data-part=result]", "sheets");
    browser.click("[data-action=delete]");
    browser.click("#ask-yes");
    browser.until_shows("main", &format!("Job {id} (report) was deleted."));
    browser.go(&page(&server, "job/999"));
    browser.until_shows("main", "Job 999 not found");
}

#[test]
fn the_words_of_a_run_and_what_people_did_are_shown_with_the_job() {
    let server = Server::start(&[]);
    let id = push(&server, json!({"name": "talk", "retry": 1}));
    let claimed = claim(&server, json!({"worker": "w-3"}));
    let browser = Browser::open();
    browser.go(&page(&server, &format!("job/{id}")));
    browser.until_shows("#state", "running");
    assert_eq!(browser.count("#log"), 0);
    let say = |lines: Value| {
        let body = json!({"token": claimed[0]["token"], "lines": lines, "source": "stderr"});
        let (status, answer) = server.call("POST", &format!("/api/v1/jobs/{id}/log"), Some(body));
        assert_eq!(status, 200, "{answer}");
    };
    say(json!(["reading", "<img src=x onerror=\"document.title='taken'\">"]));
    browser.until_shows("#log", "<img src=x");
    say(json!(["half way"]));
    browser.until_shows("#log", "half way");
    assert_eq!(browser.count("#log img"), 0);
    settle(&server, &claimed, json!({"outcome": "fail", "error": "no paper"}));
    browser.until_shows(".error-item", "attempt 1 by w-3");
    browser.until_shows("#events", "attempt 1 failed by w-3");
    browser.picture("log");
    browser.click("[data-action=retry]");
    browser.until_shows("#events", "retried by anyone");
    browser.reload();
    browser.until_shows("#events", "retried by anyone");
    browser.until_shows("#log", "half way");
}

#[test]
fn a_family_is_shown_above_and_below_a_job() {
    let server = Server::start(&[]);
    push(&server, json!({"name": "root"}));
    let root = claim(&server, json!({}));
    push(&server, json!({"name": "middle", "parent": 1}));
    settle(&server, &root, json!({"outcome": "finish"}));
    let middle = claim(&server, json!({}));
    push(&server, json!({"jobs": [{"name": "left", "parent": 2}, {"name": "right", "parent": 2}]}));
    settle(&server, &middle, json!({"outcome": "finish"}));
    let browser = Browser::open();
    browser.go(&page(&server, "job/2"));
    browser.until_shows("#family", "root #1");
    browser.until("document.querySelector('#family a[href=\"#/job/4\"]')");
    assert_eq!(browser.text("#family b"), "middle #2");
    browser.picture("family");
    browser.click("#family a[href='#/job/1']");
    browser.until_shows("h1", "root #1");
    browser.until_shows("#family", "left #3");
}

#[test]
fn a_long_lived_job_shows_its_ports_its_state_and_its_children() {
    let server = Server::start(&[]);
    let sidejob = |method: &str, path: &str, body: Value| {
        let (status, answer) = server.call(method, &format!("/sidejob{path}"), Some(body));
        assert_eq!(status, 200, "{path}: {answer}");
    };
    let ports = json!({"Sum": {"inports": {"a": {}, "b": {"default": 7}}, "outports": {"sum": {}}}});
    sidejob("PUT", "/workers/math", ports);
    sidejob("POST", "/jobs", json!({"queue": "math", "class": "Sum", "args": [1]}));
    sidejob("POST", "/jobs", json!({"queue": "math", "class": "Sum", "parent": 1, "name": "helper"}));
    sidejob("POST", "/jobs/1/inports/a/write", json!({"list": [{"z": 1, "a": 2}, "<b>bold</b>"]}));
    sidejob("POST", "/jobs/1/state", json!({"colour": "blue"}));
    let browser = Browser::open();
    browser.go(&page(&server, "job/1"));
    browser.until_shows("[data-part=inports]", "2 values");
    browser.until_shows("[data-part=inports]", "{\"z\":1,\"a\":2}");
    browser.until_shows("[data-part=inports]", "<b>bold</b>");
    browser.until_shows("[data-part=inports]", "default 7");
    browser.until_shows("[data-part=outports]", "sum");
    browser.until_shows("main", "colour");
    browser.until_shows("#family", "helper");
    browser.picture("ports");
    sidejob("POST", "/jobs/1/inports/a/read", json!({}));
    browser.until_shows("[data-part=inports]", "1 value");
}

#[test]
fn handlers_show_their_versions_and_can_be_tried() {
    let server = Server::start(&[]);
    for body in ["exit 1", "tr a-z A-Z"] {
        let handler = json!({"lang": "sh", "body": body});
        let (status, answer) = server.call("POST", "/acme/handler/add/shout/add", Some(handler));
        assert_eq!(status, 200, "{answer}");
    }
    let browser = Browser::open();
    browser.go(&page(&server, "handlers"));
    browser.until_shows("[data-handler=shout]", "2 versions");
    browser.until_shows("[data-handler=shout]", "tr a-z A-Z");
    browser.picture("handlers");
    browser.fill("[data-handler=shout] textarea", "quiet");
    browser.press("Test run");
    browser.until_shows("h1", "shout");
    browser.until_shows("main", "test-run");
    browser.until_shows("#state", "completed");
}

#[test]
fn workers_that_jobs_are_pushed_to_are_quieted_and_let_go() {
    let server = Server::start(&[]);
    let worker = json!({"name": "w", "max_jobs": 3, "url": "http://127.0.0.1:9"});
    let (status, answer) = server.call("POST", "/jq/worker", Some(worker));
    assert_eq!(status, 201, "{answer}");
    let browser = Browser::open();
    browser.go(&page(&server, "workers"));
    browser.until_shows("main tbody", "127.0.0.1:9");
    browser.until_shows("main tbody", "0 of 3");
    browser.press("Quiet");
    browser.until_shows("main tbody .state", "quiet");
    browser.picture("workers");
    browser.press("Wake");
    browser.until_shows("main tbody .state", "idle");
    browser.press("Remove");
    browser.click("#ask-yes");
    browser.until("document.querySelectorAll('main tbody tr').length === 0");
}

#[test]
fn payloads_of_every_format_can_be_read() {
    let server = Server::start(&[]);
    let binary = push(&server, json!({"name": "b", "payload_base64": "AAH/SGk=", "format": "binary"}));
    let text = push(&server, json!({"name": "t", "payload": "two\nlines", "format": "text"}));
    // {"a": 1} in MessagePack.
    let packed = push(&server, json!({"name": "m", "payload_base64": "gaFhAQ==", "format": "msgpack"}));
    let big = push(&server, json!({"name": "n", "payload": {"id": 12_345_678_901_234_567_890_u64}}));
    let browser = Browser::open();
    browser.go(&page(&server, &format!("job/{binary}")));
    browser.until_shows("[data-part=payload]", "00 01 ff 48 69");
    browser.go(&page(&server, &format!("job/{text}")));
    browser.until_shows("[data-part=payload] pre", "two\nlines");
    browser.go(&page(&server, &format!("job/{packed}")));
    browser.until_shows("[data-part=payload] .tree", "a: 1");
    browser.press("Hex");
    browser.until_shows("[data-part=payload]", "81 a1 61 01");
    browser.go(&page(&server, &format!("job/{big}")));
    browser.until_shows("[data-part=payload] .tree", "12345678901234567890");
}

#[test]
fn queues_are_paused_and_resumed_and_a_job_says_that_it_waits_for_that() {
    let server = Server::start(&[]);
    push(&server, json!({"name": "a", "queue": "mail out"}));
    let browser = Browser::open();
    browser.go(&page(&server, "queues"));
    browser.click("button[aria-label='Pause mail out']");
    browser.until_shows("main tbody", "paused");
    assert!(claim(&server, json!({})).is_empty());
    browser.go(&page(&server, "job/1"));
    browser.until_shows("#why", "mail out is paused");
    browser.go(&page(&server, "queues"));
    browser.click("button[aria-label='Resume mail out']");
    browser.until("document.querySelector('button[aria-label=\"Pause mail out\"]')");
    assert_eq!(claim(&server, json!({})).len(), 1);
    // Values in and out.
    for title in ["pushed", "claimed"] {
        browser.until(&format!(
            "document.querySelectorAll('main tbody td')[[...document.querySelectorAll('main th')]\
             .findIndex((head) => head.textContent === {title:?})]?.textContent.endsWith('/s')"
        ));
    }
}

#[test]
fn limits_are_made_and_removed_and_hold_jobs_back() {
    let server = Server::start(&[]);
    let browser = Browser::open();
    browser.go(&page(&server, "limits"));
    browser.click("#new-limit");
    browser.fill("#limit-id", "one mail");
    browser.fill("#limit-what", "mail*");
    browser.fill("#limit-running", "1");
    browser.click("#limit-save");
    browser.until_shows("main tbody", "0 of 1");
    push(&server, json!({"jobs": [{"name": "mail.a"}, {"name": "mail.b"}]}));
    assert_eq!(claim(&server, json!({"limit": 5})).len(), 1);
    browser.until_shows("main tbody", "1 of 1");
    // Waiting under the limit, and held back by it.
    for column in [5, 6] {
        browser.until(&format!(
            "document.querySelector('main tbody td:nth-child({column})')?.textContent === '1'"
        ));
    }
    browser.picture("limits");
    browser.go(&page(&server, "job/2"));
    browser.until_shows("#why", "Held back by the limit one mail");
    browser.go(&page(&server, "limits"));
    browser.click("button[aria-label='Remove one mail']");
    browser.click("#ask-yes");
    browser.until("document.querySelectorAll(\"button[aria-label^='Remove']\").length === 0");
    assert_eq!(claim(&server, json!({"limit": 5})).len(), 1);
}

#[test]
fn quotas_of_a_tenant_are_shown_and_changed() {
    let server = Server::start(&[]);
    let browser = Browser::open();
    let change = |resource: &str, bound: &str| {
        browser.click(&format!("button[aria-label='Change the quota of {resource}']"));
        browser.fill("#quota-bound", bound);
        browser.click("#quota-save");
    };
    browser.go(&page(&server, "limits"));
    change("waiting claims", "77");
    browser.until_shows(".toasts", "quota of waiting claims saved");
    browser
        .until("[...document.querySelectorAll('#quota tbody td')].some((cell) => cell.textContent === '77')");
    let (_, shown) = server.call("GET", "/api/v1/tenants/default/quota", None);
    assert_eq!(shown["quota"]["waiting_claims"], 77, "{shown}");
    // A quota with which nobody could get in any more is refused, with the reason.
    change("connections", "0");
    browser.until("document.querySelector('form [role=alert]')?.hidden === false");
}

#[test]
fn schedules_tell_their_next_ten_runs_and_workers_what_they_hold() {
    let server = Server::start(&[]);
    push(&server, json!({"name": "tick", "repeat": "0 4 * * *"}));
    push(&server, json!({"name": "plain"}));
    let browser = Browser::open();
    browser.go(&page(&server, "schedules"));
    browser.until_shows("main tbody", "0 4 * * *");
    assert_eq!(browser.count("main tbody tr"), 1);
    assert_eq!(browser.count("main tbody details li"), 9);
    browser.go(&page(&server, "workers"));
    browser.until_shows("main", "no workers: none has a job");
    claim(&server, json!({"worker": "w-9"}));
    browser.until_shows("main tbody", "plain #2");
    browser.until_shows("main tbody", "w-9");
}

#[test]
fn blobs_are_listed_and_unused_ones_are_removed_only_when_they_are_old() {
    let server = Server::start(&[]);
    let (status, _) = crate::server::request(server.http, "PUT", "/blob", "some bytes").unwrap();
    assert!(matches!(status, 200 | 201), "{status}");
    let browser = Browser::open();
    browser.go(&page(&server, "blobs"));
    browser.until_shows("#blob-sum", "1 blob, 10 bytes");
    // SHA-256 of the uploaded bytes.
    browser.until_shows("main tbody", "0d22cdcc10e6d049dbe1af5123d50873fdfc1a4f58306e58cb6241be9472014d");
    browser.click("#blob-gc");
    browser.until_shows(".toasts", "no unused blobs older than a day");
    assert_eq!(browser.count("main tbody tr"), 1);
}
