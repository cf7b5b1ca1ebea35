//! The lists of pages and files are complete.

use super::workspace;
use crate::docs::pages::{FILES, PAGES};
use crate::docs::summary;
use std::collections::BTreeSet;
use std::path::Path;

/// Paths of the files in a folder and below.
fn files_in(folder: &Path, prefix: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
        match entry.path().is_dir() {
            true => found.extend(files_in(&entry.path(), &format!("{name}/"))),
            false => drop(found.insert(name)),
        }
    }
    found
}

#[test]
fn every_document_of_the_folder_is_a_page() {
    let mut there = files_in(&workspace().join("docs"), "docs/");
    there.retain(|path| path.ends_with(".md") && path != summary::SOURCE);
    let pages = PAGES.iter().map(|page| page.source.to_owned());
    let listed: BTreeSet<String> = pages.filter(|source| source.starts_with("docs/")).collect();
    let differs: Vec<&String> = listed.symmetric_difference(&there).collect();
    assert!(differs.is_empty(), "only in PAGES of docs/pages.rs, or only in the folder docs: {differs:?}");
}

#[test]
fn the_table_of_contents_has_every_page_once() {
    let chapters = summary::chapters();
    for chapter in &chapters {
        let is_known = chapter.page.is_some() || !chapter.children.is_empty();
        assert!(is_known, "{} in docs/SUMMARY.md links to a file that is not a page", chapter.title);
    }
    let mut found: Vec<&str> = chapters.iter().filter_map(|chapter| Some(chapter.page?.source)).collect();
    found.sort_unstable();
    let mut pages: Vec<&str> = PAGES.iter().map(|page| page.source).collect();
    pages.sort_unstable();
    assert_eq!(found, pages, "docs/SUMMARY.md and PAGES in docs/pages.rs");
}

#[test]
fn every_picture_and_every_file_of_the_layout_is_served() {
    let mut there = files_in(&workspace().join("web/docs"), "");
    // The programs that draw pictures are beside them.
    let pictures = files_in(&workspace().join("docs/images"), "images/");
    there.extend(pictures.into_iter().filter(|path| !path.ends_with(".py")));
    there.extend(["theme.css", "icon.svg"].map(str::to_owned));
    let served: BTreeSet<String> = FILES.iter().map(|file| file.path.to_owned()).collect();
    assert_eq!(served, there);
}

#[test]
fn the_first_page_comes_first_and_neighbours_know_each_other() {
    let all: Vec<_> = summary::chapters().into_iter().filter_map(|chapter| chapter.page).collect();
    assert_eq!(all[0].path(), "index.html");
    assert!(summary::neighbours(all[0])[0].is_none());
    for pair in all.windows(2) {
        let after = summary::neighbours(pair[0])[1].unwrap().page.unwrap();
        let before = summary::neighbours(pair[1])[0].unwrap().page.unwrap();
        assert_eq!((after.source, before.source), (pair[1].source, pair[0].source));
    }
}
