//! The documentation in a browser: reading, searching, and its look on a desk and on a phone.

use super::*;

const WIDE: Look = Look { width: 1400, height: 900, dark: false };

fn at(server: &Server, path: &str) -> String {
    format!("{}/docs/{path}", server.url())
}

/// True if nothing of the page is wider than the window.
const FITS: &str = "document.documentElement.scrollWidth <= document.documentElement.clientWidth";

#[test]
fn a_section_is_found_from_the_ui_by_its_words() {
    let server = Server::start(&[]);
    let browser = Browser::looking(WIDE);
    browser.go(&page(&server, ""));
    browser.click("#docs");
    browser.until_shows("h1", "Windlass");
    browser.keys("/");
    browser.until("document.activeElement.id === 'site_search'");
    browser.keys("quotas per tenant");
    browser.until_shows("#site_found [aria-selected=true]", "Quotas per tenant");
    browser.picture("docs-search");
    browser.keys("\u{e015}\u{e013}\u{e007}");
    browser.until("location.pathname.endsWith('/operating.html') && location.hash === '#quotas-per-tenant'");
    browser.until_shows("#site_contents [aria-current]", "Quotas per tenant");
    assert_eq!(browser.text("#site_chapters [aria-current]"), "Operating");
    browser.fill("#site_search", "xyzzy-nothing");
    browser.until_shows("#site_found", "Nothing found");
    browser.keys("\u{e00c}");
    browser.until("document.getElementById('site_found').hidden");
    browser.click(".turn .next");
    browser.until_shows("h1", "Stores");
}

#[test]
fn code_is_copied_without_prompts_and_output() {
    let server = Server::start(&[]);
    let browser = Browser::looking(WIDE);
    browser.go(&at(&server, "index.html"));
    browser.until("document.querySelector('.code button')");
    browser.js(
        "void Object.defineProperty(navigator, 'clipboard', { value: { writeText: (text) => { window.copied = text; } } })",
    );
    browser
        .js("document.querySelector('.language-console').closest('.code').querySelector('button').click()");
    browser.until("window.copied?.startsWith('windlass push greet')");
    let copied = browser.js("window.copied");
    assert!(!copied.as_str().unwrap().contains("job 1 pushed"), "{copied}");
    browser
        .until("[...document.querySelectorAll('.code button')].some((one) => one.textContent === 'Copied')");
}

#[test]
fn the_pages_fit_a_desk_and_a_phone_in_both_themes() {
    let server = Server::start(&[]);
    let browser = Browser::looking(WIDE);
    for (width, dark) in [(1400, false), (1400, true), (390, false), (390, true)] {
        browser.look(Look { width, dark, ..WIDE });
        for path in [
            "index",
            "operating",
            "reference/api",
            "reference/configuration",
            "dialects/bedrock",
            "clients/python",
        ] {
            browser.go(&at(&server, &format!("{path}.html")));
            browser.until("document.querySelector('.code button, .table')");
            assert_eq!(browser.js(FITS), true, "{path} at {width}");
            let theme = if dark { "dark" } else { "light" };
            browser.picture(&format!("docs-{}-{width}-{theme}", path.replace('/', "-")));
        }
        let wide = width > 1000;
        assert_eq!(browser.js("document.getElementById('site_contents').open"), wide);
        assert_eq!(
            browser.js("getComputedStyle(document.getElementById('site_menu')).display === 'none'"),
            wide
        );
    }
    browser.click("#site_menu");
    browser.until_shows("#site_chapters.open", "Metrics");
    browser.picture("docs-chapters-390-dark");
    let ink = "getComputedStyle(document.body).color";
    let dark = browser.js(ink);
    browser.click("#site_theme");
    assert_ne!(browser.js(ink), dark);
    browser.reload();
    assert_ne!(browser.js(ink), dark, "the choice is kept");
}

#[test]
fn the_exported_site_works_from_a_file_system() {
    let folder = tempfile::tempdir().unwrap();
    crate::server::Ran::of(crate::server::windlass().args(["docs", "--out"]).arg(folder.path())).ok();
    let browser = Browser::looking(WIDE);
    browser.go(&format!("file://{}/dialects/jq.html", folder.path().display()));
    browser.until_shows("h1", "JQ");
    browser.fill("#site_search", "metrics.series_max");
    browser.until_shows("#site_found", "Configuration");
    browser.keys("\u{e007}");
    browser.until("location.pathname.includes('/reference/configuration.html') || location.pathname.includes('/operating.html')");
}
