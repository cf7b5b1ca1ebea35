//! Shape of the pages: columns, chips, menus, pages of single queues, addresses that lead nowhere.

use super::*;

/// Texts of a column, from the top.
fn column(browser: &Browser, title: &str) -> Vec<String> {
    let cells = browser.js(&format!(
        "(() => {{ const at = [...document.querySelectorAll('main th')].findIndex((head) => \
         head.textContent.replace(/ [↑↓]$/, '') === {title:?}); \
         return [...document.querySelectorAll('main tbody tr')].map((row) => row.children[at]?.innerText ?? ''); }})()"
    ));
    cells.as_array().unwrap().iter().map(|cell| cell.as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn until_column(browser: &Browser, title: &str, expected: &[&str]) {
    crate::server::eventually("the rows are in order", || (column(browser, title) == expected).then_some(()));
}

#[test]
fn columns_sort_and_the_list_says_that_it_sorts_its_page() {
    let server = Server::start(&[]);
    for name in ["pear", "apple", "plum"] {
        push(&server, json!({"name": name, "queue": format!("q-{name}")}));
    }
    push(&server, json!({"name": "apple", "queue": "q-apple"}));
    let browser = Browser::open();
    browser.go(&page(&server, "jobs"));
    until_column(&browser, "Id", &["4", "3", "2", "1"]);
    browser.click("[data-sort=Name]");
    until_column(&browser, "Name", &["apple", "apple", "pear", "plum"]);
    browser.until_shows("#sorted", "the jobs of this page, by name");
    browser.click("[data-sort=Name]");
    until_column(&browser, "Name", &["plum", "pear", "apple", "apple"]);
    assert_eq!(browser.js("document.querySelector('th[aria-sort]').ariaSort"), "descending");
    // Kept for this tab; new jobs join in the chosen order.
    browser.reload();
    until_column(&browser, "Name", &["plum", "pear", "apple", "apple"]);
    push(&server, json!({"name": "quince"}));
    until_column(&browser, "Name", &["quince", "plum", "pear", "apple", "apple"]);
    browser.click("[data-sort=Name]");
    until_column(&browser, "Id", &["5", "4", "3", "2", "1"]);
    browser.go(&page(&server, "queues"));
    browser.click("[data-sort=ready]");
    until_column(&browser, "Queue", &["q-apple", "default", "q-pear", "q-plum"]);
}

#[test]
fn chips_count_the_jobs_of_each_state_and_keep_the_rest_of_the_search() {
    let server = Server::start(&[]);
    failed(&server, 3, "mail");
    push(
        &server,
        json!({"jobs": [{"name": "mail", "queue": "out"}, {"name": "sms", "queue": "out", "delay_ms": 60_000}]}),
    );
    let browser = Browser::open();
    browser.go(&page(&server, "jobs"));
    browser.until_shows("[data-chip=failed] b", "3");
    browser.until_shows("[data-chip=all] b", "5");
    browser.until_shows("[data-chip=delayed] b", "1");
    assert_eq!(browser.count("[data-chip=suspended]"), 0);
    browser.go(&page(&server, "jobs?search=queue%3Aout%20state%3Aready"));
    browser.until_shows("[data-chip=ready] b", "1");
    browser.until_shows("[data-chip=all] b", "2");
    browser.until_shows("[data-chip=failed] b", "0");
    browser.until("document.querySelector('[data-chip=ready]').getAttribute('aria-current') === 'true'");
    browser.click("[data-chip=delayed]");
    browser.until_shows("main tbody", "sms");
    assert!(browser.js("location.hash").as_str().unwrap().contains("queue%3Aout"));
    // A search that no counter covers: chips without numbers.
    browser.go(&page(&server, "jobs?search=name%3Amail"));
    browser.until_shows("#found", "4 jobs");
    assert_eq!(browser.count(".chips b"), 0);
}

#[test]
fn the_chip_for_recent_failures_goes_by_the_time_of_the_failure() {
    let server = Server::start(&[]);
    failed(&server, 2, "mail");
    let browser = Browser::open();
    browser.go(&page(&server, "jobs?search=queue%3Adefault"));
    browser.click("[data-chip='failed in the last hour']");
    browser.until_shows("#found", "2 jobs");
    let hash = browser.js("decodeURIComponent(location.hash.replaceAll('+', ' '))");
    assert_eq!(hash, "#/jobs?search=state:failed queue:default ended<1h");
    browser.until(
        "document.querySelector(\"[data-chip='failed in the last hour']\").getAttribute('aria-current') === 'true'",
    );
}

#[test]
fn a_column_of_tenants_is_shown_only_where_tenants_differ() {
    let server = Server::start(&[]);
    push(&server, json!({"name": "a"}));
    let browser = Browser::open();
    browser.go(&page(&server, "jobs"));
    browser.until_shows("main tbody", "a");
    assert!(!browser.text("main thead").contains("Tenant"));
    push(&server, json!({"name": "b", "tenant": "acme"}));
    browser.until_shows("main thead", "Tenant");
    browser.until_shows("main tbody", "acme");
}

#[test]
fn a_queue_has_a_page_with_its_chart_and_its_slowest_jobs() {
    let server = Server::start(&[]);
    push(
        &server,
        json!({"jobs": (0..4).map(|n| json!({"name": "scan", "queue": "mail out", "payload": {"n": n}})).collect::<Vec<_>>()}),
    );
    let claimed = claim(&server, json!({"worker": "w-1", "limit": 2}));
    settle(&server, &claimed[..1], json!({"outcome": "finish"}));
    let browser = Browser::open();
    browser.go(&page(&server, "queues"));
    browser.press("mail out");
    browser.until_shows("h1", "mail out");
    browser.until_shows("[data-state=ready] .value", "2");
    browser.until("document.querySelector('#queue-chart svg .series')");
    browser.until_shows("table[aria-label='Running longest'] tbody", "scan");
    browser.until_shows("table[aria-label^='Slowest'] tbody", "scan");
    browser.picture("queue");
    browser.click("[data-action=pause]");
    browser.until_shows(".head", "paused");
    assert!(claim(&server, json!({})).is_empty());
    browser.click("[data-action=resume]");
    browser.until("document.querySelector('[data-action=pause]')");
    browser.click("[data-state=ready]");
    browser.until_shows("#found", "2 jobs");
    browser.go(&page(&server, "queue/nothing"));
    browser.until_shows("#missing", "Queue nothing not found");
}

#[test]
fn addresses_that_lead_nowhere_say_so_and_an_alias_leads_to_its_job() {
    let server = Server::start(&[]);
    push(
        &server,
        json!({"name": "mail", "alias": "order-7", "payload": "order-7 is here", "format": "text"}),
    );
    let browser = Browser::open();
    for path in ["nonsense", "jobs/17", "job", "job/1/2", "%E0%A4%A"] {
        browser.go(&page(&server, path));
        browser.until_shows("#missing h1", "Page not found");
        browser.until("document.title === 'Not found · Windlass'");
        // A new document, so that the next address is read anew.
        browser.go("about:blank");
    }
    for (path, shows) in [("job/999", "Job 999 not found"), ("job/order-8", "Job order-8 not found")] {
        browser.go(&page(&server, path));
        browser.until_shows("#missing h1", shows);
    }
    browser.picture("missing");
    browser.go(&page(&server, "job/order-7"));
    browser.until_shows("h1", "mail #1");
    assert!(browser.js("location.hash").as_str().unwrap().ends_with("#/job/1"));
    browser.go(&page(&server, "jobs?search=order-7"));
    browser.until_shows("#alias", "job 1, mail");
}

#[test]
fn pages_of_single_protocols_are_in_a_menu() {
    let server = Server::start(&[]);
    let browser = Browser::open();
    browser.go(&page(&server, ""));
    browser.until_shows("nav.pages", "Queues");
    assert!(!browser.text("nav.pages").contains("Handlers"));
    browser.click("#protocols");
    browser.until("document.querySelector('details.menu').open");
    browser.click("details.menu a[data-page=handlers]");
    browser.until_shows("h1", "Handlers");
    browser.until("!document.querySelector('details.menu').open");
    browser.keys("gb");
    browser.until_shows("h1", "Blobs");
}

#[test]
fn a_family_is_drawn_as_a_graph_of_bounded_size() {
    let server = Server::start(&[]);
    push(&server, json!({"name": "root"}));
    let root = claim(&server, json!({}));
    let children: Vec<Value> = (0..45).map(|n| json!({"name": format!("child-{n}"), "parent": 1})).collect();
    push(&server, json!({"jobs": children}));
    settle(&server, &root, json!({"outcome": "finish"}));
    let held = claim(&server, json!({"limit": 5}));
    for one in &held {
        let grandchildren: Vec<Value> =
            (0..40).map(|_| json!({"name": "leaf", "parent": one["id"]})).collect();
        push(&server, json!({"jobs": grandchildren}));
    }
    let browser = Browser::open();
    browser.go(&page(&server, "job/1"));
    browser.click("[data-view=Graph]");
    browser.until_shows("#family-graph", "child-0");
    let boxes = browser.count("#family-graph rect");
    assert!((100..=170).contains(&boxes), "{boxes}");
    browser.until_shows("#family-graph", "more");
    browser.picture("family-graph");
    // Chosen once, kept; and its boxes are links.
    browser.go(&page(&server, "job/2"));
    browser.until_shows("#family-graph .here", "#2");
    browser.js("document.querySelector('#family-graph a[href=\"#/job/1\"]').dispatchEvent(new MouseEvent('click', { bubbles: true }))");
    browser.until_shows("h1", "root #1");
}
