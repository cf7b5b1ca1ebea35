//! Documentation as a site: the Markdown documents of the repository and a reference generated from the code.
//! Served under `/docs/`, and written to a folder by `windlass docs --out`.
//!
//! | file | contents |
//! |---|---|
//! | `pages.rs` | the list of pages, pictures and files of the layout |
//! | `summary.rs` | the table of contents, `docs/SUMMARY.md` |
//! | `links.rs` | where a link of a document leads on the site |
//! | `render.rs`, `highlight.rs` | Markdown to HTML; colours of code |
//! | `layout.rs` | the page around the text |
//! | `search.rs` | the index of the search |
//! | `reference.rs` | pages generated from the command line, the configuration keys, the API and the metrics |
//!
//! A page is rendered when it is first asked for, and kept. All links are relative, so that the site works
//! under any path and from a file system.

mod highlight;
mod layout;
mod links;
mod pages;
mod reference;
mod render;
mod search;
mod summary;

#[cfg(test)]
mod tests;

use crate::static_files;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use axum::routing::any;
use pages::{FILES, PAGES, SEARCH_INDEX};
use std::io;
use std::path::Path;

pub(crate) fn router() -> Router {
    Router::new().route("/docs", any(to_folder)).route("/docs/", any(file)).route("/docs/{*path}", any(file))
}

async fn to_folder() -> Response<Body> {
    static_files::redirect_to("docs/")
}

async fn file(request: Request) -> Response<Body> {
    static_files::answer(&request, "/docs/", find, "not found; the documentation is at /docs/\n")
}

/// File of the site.
fn find(path: &str) -> Option<&'static [u8]> {
    if path == SEARCH_INDEX {
        return Some(search::index().as_bytes());
    }
    let page = PAGES.iter().find(|page| page.path() == path).map(|page| page.html().as_bytes());
    page.or_else(|| FILES.iter().find(|file| file.path == path).map(|file| file.bytes))
}

/// Paths of all files of the site.
fn paths() -> impl Iterator<Item = String> {
    let files = FILES.iter().map(|file| file.path.to_owned());
    PAGES.iter().map(pages::Page::path).chain(files).chain([SEARCH_INDEX.to_owned()])
}

/// Writes the site to a folder, which is created if it does not exist. Returns the number of pages.
pub(crate) fn export(folder: &Path) -> io::Result<usize> {
    for path in paths() {
        let to = folder.join(&path);
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(to, find(&path).unwrap_or_default())?;
    }
    Ok(PAGES.len())
}
