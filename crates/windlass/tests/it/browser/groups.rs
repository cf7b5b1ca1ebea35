//! Failures with class and backtrace, their groups, and searches for them.

use super::*;

/// Failed jobs with a class and a backtrace; the first `retrying` of them have attempts left.
fn fail_with(server: &Server, name: &str, class: &str, failed: usize, retrying: usize) {
    let patient = json!({"max_attempts": 5, "backoff": {"fixed_ms": 600_000}});
    let job = |n: usize| {
        let retry = if n < retrying { patient.clone() } else { json!(1) };
        json!({"name": name, "queue": "out", "retry": retry, "payload": {"n": n}})
    };
    push(server, json!({"jobs": (0..failed + retrying).map(job).collect::<Vec<_>>()}));
    let claimed = claim(server, json!({"name": name, "limit": failed + retrying, "worker": "w-1"}));
    assert_eq!(claimed.len(), failed + retrying);
    let failure = json!({"outcome": "fail", "class": class, "message": format!("{class} happened"),
        "backtrace": ["first frame", "second frame"], "error": {"detail": 7}});
    settle(server, &claimed, failure);
}

#[test]
fn failures_are_grouped_by_class_and_name_and_acted_on_as_a_group() {
    let server = Server::start(&[]);
    fail_with(&server, "mail.send", "SMTPServerDisconnected", 4, 2);
    fail_with(&server, "mail.send", "Timeout", 1, 0);
    fail_with(&server, "pay", "Timeout", 2, 0);
    let browser = Browser::open();
    browser.go(&page(&server, "failures"));
    browser.until_shows("#found", "9 jobs in 3 groups");
    let first = browser.text("main tbody tr:nth-child(1)");
    assert!(first.contains("6 ×") && first.contains("SMTPServerDisconnected in mail.send"), "{first}");
    assert!(first.contains("2 retrying") && first.contains("SMTPServerDisconnected happened"), "{first}");
    browser.picture("failures");
    // Retry is for the failed jobs of the group, and says how many first.
    browser.click("main tbody tr:nth-child(1) [data-action=retry]");
    browser.until_shows("#ask-count", "Retry: all 4 jobs matching");
    browser.click("#ask-yes");
    browser.until_shows(".toasts", "4 retried");
    browser.until_shows("#found", "5 jobs in 3 groups");
    browser.go(&page(&server, "failures?state=failed&search=name%3Apay"));
    browser.until_shows("#found", "2 jobs in 1 group");
    browser.click("main tbody tr:nth-child(1) [data-action=delete]");
    browser.until_shows("#ask-count", "Delete: all 2 jobs matching");
    browser.click("#ask-yes");
    browser.until_shows("main", "no failed or retrying jobs");
    // The name of a group leads to its jobs.
    browser.go(&page(&server, "failures"));
    browser.until_shows("#found", "3 jobs in 2 groups");
    browser.click("main tbody tr:nth-child(1) td a");
    browser.until_shows("#found", "2 jobs");
    browser.until_shows("main tbody .err", "SMTPServerDisconnected: SMTPServerDisconnected happened");
    // A queue shows its own groups.
    browser.go(&page(&server, "queue/out"));
    browser.until_shows("table[aria-label=Failures]", "SMTPServerDisconnected");
}

#[test]
fn a_failure_is_shown_once_with_its_class_message_backtrace_and_details() {
    let server = Server::start(&[]);
    fail_with(&server, "mail.send", "SMTPServerDisconnected", 1, 0);
    let browser = Browser::open();
    browser.go(&page(&server, "job/1"));
    browser.until_shows(".error-item .kind", "SMTPServerDisconnected");
    browser.until_shows(".error-item .trace", "first frame\nsecond frame");
    browser.until("document.querySelector('.error-item .trace').checkVisibility()");
    browser.click(".error-detail summary");
    browser.until_shows(".error-detail", "detail");
    assert_eq!(browser.count(".error-item"), 1);
    assert_eq!(browser.text("main").matches("SMTPServerDisconnected happened").count(), 1);
    browser.picture("backtrace");
}

#[test]
fn a_backtrace_that_several_attempts_share_is_shown_once() {
    let server = Server::start(&[]);
    push(&server, json!({"name": "mail", "retry": {"max_attempts": 3, "backoff": "none"}}));
    for trace in ["at connect", "at read", "at read"] {
        let claimed = claim(&server, json!({"wait_ms": 5_000}));
        settle(
            &server,
            &claimed,
            json!({"outcome": "fail", "class": "Closed", "backtrace": [trace, "at main"]}),
        );
    }
    let browser = Browser::open();
    browser.go(&page(&server, "job/1"));
    browser.until_shows("[data-attempt='3'] .trace", "at read");
    browser.until_shows("[data-attempt='2']", "Backtrace as in attempt 3");
    browser.until_shows("[data-attempt='1'] .trace", "at connect");
    assert_eq!(browser.count("[data-attempt='2'] .trace"), 0);
    // Only the newest is open.
    assert_eq!(browser.count("#attempts details.backtrace[open]"), 1);
}

#[test]
fn jobs_are_found_by_id_alias_and_error() {
    let server = Server::start(&[]);
    fail_with(&server, "mail.send", "SMTPServerDisconnected", 2, 0);
    push(&server, json!({"name": "pay", "alias": "order-7"}));
    let browser = Browser::open();
    for (search, found) in [
        ("alias:order-7", "1 job"),
        ("id:2", "1 job"),
        ("error:disconnected", "2 jobs"),
        ("class:SMTPServerDisconnected", "2 jobs"),
        ("class:Other", "0 jobs"),
    ] {
        browser.go(&page(&server, &format!("jobs?search={}", search.replace(':', "%3A"))));
        browser.until_shows("#found", found);
    }
    browser.fill("#search", "3");
    browser.keys("\u{e007}");
    browser.until_shows("h1", "pay #3");
}
