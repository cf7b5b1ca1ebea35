//! Durable steps on the page of a job: the timeline, signals, and a retry from a step.

use super::*;
use crate::steps::{claim as claim_one, keep, names, settle as settle_one};

/// Pushes a job and claims it.
fn begin(server: &Server) -> Value {
    push(server, json!({"name": "order", "retry": 1, "payload": {"n": 1}}));
    claim_one(server)
}

/// Names of the rows, from the top.
fn shown(browser: &Browser) -> Value {
    browser.js("[...document.querySelectorAll('[data-step]')].map((row) => row.dataset.step)")
}

/// Job with a step of each kind that waits for a signal.
fn waiting(server: &Server) -> Value {
    let job = begin(server);
    let began = server.job(1)["created_at"].as_i64().unwrap() - 90_000;
    let lines: Vec<Value> = (0..60).map(|n| json!({"sku": format!("A-{n}"), "count": n})).collect();
    keep(
        server,
        &job,
        json!([
            {"name": "charge", "result": {"charge_id": "ch_1"}, "started_at": began},
            {"name": "reserve", "result": {"lines": lines}, "started_at": began + 45_000},
            {"name": "note"},
        ]),
    );
    settle_one(server, &job, json!({"outcome": "suspend", "delay_ms": 1, "step": "sleep"}));
    let job = claim_one(server);
    settle_one(
        server,
        &job,
        json!({"outcome": "suspend", "signal": "stock", "delay_ms": 1, "step": "wait:stock"}),
    );
    let job = claim_one(server);
    push(server, json!({"name": "pack", "parent": 1}));
    settle_one(server, &job, json!({"outcome": "suspend", "children": true, "step": "all"}));
    let child = claim_one(server);
    settle_one(server, &child, json!({"outcome": "finish"}));
    let job = claim_one(server);
    settle_one(
        server,
        &job,
        json!({"outcome": "suspend", "signal": "approval", "delay_ms": 604_800_000, "step": "wait:approval"}),
    );
    job
}

