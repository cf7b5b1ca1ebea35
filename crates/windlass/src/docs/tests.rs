mod contents;
mod reference;

use super::links::{self, Target};
use super::pages::Page;
use super::render::{article, slug};
use super::*;
use std::collections::BTreeSet;
use std::path::PathBuf;

fn workspace() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// HTML of a text on a page of a folder.
fn html(markdown: &str) -> String {
    article(Page::find("docs/dialects/jq.md").unwrap(), markdown).html
}

#[track_caller]
fn check(markdown: &str, expected: &str) {
    assert_eq!(html(markdown).trim(), expected, "{markdown}");
}

#[test]
fn every_page_renders_with_a_title_and_nothing_inline() {
    for page in PAGES.iter() {
        let whole = page.html();
        let source = page.source;
        assert_eq!(whole.matches("<h1").count(), 1, "{source} has one title");
        assert!(!page.article().title.is_empty(), "{source}");
        assert!(whole.len() > page.markdown().len() / 2, "{source} is whole");
        assert_eq!(whole.matches("<script").count(), 1, "{source} has the script of the layout only");
        for word in [" style=", " onclick=", "<style", "javascript:"] {
            let code = whole.matches(word).count();
            assert_eq!(code, 0, "{source} has {word}, which the policy refuses");
        }
    }
}

#[test]
fn links_between_documents_become_links_of_the_site() {
    check("[a](../concepts.md#states)", "<p><a href=\"../concepts.html#states\">a</a></p>");
    check("[concepts.md](../concepts.md)", "<p><a href=\"../concepts.html\">Concepts</a></p>");
    check("[`x`](../../README.md)", "<p><a href=\"../index.html\"><code>x</code></a></p>");
    check("[a](../../clients/python/README.md)", "<p><a href=\"../clients/python.html\">a</a></p>");
    check("[a](../../SECURITY.md)", "<p><a href=\"../project/security.html\">a</a></p>");
    check("[a](../security.md)", "<p><a href=\"../security.html\">a</a></p>");
    check("[a](../reference/api.md)", "<p><a href=\"../reference/api.html\">a</a></p>");
    check("[a](#here)", "<p><a href=\"#here\">a</a></p>");
    check("[a](https://a.example/b.md)", "<p><a href=\"https://a.example/b.md\">a</a></p>");
    check("[a](../../LICENSE-MIT)", "<p>a</p>");
    check("![a](../images/job.png)", "<p><img src=\"../images/job.png\" alt=\"a\" /></p>");
}

#[test]
fn html_of_a_document_gets_the_links_of_the_site_and_loses_its_comments() {
    check("<!-- note -->\n\na", "<p>a</p>");
    check("<img alt=\"b\" src=\"../images/job.png\">", "<img alt=\"b\" src=\"../images/job.png\">");
    check("a <a href=\"../ui.md\">b</a>", "<p>a <a href=\"../ui.html\">b</a></p>");
}

#[test]
fn anchors_are_those_of_github() {
    for (title, anchor) in [
        ("Backup, restore, check and compact", "backup-restore-check-and-compact"),
        ("Service discovery (mDNS)", "service-discovery-mdns"),
        ("`windlass push`", "windlass-push"),
        ("GET /api/v1/jobs/{id}", "get-apiv1jobsid"),
        ("wait_ms – and more", "wait_ms--and-more"),
    ] {
        assert_eq!(slug(&title.replace('`', "")), anchor);
    }
    let page = article(Page::find("docs/ui.md").unwrap(), "# A\n\n## B\n\ntext *c* `d`\n\n## B\n\n### B\n");
    let ids: Vec<&str> = page.headings.iter().map(|heading| heading.id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "b-1", "b-2"]);
    assert_eq!((page.sections[1].id.as_str(), page.sections[1].text.as_str()), ("b", "text c d"));
    assert!(page.html.contains("<h2 id=\"b-1\">B<a class=\"anchor\" href=\"#b-1\""), "{}", page.html);
}

#[test]
fn tables_are_aligned_by_classes() {
    let table = html("| a | b |\n|---|--:|\n| 1 | 2 |\n");
    assert!(table.starts_with("<div class=\"table\"><table>"), "{table}");
    assert!(table.contains("<th>a</th><th class=\"right\">b</th>"), "{table}");
    assert!(table.contains("<td>1</td><td class=\"right\">2</td>"), "{table}");
}

#[test]
fn code_has_a_language_and_colours() {
    let code = |language: &str, text: &str| {
        let html = html(&format!("```{language}\n{text}\n```\n"));
        let inner = html.split_once("><").unwrap().1.rsplit_once("</code>").unwrap().0.to_owned();
        inner.split_once("<code").unwrap().1.to_owned()
    };
    assert_eq!(code("text", "a < b"), " class=\"language-text\">a &lt; b\n");
    assert_eq!(code("", "a"), ">a\n");
    assert_eq!(
        code("sh", "a 'b#' # c"),
        " class=\"language-sh\">a <span class=\"s\">'b#'</span> <span class=\"c\"># c</span>\n"
    );
    assert_eq!(
        code("rust,no_run", "# hidden\nlet a = &'x \"y\";"),
        " class=\"language-rust\"><span class=\"k\">let</span> a = &amp;'x <span class=\"s\">&quot;y&quot;</span>;\n"
    );
    assert_eq!(
        code("console", "$ a \\\n  b\nsaid"),
        " class=\"language-console\"><span class=\"p\">$ </span><span class=\"cmd\">a \\\n  b</span>\n\
         <span class=\"o\">said</span>\n"
    );
}

#[test]
fn a_link_to_a_file_that_is_not_on_the_site_names_a_file_of_the_repository() {
    for page in PAGES.iter() {
        let markdown = page.markdown();
        for event in render::parser(&markdown) {
            let pulldown_cmark::Event::Start(pulldown_cmark::Tag::Link { dest_url, .. }) = event else {
                continue;
            };
            let path = links::resolve(page.source, dest_url.split('#').next().unwrap());
            let is_known = !matches!(links::target(page, &dest_url), Target::Repository);
            assert!(is_known || workspace().join(&path).exists(), "{} links to {path}", page.source);
        }
    }
}

#[test]
fn the_files_of_the_layout_ask_for_nothing_from_elsewhere_and_write_no_markup() {
    for file in FILES.iter().filter(|file| file.path.ends_with(".js") || file.path.ends_with(".css")) {
        let text = std::str::from_utf8(file.bytes).unwrap();
        for word in ["https://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!text.contains(word), "{} has {word}", file.path);
        }
    }
}

#[test]
fn every_path_is_there_once_and_has_a_type() {
    let all: Vec<String> = paths().collect();
    let unique: BTreeSet<&String> = all.iter().collect();
    assert_eq!(unique.len(), all.len());
    for path in &all {
        assert!(find(path).is_some_and(|bytes| !bytes.is_empty()), "{path}");
        assert_ne!(static_files::content_type(path), "application/octet-stream", "{path}");
    }
    assert!(find("nowhere.html").is_none() && find("docs/guide.md").is_none());
}
