//! Links of documents, and where they lead on the site.

use super::pages::{FILES, Page};

/// Destination of a link.
pub(super) enum Target {
    /// Page, and the part of the link from `#` on.
    Page(&'static Page, String),
    /// Place on the same page, other site: the link stays as it is.
    Unchanged,
    /// Picture, by its path on the site.
    File(&'static str),
    /// File or folder of the repository that is not on the site.
    Repository,
}

pub(super) fn target(from: &Page, link: &str) -> Target {
    if link.starts_with('#') || is_external(link) {
        return Target::Unchanged;
    }
    let (path, fragment) =
        link.split_once('#').map_or((link, String::new()), |(path, fragment)| (path, format!("#{fragment}")));
    let path = resolve(from.source, path);
    // The folder of the documents stands for the site.
    let page = if path == "docs" { "README.md" } else { &path };
    let file = || path.strip_prefix("docs/").and_then(|path| FILES.iter().find(|file| file.path == path));
    match Page::find(page) {
        Some(page) => Target::Page(page, fragment),
        None => file().map_or_else(|| Target::Repository, |file| Target::File(file.path)),
    }
}

/// Link of the site, relative to the page; `None`: the site does not have the target.
pub(super) fn href(from: &Page, link: &str) -> Option<String> {
    match target(from, link) {
        Target::Page(page, fragment) => Some(format!("{}{}{fragment}", from.to_root(), page.path())),
        Target::File(path) => Some(format!("{}{path}", from.to_root())),
        Target::Unchanged => Some(link.to_owned()),
        Target::Repository => None,
    }
}

pub(super) fn is_external(link: &str) -> bool {
    ["https://", "http://", "mailto:"].iter().any(|scheme| link.starts_with(scheme))
}

/// Path in the repository of a link in this document.
pub(super) fn resolve(document: &str, link: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
