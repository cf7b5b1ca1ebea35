//! Index of the search: a script with every section of every page. A script, because a browser that shows the
//! site from a file system loads no other files.

use super::summary;
use serde_json::json;
use std::sync::OnceLock;

/// The call of a function of `docs.js` with a list of `[page, section, address, text]`.
pub(super) fn index() -> &'static str {
    static INDEX: OnceLock<String> = OnceLock::new();
    INDEX.get_or_init(|| {
        let pages =
            summary::chapters().into_iter().filter_map(|chapter| Some((chapter.title, chapter.page?)));
        let sections = pages.flat_map(|(title, page)| {
            page.article().sections.iter().map(move |section| {
                let hash = if section.id.is_empty() { "" } else { "#" };
                let address = format!("{}{hash}{}", page.path(), section.id);
                json!([title, section.title, address, section.text])
            })
        });
        format!("windlassSearch({});\n", json!(sections.collect::<Vec<_>>()))
    })
}