#[test]
fn the_steps_of_a_job_are_a_timeline_that_ends_where_it_waits() {
    let server = Server::start(&[]);
    waiting(&server);
    let browser = Browser::looking(Look { width: 1400, ..DESK });
    browser.go(&page(&server, "job/1"));
    browser.until_shows("#steps-count", "6 kept");
    assert_eq!(shown(&browser), json!(["charge", "reserve", "note", "sleep", "wait:stock", "all"]));
    let row = |name: &str| browser.text(&format!("[data-step={name:?}]"));
    assert!(row("charge").contains("executed") && row("charge").contains("1m 3"), "{}", row("charge"));
    assert!(row("charge").contains(r#"{"charge_id":"ch_1"}"#), "{}", row("charge"));
    assert!(row("note").contains("–"), "no start, no duration: {}", row("note"));
    assert!(row("sleep").contains("slept") && !row("sleep").contains("timed out"), "{}", row("sleep"));
    assert!(row("wait:stock").contains("waited for a signal") && row("wait:stock").contains("timed out"));
    assert!(row("all").contains("waited for children"), "{}", row("all"));
    browser.until_shows("#step-now", "waits for signal approval until ");
    browser.until_shows("#step-now", "in 6d 23h");
    browser.until_shows("#why", "the job waits for signal approval until");
    let bars = browser.js(
        "[...document.querySelectorAll('[data-step] .lane rect')].map((bar) => [bar.x, bar.width].map((side) => side.baseVal.valueInSpecifiedUnits))",
    );
    let bar = |at: usize, side: usize| bars[at][side].as_f64().unwrap();
    assert!(bar(0, 0) == 0.0 && bar(0, 1) > 80.0, "the first step took the whole time: {bars}");
    assert!((30.0..60.0).contains(&bar(1, 0)), "half of the time later: {bars}");
    assert!((0..6).all(|at| bar(at, 0) + bar(at, 1) <= 100.01), "{bars}");
    assert_eq!(browser.count("[data-retry-from]"), 0, "a retry does not fit a suspended job");
    browser.picture("steps-light");

    // A long result is closed until it is asked for, and stays open while the page follows the job.
    assert_eq!(browser.count("[data-step=reserve] details[open], [data-step=reserve] .tree"), 0);
    browser.click("[data-step=reserve] summary");
    browser.until_shows("[data-step=reserve] .tree", "lines: [60]");
    server.call("POST", "/api/v1/jobs/1/signal/approval", Some(json!({"by": "ann"})));
    browser.until_shows("[data-step='wait:approval']", r#"{"by":"ann"}"#);
    browser.until_shows("#step-now", "ready, continues after step wait:approval");
    let job = claim_one(&server);
    browser.until_shows("#step-now", "runs at w-1, after step wait:approval");
    keep(&server, &job, json!([{"name": "ship", "result": "by air"}]));
    browser.until_shows("[data-step=ship]", "by air");
    browser.until_shows("[data-step=reserve] details[open] .tree", "lines: [60]");
    settle_one(&server, &job, json!({"outcome": "finish"}));
    browser.until("document.querySelector('#step-now').hidden && document.querySelector('#signal').hidden");
    browser.until("document.querySelectorAll('[data-retry-from]').length === 8");
}

#[test]
fn the_timeline_fits_a_phone_and_both_themes() {
    let server = Server::start(&[]);
    waiting(&server);
    let browser = Browser::looking(Look { width: 1400, dark: true, ..DESK });
    browser.go(&page(&server, "job/1"));
    browser.until_shows("#step-now", "waits for signal approval");
    browser.picture("steps-dark");
    for (dark, name) in [(false, "steps-phone"), (true, "steps-phone-dark")] {
        browser.look(Look { dark, ..PHONE });
        browser.until("document.documentElement.scrollWidth <= innerWidth");
        browser
            .until("document.querySelector('[data-step=charge] .lane').getBoundingClientRect().width > 200");
        browser.js("document.querySelector('#steps').scrollIntoView()");
        browser.picture(name);
    }
    let ink = "getComputedStyle(document.querySelector('[data-step=charge] rect')).fill";
    let dark = browser.js(ink);
    browser.look(PHONE);
    assert_ne!(browser.js(ink), dark, "bars follow the theme");
}

#[test]
fn a_signal_is_sent_from_the_page_and_broken_json_is_not() {
    let server = Server::start(&[]);
    let job = begin(&server);
    settle_one(&server, &job, json!({"outcome": "suspend", "signal": "approval", "step": "ok"}));
    let browser = Browser::open();
    browser.go(&page(&server, "job/1"));
    browser.until_shows("#step-now", "waits for signal approval");
    // By keyboard: the button takes the focus, Enter opens the form, which begins at the payload.
    browser.js("document.querySelector('#signal').focus()");
    browser.keys("\u{e007}");
    browser.until("document.activeElement?.id === 'signal-payload'");
    assert_eq!(browser.js("document.querySelector('#signal-name').value"), "approval");
    browser.fill("#signal-payload", "{\"by\": ann}");
    browser.click("#signal-send");
    browser.until_shows("#signal-form [role=alert]", "line 1, column 8");
    assert_eq!(server.state_of(1), "suspended", "nothing was sent");
    browser.picture("steps-signal");

    // Another name: kept until the job waits for it.
    browser.fill("#signal-name", "go <b>ahead</b>");
    browser.fill("#signal-payload", "");
    browser.click("#signal-send");
    browser.until_shows(".toasts", "is kept until job 1 waits for it");
    browser.until_shows("#signals", "Signals that no wait has taken yet: go <b>ahead</b>");
    assert_eq!(server.job(1)["signals"][0]["name"], "go <b>ahead</b>");

    browser.click("#signal");
    browser.fill("#signal-payload", "{\"by\": \"ann\", \"order\": 12345678901234567890}");
    browser.click("#signal-send");
    browser.until_shows(".toasts", "job 1 runs again: it waited for signal approval");
    browser.until_shows("[data-step=ok]", "waited for a signal");
    browser.until("!document.querySelector('#signal-form')");
    assert_eq!(
        server.job(1)["steps"][0]["result"],
        json!({"by": "ann", "order": 12_345_678_901_234_567_890_u64})
    );
}

#[test]
fn a_job_is_retried_from_a_step_after_a_question_that_names_the_steps() {
    let server = Server::start(&[]);
    let job = begin(&server);
    keep(&server, &job, json!([{"name": "a", "result": 1}, {"name": "b <i>2</i>"}]));
    settle_one(&server, &job, json!({"outcome": "suspend", "delay_ms": 1, "step": "sleep"}));
    let job = claim_one(&server);
    let browser = Browser::open();
    browser.go(&page(&server, "job/1"));
    browser.until_shows("#step-now", "runs at w-1");
    assert_eq!(browser.count("[data-retry-from]"), 0, "it runs");
    settle_one(&server, &job, json!({"outcome": "fail", "message": "no", "retry": false}));
    browser.until_shows("#step-now", "failed after step sleep");
    browser.click("[data-retry-from='b <i>2</i>']");
    browser.until_shows("dialog", "Job 1 runs again from step b <i>2</i>. 2 steps are executed again:");
    assert_eq!(
        browser.js("[...document.querySelectorAll('dialog li')].map((item) => item.textContent)"),
        json!(["b <i>2</i>", "sleep"])
    );
    browser.until_shows("dialog", "1 step before it keeps its result. Waits among them begin again");
    browser.picture("steps-retry");
    browser.press("Cancel");
    browser.until("!document.querySelector('dialog')");
    assert_eq!(names(&server, 1).len(), 3, "nothing was dropped");
    browser.click("[data-retry-from='b <i>2</i>']");
    browser.click("#ask-yes");
    browser.until_shows(".toasts", "job 1: ready, from step b <i>2</i>");
    browser.until("document.querySelectorAll('[data-step]').length === 1");
    browser.until_shows("#step-now", "ready, continues after step a");
    assert_eq!(names(&server, 1), ["a"]);
}

#[test]
fn a_thousand_steps_stay_usable() {
    let server = Server::start(&[]);
    let job = begin(&server);
    let evil = "<img src=x onerror=\"window.hacked=1\">";
    let name = |n: usize| if n == 500 { evil.to_owned() } else { format!("step-{n}") };
    let steps: Vec<Value> =
        (0..1000).map(|n| json!({"name": name(n), "result": {"n": n, "text": "x".repeat(200)}})).collect();
    for part in steps.chunks(500) {
        keep(&server, &job, json!(part));
    }
    let browser = Browser::open();
    browser.go(&page(&server, "job/1"));
    browser.until_shows("#steps-count", "1,000 kept");
    assert_eq!(browser.count("[data-step]"), 25, "the page stays small");
    assert_eq!(browser.js("document.querySelector('[data-step]').dataset.step"), "step-975");
    browser.until_shows("#steps-earlier", "975 earlier steps");
    browser.fill("#steps-find", "STEP-77");
    browser.until_shows("#steps-count", "11 of 1,000");
    assert_eq!(shown(&browser)[0], "step-77");
    browser.fill("#steps-find", "onerror");
    browser.until_shows("[data-step]", evil);
    browser.fill("#steps-find", "");
    browser.until_shows("#steps-count", "1,000 kept");

    // All of them: each press doubles what is shown.
    for shown in [50, 100, 200, 400, 800, 1000] {
        browser.click("#steps-earlier");
        browser.until(&format!("document.querySelectorAll('[data-step]').length === {shown}"));
    }
    browser.until("document.querySelector('#steps-earlier').hidden");
    assert_eq!(browser.js("window.hacked === undefined"), true);
    assert_eq!(browser.count("#steps img"), 0);
    // A step that comes while all are shown is added at the end, and no other row is drawn anew.
    browser.js("document.querySelector('[data-step=\"step-3\"] .step-took').id = 'mine'");
    browser.click("[data-step='step-3'] summary");
    keep(&server, &job, json!([{"name": "last"}]));
    browser.until_shows("[data-step=last]", "last");
    browser.until("document.querySelector('#mine') && document.querySelector('[data-step=\"step-3\"] details[open] .tree')");
    let took = browser.js(
        "(() => { const began = performance.now(); const box = document.querySelector('#steps-find'); \
         for (const text of ['step-1', '']) { box.value = text; box.dispatchEvent(new Event('input')); } \
         document.querySelector('#steps').getBoundingClientRect(); return performance.now() - began; })()",
    );
    assert!(took.as_f64().unwrap() < 2_000.0, "finding a step takes {took} ms");
    browser.picture("steps-many");
}

#[test]
fn a_viewer_sees_the_steps_without_buttons_and_nothing_of_hidden_results() {
    use super::access::{sign_in, token};
    let mut server = Server::start(&[]);
    waiting(&server);
    server.stop();
    let (viewer, line) = token("viewer");
    let tokens = format!("auth.tokens={line}");
    let mut server = Server::start_in(server.folder(), &["--set", &tokens]);
    let browser = Browser::open();
    browser.go(&page(&server, "job/1"));
    sign_in(&browser, &viewer);
    browser.until_shows("#steps-count", "6 kept");
    browser.until("document.querySelector('#signal').hidden");
    assert_eq!(browser.count("[data-retry-from]"), 0);
    server.stop();

    let server = Server::start_in(server.folder(), &["--set", &tokens, "--set", "auth.viewer_payloads=hide"]);
    browser.go(&page(&server, "job/1"));
    sign_in(&browser, &viewer);
    browser.until_shows("#step-now", "waits for signal approval until");
    assert!(!browser.text("body").contains("ch_1"));
    assert_eq!(browser.count("[data-step]"), 0);
}
