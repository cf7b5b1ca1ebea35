//! Acting on jobs: the form, edits, and the keyboard.

use super::*;

#[test]
fn the_form_refuses_what_begins_like_json_and_is_not() {
    let server = Server::start(&[]);
    let browser = Browser::open();
    browser.go(&page(&server, "push"));
    browser.fill("#push-name", "mail");
    for (typed, place) in [
        ("{\"to\":\"ann", "line 1, column 7"),
        ("{\n  \"a\": 1,\n}", "line 3, column 1"),
        ("[1 2]", "line 1, column 4"),
        ("\"half", "line 1, column 1"),
    ] {
        browser.fill("#push-payload", typed);
        browser.click("#push-send");
        browser.until_shows("[role=alert]", place);
        browser.js("document.querySelector('[role=alert]').remove()");
    }
    let (_, stats) = server.call("GET", "/api/v1/stats", None);
    assert_eq!(stats["totals"]["ready"], 0, "nothing was pushed");
    // Declared as text, it is pushed as it is.
    browser.fill("#push-payload", "{\"to\":\"ann");
    browser.click("#push-text");
    browser.click("#push-send");
    browser.until_shows("main", "Pushed: job 1");
    let job = server.job(1);
    assert_eq!((&job["payload"], &job["format"]), (&json!("{\"to\":\"ann"), &json!("text")));
    browser.click("#push-text");
    browser.fill("#push-payload", "plain words");
    browser.click("#push-send");
    browser.until_shows("main", "Pushed: job 2");
    browser.fill("#push-payload", "[12345678901234567890]");
    browser.click("#push-send");
    browser.until_shows("main", "Pushed: job 3");
    assert_eq!(server.job(3)["payload"], json!([12_345_678_901_234_567_890_u64]));
}

#[test]
fn a_waiting_job_is_edited_and_a_settled_one_is_not() {
    let server = Server::start(&[]);
    push(&server, json!({"name": "mail", "payload": {"to": "ann"}, "delay_ms": 600_000}));
    let browser = Browser::open();
    browser.go(&page(&server, "job/1"));
    browser.click("[data-action=edit]");
    browser.fill("#edit-queue", "slow");
    browser.fill("#edit-priority", "-4");
    browser.fill("#edit-tags", "vip, eu");
    browser.fill("#edit-payload", "{\"to\": ");
    browser.click("#edit-save");
    browser.until_shows("#edit [role=alert]", "line 1, column");
    assert_eq!(server.job(1)["queue"], "default", "nothing is saved by halves");
    browser.fill("#edit-payload", "{\"to\": \"bob\"}");
    browser.fill("#edit-in", "2h");
    browser.picture("edit");
    browser.click("#edit-save");
    browser.until_shows(".toasts", "job 1 changed");
    let job = server.job(1);
    assert_eq!(
        (&job["queue"], &job["priority"], &job["tags"], &job["payload"]),
        (&json!("slow"), &json!(-4), &json!(["vip", "eu"]), &json!({"to": "bob"}))
    );
    assert!(job["run_at"].as_i64().unwrap() > job["created_at"].as_i64().unwrap() + 6_000_000, "{job}");
    browser.until_shows("[data-part=payload]", "bob");
    browser.click("[data-action=run]");
    browser.until_shows("#state", "ready");
    assert_eq!(browser.count("[data-action=run]"), 0, "a job that is due needs no earlier time");
    let claimed = claim(&server, json!({}));
    browser.until_shows("#state", "running");
    browser.until("!document.querySelector('[data-action=edit], [data-action=delete], [data-action=retry]')");
    settle(&server, &claimed, json!({"outcome": "finish"}));
    browser.until("document.querySelector('[data-action=retry]')");
    assert_eq!(browser.count("[data-action=edit], [data-action=run], [data-action=cancel]"), 0);
}

#[test]
fn only_fitting_actions_are_offered_for_the_selected_jobs() {
    let server = Server::start(&[]);
    failed(&server, 2, "mail");
    push(&server, json!({"name": "late", "delay_ms": 60_000}));
    let browser = Browser::open();
    let offered = || {
        browser.js(
            "[...document.querySelectorAll('.actions [data-action]')].map((b) => b.dataset.action).sort()",
        )
    };
    browser.go(&page(&server, "jobs?search=state%3Afailed"));
    browser.until_shows("#found", "2 jobs");
    browser.click("#pick-all");
    browser.until_shows("#picked", "2 selected");
    assert_eq!(offered(), json!(["delete", "retry"]));
    browser.click("#pick-none");
    browser.click("#pick-matches");
    browser.until_shows("#picked", "all 2 jobs");
    assert_eq!(offered(), json!(["delete", "retry"]));
    // A mixed selection: the action says to how many it applies.
    browser.go(&page(&server, "jobs"));
    browser.until_shows("#found", "3 jobs");
    browser.click("#pick-all");
    browser.until_shows("#picked", "3 selected");
    browser.click("[data-action=retry]");
    browser.until_shows("#ask-count", "Retry: 2 jobs?");
    browser.until_shows("dialog", "1 selected job is in a state to which this does not apply");
    browser.click("#ask-yes");
    browser.until_shows(".toasts", "2 retried");
    assert_eq!(server.state_of(1), "ready");
}

#[test]
fn selected_jobs_are_acted_on_from_the_keyboard() {
    let server = Server::start(&[]);
    failed(&server, 3, "mail");
    let browser = Browser::open();
    browser.go(&page(&server, "jobs?search=state%3Afailed"));
    browser.until_shows("#found", "3 jobs");
    browser.keys("a");
    browser.until_shows("#picked", "all 3 jobs");
    browser.keys("\u{e00c}");
    browser.until("!document.querySelector('#picked')");
    // The current row, without a selection.
    browser.keys("jR");
    browser.until_shows("#ask-count", "Retry: 1 job?");
    browser.click("#ask-yes");
    browser.until_shows(".toasts", "1 retried");
    assert_eq!(server.state_of(3), "ready");
    browser.until_shows("#found", "2 jobs");
    browser.keys("aD");
    browser.until_shows("#ask-count", "Delete: all 2 jobs matching state:failed?");
    // Focus begins at Cancel; Enter there changes nothing.
    browser.keys("\u{e007}");
    browser.until("!document.querySelector('dialog')");
    assert_eq!(server.state_of(1), "failed");
    browser.go(&page(&server, "job/1"));
    browser.until_shows("#state", "failed");
    browser.keys("R");
    browser.until_shows("#state", "ready");
    browser.keys("E");
    browser.until("document.activeElement?.id === 'edit-name'");
}
