//! Keyboard, narrow screens, colours, and hidden tabs.

use super::*;

fn some_of_everything(server: &Server) {
    failed(server, 3, "mail.welcome");
    let jobs: Vec<Value> = (0..40)
        .map(|n| json!({"name": "image.resize.with-a-rather-long-name", "queue": "images", "payload": {"path": format!("/photos/{n}.png"), "sizes": [100, 200]}}))
        .collect();
    push(server, json!({"jobs": jobs}));
    push(server, json!({"name": "report.daily", "repeat": "0 4 * * *", "tags": ["night"]}));
    let claimed =
        claim(server, json!({"limit": 12, "worker": "worker-1", "name": "image*", "lease_ms": 600_000}));
    settle(server, &claimed[..8], json!({"outcome": "finish", "result": {"bytes": 5120}}));
    let body = json!({"matcher": {"name_glob": "mail*"}, "max_running": 2, "group_by": [["user_id"]]});
    server.call("PUT", "/api/v1/limits/mail-per-user", Some(body));
}

const PAGES: [(&str, &str); 15] = [
    ("", "images"),
    ("jobs", "image.resize"),
    ("jobs?search=state%3Afailed", "mail.welcome"),
    ("job/1", "it broke"),
    ("queues", "images"),
    ("queue/images", "Running longest"),
    ("failures", "mail.welcome"),
    ("audit", "limit.set"),
    ("schedules", "report.daily"),
    ("limits", "mail-per-user"),
    ("workers", "worker-1"),
    ("blobs", "no blobs"),
    ("handlers", "no handlers"),
    ("nonsense", "Page not found"),
    ("push", "New job"),
];

/// Lowest contrast of text to its background, and its position.
const CONTRAST: &str = r"(() => {
    const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = numbers(getComputedStyle(at).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    let worst = [99, ''];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.textContent.trim() || !element.checkVisibility() || element.closest('svg, .sr, .skip, script, :disabled')) continue;
        const [a, b] = [light(numbers(getComputedStyle(element).color)), light(behind(element))];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < worst[0]) worst = [contrast, element.outerHTML.slice(0, 200)];
    }
    return worst;
})()";

/// Controls without an accessible name.
const NAMELESS: &str = "[...document.querySelectorAll('button, input, select, textarea, a')].filter((e) => e.checkVisibility() \
    && !e.textContent.trim() && !e.getAttribute('aria-label') && !e.labels?.length && !e.title).map((e) => e.outerHTML)";

/// Buttons that are not wholly within the window.
const CUT_OFF: &str = "[...document.querySelectorAll('main button, main a.button, header button, header summary')].filter((e) => \
    { const box = e.getBoundingClientRect(); return e.checkVisibility() && box.width > 0 && (box.left < -0.5 || box.right > innerWidth + 0.5); }) \
    .map((e) => e.outerHTML)";

#[test]
fn every_page_fits_every_screen_in_both_colours_and_can_be_read() {
    let server = Server::start(&[]);
    some_of_everything(&server);
    let browser = Browser::open();
    for (width, look) in [("source", DESK), ("phone", PHONE)] {
        for dark in [false, true] {
            browser.look(Look { dark, ..look });
            for (path, shows) in PAGES {
                browser.go(&page(&server, path));
                browser.until_shows("main", shows);
                let name = if path.is_empty() { "overview" } else { path };
                let what = format!("{name} {width} {}", if dark { "dark" } else { "light" });
                let overflow =
                    browser.js("document.documentElement.scrollWidth - innerWidth").as_i64().unwrap();
                assert!(overflow <= 0, "{what} is {overflow} pixels too wide");
                let contrast = browser.js(CONTRAST);
                assert!(contrast[0].as_f64().unwrap() >= 4.5, "{what}: {contrast}");
                assert_eq!(browser.js(NAMELESS), json!([]), "{what}");
                assert_eq!(browser.js(CUT_OFF), json!([]), "{what}");
                browser.picture(&what.replace(['/', '?', '=', '%', ' '], "-"));
            }
        }
    }
}

#[test]
fn keys_lead_everywhere() {
    let server = Server::start(&[]);
    some_of_everything(&server);
    let browser = Browser::open();
    browser.go(&page(&server, ""));
    browser.until_shows("main", "images");
    browser.keys("?");
    browser.until_shows("dialog", "next, previous row");
    browser.keys("\u{e00c}");
    browser.until("!document.querySelector('dialog')");
    browser.keys("/");
    browser.until("document.activeElement?.id === 'search'");
    browser.keys("state:failed\u{e007}");
    browser.until_shows("#found", "3 jobs");
    browser.keys("\u{e00c}");
    browser.js("document.activeElement.blur()");
    browser.keys("jjk");
    browser.until("document.querySelector('main tbody tr:nth-child(1)').classList.contains('current')");
    browser.keys("x");
    browser.until_shows("#picked", "1 selected");
    browser.keys("j\u{e007}");
    browser.until_shows("h1", "mail.welcome #2");
    browser.keys("gq");
    browser.until_shows("h1", "Queues");
}

/// Records each request, and whether the page was visible.
const COUNT_REQUESTS: &str = "(() => { window.asked = []; const real = window.fetch; window.fetch = (...all) => { \
    window.asked.push([document.hidden, String(all[0])]); return real(...all); }; return true; })()";

#[test]
fn a_hidden_tab_asks_for_nothing_and_catches_up_when_it_is_seen_again() {
    let server = Server::start(&[]);
    let browser = Browser::open();
    browser.go(&page(&server, ""));
    browser.until_shows("[data-state=ready] .value", "0");
    browser.js(COUNT_REQUESTS);
    browser.minimize();
    browser.until("document.hidden");
    browser
        .js("(() => { window.ticks = 0; setInterval(() => { window.ticks += 1; }, 500); return true; })()");
    push(&server, json!({"name": "a"}));
    // Longer than the refresh interval of a visible page.
    browser.until("window.ticks >= 6");
    assert_eq!(browser.js("document.hidden"), true);
    assert_eq!(browser.js("window.asked.filter(([hidden]) => hidden)"), json!([]));
    assert_eq!(browser.text("[data-state=ready] .value"), "0");
    browser.restore();
    browser.until_shows("[data-state=ready] .value", "1");
    assert_ne!(browser.js("window.asked"), json!([]));
}

#[test]
fn the_switch_pauses_live_updates() {
    let server = Server::start(&[]);
    let browser = Browser::open();
    browser.go(&page(&server, ""));
    browser.until_shows("[data-state=ready] .value", "0");
    browser.click("#live");
    browser.until_shows("#live", "Paused");
    browser.js(COUNT_REQUESTS);
    // Another host name has separate browser storage: the switch is on there.
    let paused = browser.tab();
    browser.new_tab();
    let elsewhere = page(&server, "").replace("127.0.0.1", "localhost");
    browser.go(&elsewhere);
    browser.until_shows("#live", "Live");
    push(&server, json!({"name": "a"}));
    browser.until_shows("[data-state=ready] .value", "1");
    browser.switch_to(&paused);
    browser.bring_to_front();
    assert_eq!(browser.js("window.asked"), json!([]));
    assert_eq!(browser.text("[data-state=ready] .value"), "0");
    browser.click("#live");
    browser.until_shows("[data-state=ready] .value", "1");
}
