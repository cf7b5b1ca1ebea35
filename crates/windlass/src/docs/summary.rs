//! Table of contents, read from `docs/SUMMARY.md` in mdBook's format: headings are parts, list items chapters.

use super::links;
use super::pages::Page;
use std::sync::OnceLock;

const TEXT: &str = include_str!("../../../../docs/SUMMARY.md");

/// Path of the table of contents, by which its links are resolved.
pub(super) const SOURCE: &str = "docs/SUMMARY.md";

/// Part of the table of contents. The first one has no title.
#[derive(Default)]
pub(super) struct Part {
    pub title: &'static str,
    pub chapters: Vec<Chapter>,
}

pub(super) struct Chapter {
    pub title: &'static str,
    /// `None` for a chapter that only holds others.
    pub page: Option<&'static Page>,
    pub children: Vec<Chapter>,
}

pub(super) fn parts() -> &'static [Part] {
    static PARTS: OnceLock<Vec<Part>> = OnceLock::new();
    PARTS.get_or_init(|| parse(TEXT))
}

/// Chapters in the order of reading, with those inside of others.
pub(super) fn chapters() -> Vec<&'static Chapter> {
    let all = parts().iter().flat_map(|part| &part.chapters);
    all.flat_map(|chapter| [chapter].into_iter().chain(&chapter.children)).collect()
}

/// Title of a page in the table of contents.
pub(super) fn title(page: &Page) -> Option<&'static str> {
    let of_page = |chapter: &&Chapter| chapter.page.is_some_and(|found| found.source == page.source);
    chapters().into_iter().find(of_page).map(|chapter| chapter.title)
}

/// Pages before and after this one.
pub(super) fn neighbours(page: &Page) -> [Option<&'static Chapter>; 2] {
    let all: Vec<&Chapter> = chapters().into_iter().filter(|chapter| chapter.page.is_some()).collect();
    let is_here = |chapter: &&Chapter| chapter.page.is_some_and(|found| found.source == page.source);
    match all.iter().position(is_here) {
        Some(at) => [at.checked_sub(1).map(|before| all[before]), all.get(at + 1).copied()],
        None => [None, None],
    }
}

fn parse(text: &'static str) -> Vec<Part> {
    let mut parts = vec![Part::default()];
    // The first heading is the title of the file.
    for line in text.lines().skip(1) {
        if let Some(title) = line.strip_prefix("# ") {
            parts.push(Part { title, chapters: Vec::new() });
            continue;
        }
        let (Some(chapter), Some(part)) = (chapter(line), parts.last_mut()) else { continue };
        match part.chapters.last_mut().filter(|_| line.starts_with(' ')) {
            Some(parent) => parent.children.push(chapter),
            None => part.chapters.push(chapter),
        }
    }
    parts
}

/// Chapter of a line such as `- [Title](file.md)`.
fn chapter(line: &'static str) -> Option<Chapter> {
    let (title, link) = line.trim_start_matches([' ', '-']).strip_prefix('[')?.split_once("](")?;
    let link = link.strip_suffix(')')?;
    let page = Page::find(&links::resolve(SOURCE, link));
    Some(Chapter { title, page, children: Vec::new() })
}
