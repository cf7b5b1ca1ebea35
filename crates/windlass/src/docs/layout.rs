//! The page around a text: chapters, contents of the page, previous and next page.

use super::pages::{Page, SEARCH_INDEX};
use super::render::{Article, escape};
use super::summary::{self, Chapter};
use pulldown_cmark::HeadingLevel;

pub(super) fn html(page: &'static Page) -> String {
    let article = page.article();
    let root = page.to_root();
    let title = match page.path().as_str() {
        "index.html" => "Windlass: documentation".to_owned(),
        _ => format!("{} · Windlass", escape(&article.title)),
    };
    let (chapters, contents, turn) = (chapters(page), contents(article), turn(page));
    let version = env!("CARGO_PKG_VERSION");
    let text = &article.html;
    format!(
        "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<title>{title}</title>
<link rel=\"icon\" href=\"{root}icon.svg\" type=\"image/svg+xml\">
<link rel=\"stylesheet\" href=\"{root}theme.css\">
<link rel=\"stylesheet\" href=\"{root}style.css\">
<script src=\"{root}docs.js\" data-root=\"{root}\" data-index=\"{SEARCH_INDEX}\"></script>
</head>
<body>
<a class=\"skip\" href=\"#site_main\">Skip to content</a>
<header class=\"top\">
<button id=\"site_menu\" class=\"bare\" type=\"button\" aria-controls=\"site_chapters\" aria-expanded=\"false\" aria-label=\"Chapters\">☰</button>
<a class=\"brand\" href=\"{root}index.html\"><img src=\"{root}icon.svg\" alt=\"\">Windlass</a>
<div id=\"site_find\" role=\"search\"><input id=\"site_search\" type=\"search\" placeholder=\"Search\" autocomplete=\"off\" aria-label=\"Search the documentation\" role=\"combobox\" aria-expanded=\"false\" aria-controls=\"site_found\"><kbd>/</kbd>
<ul id=\"site_found\" role=\"listbox\" aria-label=\"Search results\" hidden></ul></div>
<button id=\"site_theme\" class=\"bare\" type=\"button\" title=\"Light or dark theme\" aria-label=\"Light or dark theme\">◐</button>
</header>
<div class=\"frame\">
<nav id=\"site_chapters\" aria-label=\"Chapters\">
{chapters}</nav>
<main id=\"site_main\" tabindex=\"-1\">
{contents}<article>
{text}</article>
{turn}<footer>Windlass {version}</footer>
</main>
</div>
</body>
</html>
"
    )
}

fn chapters(here: &Page) -> String {
    let mut html = String::new();
    for part in summary::parts() {
        if !part.title.is_empty() {
            html.push_str(&format!("<h2>{}</h2>\n", escape(part.title)));
        }
        html.push_str("<ul>\n");
        for chapter in &part.chapters {
            html.push_str(&format!("<li>{}{}</li>\n", entry(here, chapter), children(here, chapter)));
        }
        html.push_str("</ul>\n");
    }
    html
}

/// Chapters inside of another: folded, unless the page is one of them.
fn children(here: &Page, parent: &Chapter) -> String {
    if parent.children.is_empty() {
        return String::new();
    }
    let is_here = |chapter: &Chapter| chapter.page.is_some_and(|page| page.source == here.source);
    let items: String =
        parent.children.iter().map(|chapter| format!("<li>{}</li>\n", entry(here, chapter))).collect();
    match parent.page {
        Some(_) => format!("<ul>\n{items}</ul>"),
        None => {
            let open = if parent.children.iter().any(is_here) { " open" } else { "" };
            format!("<details{open}><summary>{}</summary><ul>\n{items}</ul></details>", escape(parent.title))
        }
    }
}

fn entry(here: &Page, chapter: &Chapter) -> String {
    let Some(page) = chapter.page else { return String::new() };
    let current = if page.source == here.source { " aria-current=\"page\"" } else { "" };
    format!("<a href=\"{}{}\"{current}>{}</a>", here.to_root(), page.path(), escape(chapter.title))
}

/// Contents of the page: its headings of the second and third level.
fn contents(article: &Article) -> String {
    let shown = |level| matches!(level, HeadingLevel::H2 | HeadingLevel::H3);
    let headings: Vec<_> = article.headings.iter().filter(|heading| shown(heading.level)).collect();
    if headings.len() < 2 {
        return String::new();
    }
    let items: String = headings
        .iter()
        .map(|heading| {
            let (level, id, text) = (heading.level, escape(&heading.id), escape(&heading.text));
            format!("<li class=\"{level}\"><a href=\"#{id}\">{text}</a></li>\n")
        })
        .collect();
    format!(
        "<details id=\"site_contents\" open><summary>On this page</summary><ul>\n{items}</ul></details>\n"
    )
}

fn turn(here: &Page) -> String {
    let link = |chapter: &Chapter, class: &str, word: &str| {
        let path = chapter.page.map(Page::path).unwrap_or_default();
        let title = escape(chapter.title);
        format!(
            "<a class=\"{class}\" rel=\"{class}\" href=\"{}{path}\"><small>{word}</small>{title}</a>\n",
            here.to_root()
        )
    };
    let [before, after] = summary::neighbours(here);
    let before = before.map(|chapter| link(chapter, "prev", "Previous")).unwrap_or_default();
    let after = after.map(|chapter| link(chapter, "next", "Next")).unwrap_or_default();
    format!("<nav class=\"turn\" aria-label=\"Previous and next page\">\n{before}{after}</nav>\n")
}
