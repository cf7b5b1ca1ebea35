//! Finding what failed and why.

use super::*;

#[test]
fn lists_show_the_error_in_place_of_the_payload() {
    let server = Server::start(&[]);
    let job = json!({"name": "mail", "payload": {"secret": "payload text"}, "retry": {"max_attempts": 2, "backoff": {"fixed_ms": 600_000}}});
    push(&server, job.clone());
    push(&server, job);
    let claimed = claim(&server, json!({"limit": 1}));
    settle(&server, &claimed, json!({"outcome": "fail", "error": "mailbox full\nsecond line"}));
    let browser = Browser::open();
    browser.go(&page(&server, "jobs"));
    browser.until_shows("tr[data-key='1'] .state", "retrying");
    browser.until_shows("tr[data-key='1'] .excerpt .err", "mailbox full");
    assert!(!browser.text("tr[data-key='1']").contains("payload text"));
    assert!(!browser.text("tr[data-key='1']").contains("second line"), "one line per job");
    browser.until_shows("tr[data-key='2'] .excerpt", "payload text");
    browser.look(PHONE);
    browser.until("document.querySelector(\"tr[data-key='1'] .small-err\").checkVisibility()");
}

#[test]
fn attempts_are_a_timeline_above_the_payload() {
    let server = Server::start(&[]);
    push(
        &server,
        json!({"name": "mail", "payload": {"n": 1}, "retry": {"max_attempts": 3, "backoff": "none"}}),
    );
    for attempt in 1..=3 {
        let claimed = claim(&server, json!({"worker": format!("w-{attempt}"), "wait_ms": 5_000}));
        settle(
            &server,
            &claimed,
            json!({"outcome": "fail", "message": format!("broke {attempt} times"), "code": "EX"}),
        );
    }
    let browser = Browser::open();
    browser.go(&page(&server, "job/1"));
    browser.until_shows("#attempts h2", "3 failed attempts");
    let said =
        browser.js("[...document.querySelectorAll('.error-item > pre')].map((pre) => pre.textContent)");
    assert_eq!(
        said,
        json!(["broke 3 times\ncode EX", "broke 2 times", "broke 1 times"]),
        "newest first, each once"
    );
    assert_eq!(
        browser.js(
            "Boolean(document.querySelector('#attempts').compareDocumentPosition(document.querySelector('[data-part=payload]')) \
             & Node.DOCUMENT_POSITION_FOLLOWING)"
        ),
        true
    );
    assert_eq!(browser.text("main").matches("broke 3 times").count(), 1);
    browser.picture("attempts");
}
