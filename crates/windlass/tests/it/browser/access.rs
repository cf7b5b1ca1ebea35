//! Access rights in the UI, and hostile jobs.

use super::*;
use crate::server::{request, windlass};

/// Token, and its configuration line.
pub(super) fn token(role: &str) -> (String, String) {
    let answer = crate::server::Ran::of(windlass().args(["token", "--role", role, "--json"])).json();
    (answer["token"].as_str().unwrap().to_owned(), answer["config"].as_str().unwrap().to_owned())
}

pub(super) fn sign_in(browser: &Browser, token: &str) {
    browser.fill("#token", token);
    browser.click("form button[type=submit]");
}

#[test]
fn a_token_is_asked_for_and_its_role_decides_what_is_shown() {
    let ((viewer, first), (operator, second)) = (token("viewer"), token("operator"));
    let lines = format!("auth.tokens={first},{second}");
    let server = Server::start(&["--set", &lines, "--set", "auth.viewer_payloads=hide"]);
    let job = r#"{"name":"mail","payload":{"secret":"xyzzy"}}"#;
    let head = format!("Authorization: Bearer {operator}\r\n");
    let (status, _) = crate::server::request_with(server.http, "POST", "/api/v1/jobs", &head, job).unwrap();
    assert_eq!(status, 201);
    let browser = Browser::open();
    browser.go(&page(&server, "jobs"));
    browser.until_shows("main", "This server requires an access token");
    sign_in(&browser, "wl_00000000_wrong");
    browser.until_shows("[role=alert]", "not valid");
    browser.picture("login");

    sign_in(&browser, &viewer);
    browser.until_shows("main tbody", "mail");
    browser.until_shows("#leave", "viewer");
    assert_eq!(browser.count("main tbody input"), 0, "nothing to select");
    assert!(!browser.text("nav.pages").contains("New job"));
    browser.go(&page(&server, "job/1"));
    browser.until_shows("main", "hidden from viewers");
    assert_eq!(browser.count("[data-action]"), 0);
    assert!(!browser.text("body").contains("xyzzy"));
    browser.go(&page(&server, "jobs?search=xyzzy"));
    browser.until_shows("[role=alert]", "viewers cannot search payloads");
    browser.go(&page(&server, "queues"));
    browser.until_shows("main tbody", "default");
    assert_eq!(browser.count("main tbody button"), 0);

    browser.click("#leave");
    browser.until("document.querySelector('#token')");
    sign_in(&browser, &operator);
    browser.until_shows("#leave", "operator");
    browser.go(&page(&server, "job/1"));
    browser.until_shows("[data-part=payload]", "xyzzy");
    browser.until("document.querySelector('[data-action=cancel]')");
    // Live updates with a token, too.
    let (status, _) =
        crate::server::request_with(server.http, "POST", "/api/v1/jobs/1/cancel", &head, "").unwrap();
    assert_eq!(status, 200);
    browser.until_shows("#state", "cancelled");
}

#[test]
fn hostile_jobs_stay_text_on_every_page() {
    let server = Server::start(&[]);
    let evil = r#""><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>"#;
    let job = json!({
        "name": evil, "queue": evil, "tags": [evil], "alias": evil, "unique": evil, "retry": 1,
        "payload": {evil: [evil, {"__proto__": {"hacked": 1}, "constructor": evil}]},
    });
    push(&server, job);
    push(&server, json!({"name": "text", "payload": evil, "format": "text"}));
    push(&server, json!({"name": evil, "repeat": "every 5m", "delay_ms": 60_000}));
    server.call("PUT", "/api/v1/limits/l", Some(json!({"matcher": {"name": evil}, "max_running": 5})));
    let claimed = claim(&server, json!({"worker": evil, "limit": 1}));
    let browser = Browser::open();
    let visit = |path: &str, shows: &str| {
        browser.go(&page(&server, path));
        browser.until_shows("main", shows);
        assert_eq!(browser.js("window.hacked === undefined && ({}).hacked === undefined"), true, "{path}");
        assert_eq!(browser.count("main img, main script"), 0, "{path}");
    };
    visit("workers", "<script>");
    visit("job/1", "<script>");
    settle(
        &server,
        &claimed,
        json!({"outcome": "fail", "error": evil, "message": evil, "code": "<b>", "result": {evil: evil}}),
    );
    for path in ["", "jobs", "job/1", "job/3", "queues", "schedules", "limits"] {
        visit(path, "<script>");
    }
    visit("job/2", "<script>");
    let search = "search=%22%3E%3Cscript%3Ewindow.hacked%3D1%3C%2Fscript%3E";
    browser.go(&page(&server, &format!("jobs?{search}")));
    browser.until_shows("#found", "2 jobs");
    assert_eq!(browser.js("window.hacked === undefined"), true);
    browser.go(&page(&server, "job/%3Cimg%20src=x%20onerror=alert(1)%3E"));
    browser.until_shows("main", "onerror=alert(1)> not found");
    browser.picture("hostile");
}

#[test]
fn the_files_come_with_a_strict_policy_and_are_sent_once() {
    let server = Server::start(&[]);
    let head = |path: &str, extra: &str| {
        crate::server::exchange(server.http, "GET", path, extra, "").unwrap().0.to_ascii_lowercase()
    };
    let index = head("/ui/", "");
    for line in [
        "content-security-policy: default-src 'none'; script-src 'self'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "content-type: text/html; charset=utf-8",
    ] {
        assert!(index.contains(line), "{line} in {index}");
    }
    let tag = index.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().trim().to_owned();
    let again = head("/ui/", &format!("If-None-Match: {tag}\r\n"));
    assert!(again.starts_with("http/1.1 304"), "{again}");
    assert!(head("/ui", "").contains("location: ui/"));
    assert!(head("/ui/nothing.js", "").starts_with("http/1.1 404"));
    assert_eq!(request(server.http, "POST", "/ui/", "").unwrap().0, 405);
}
