//! Schedules, their turns, how long jobs are kept, and who did what.

use super::*;

#[test]
fn a_schedule_shows_its_last_run_and_is_paused_run_and_edited() {
    let server = Server::start(&[]);
    push(&server, json!({"name": "tick", "repeat": "every 1h", "payload": {"n": 1}, "retry": 1}));
    let claimed = claim(&server, json!({"worker": "w-1"}));
    settle(&server, &claimed, json!({"outcome": "fail", "message": "no answer"}));
    let browser = Browser::open();
    browser.go(&page(&server, "schedules"));
    browser.until_shows("main tbody .state.failed", "failed");
    browser.until_shows("main tbody", "no answer");
    browser.click("[data-action=run-now]");
    browser.until_shows(".toasts", "tick runs now");
    let claimed = claim(&server, json!({"worker": "w-2", "wait_ms": 5_000}));
    settle(&server, &claimed, json!({"outcome": "finish"}));
    browser.until_shows("main tbody .state.completed", "completed");
    browser.click("[data-action=history]");
    browser.until_shows("#turns tbody tr:nth-child(1)", "requested");
    browser.until_shows("#turns tbody tr:nth-child(2)", "no answer");
    browser.picture("schedules");
    browser.click("[data-action=pause]");
    browser.until_shows("main tbody .state.paused", "paused");
    browser.click("[data-action=resume]");
    browser.until("document.querySelector('[data-action=pause]')");
    browser.click("[data-action=edit]");
    browser.fill("#schedule-repeat", "every 2h");
    browser.fill("#schedule-priority", "-2");
    browser.click("#schedule-save");
    browser.until_shows("main tbody code", "every 2h");
    assert_eq!((&server.job(1)["repeat"], &server.job(1)["priority"]), (&json!("every 2h"), &json!(-2)));
    // Its own page has the runs, too.
    browser.go(&page(&server, "job/1"));
    browser.until_shows("[data-part=turns]", "no answer");
}

#[test]
fn schedules_need_no_scrolling_sideways_on_a_phone() {
    let server = Server::start(&[]);
    let rules = ["TZ=Europe/Berlin 0 9 * * MON-FRI", "every 1h30m", "30 6 1,15 * *"];
    for (name, rule) in ["report.monthly-statement", "tick", "billing.close_period"].into_iter().zip(rules) {
        push(&server, json!({"name": name, "repeat": rule, "retry": 1, "run_at": 1_000}));
    }
    let claimed = claim(&server, json!({"worker": "w-1", "limit": 3}));
    let failure =
        json!({"outcome": "fail", "class": "SMTPServerDisconnected", "message": "Connection closed"});
    settle(&server, &claimed[..2], failure);
    settle(&server, &claimed[2..], json!({"outcome": "finish"}));
    let browser = Browser::looking(PHONE);
    browser.go(&page(&server, "schedules"));
    browser.until_shows("main tbody", "failed");
    browser.until_shows("main tbody", "completed");
    let over = browser.js(
        "Math.max(...[...document.querySelectorAll('.scroll')].map((e) => e.scrollWidth - e.clientWidth))",
    );
    assert!(over.as_i64().unwrap() <= 0, "{over} pixels too wide");
    browser.picture("schedules-phone");
}

#[test]
fn a_queue_says_how_long_it_keeps_jobs_and_is_told_otherwise() {
    let server = Server::start(&[]);
    push(&server, json!({"name": "mail", "queue": "out"}));
    let browser = Browser::open();
    browser.go(&page(&server, "queue/out"));
    browser.until_shows("#keep", "for 1h (of the server)");
    browser.click("#keep-change");
    browser.fill("#keep-completed", "two days");
    browser.click("#keep-save");
    browser.until_shows("form [role=alert]", "“two days” is not a duration");
    browser.fill("#keep-completed", "2d");
    browser.fill("#keep-failed", "forever");
    browser.click("#keep-save");
    browser.until_shows("#keep", "for 2d (of this queue)");
    browser.until_shows("#keep", "forever (of this queue)");
    browser.click("#keep-change");
    browser.until("document.querySelector('#keep-completed').value === '2d'");
    browser.fill("#keep-completed", "");
    browser.click("#keep-save");
    browser.until_shows("#keep", "for 1h (of the server)");
}

#[test]
fn the_audit_page_says_who_did_what_and_leads_there() {
    let server = Server::start(&[]);
    push(&server, json!({"name": "mail", "queue": "out"}));
    server.call("POST", "/api/v1/queues/out/pause", None);
    server.call("POST", "/api/v1/jobs/1/cancel", Some(json!({})));
    let browser = Browser::open();
    browser.go(&page(&server, "audit"));
    browser.until_shows("main tbody tr:nth-child(1)", "job.cancel");
    browser.until_shows("main tbody tr:nth-child(2)", "queue.pause");
    browser.until_shows("main tbody tr:nth-child(1)", "anyone");
    browser.picture("audit");
    // New actions come by themselves.
    server.call("POST", "/api/v1/queues/out/resume", None);
    browser.until_shows("main tbody tr:nth-child(1)", "queue.resume");
    browser.press("queues");
    browser.until("document.querySelectorAll('main tbody tr').length === 2");
    browser.press("single jobs");
    browser.until("document.querySelectorAll('main tbody tr').length === 1");
    browser.click("main tbody a[href='#/job/1']");
    browser.until_shows("h1", "mail #1");
}
