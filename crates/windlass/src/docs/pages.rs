//! Pages and files of the site. Tests compare the lists with `docs/SUMMARY.md` and with the folders.

use super::render::Article;
use super::{layout, reference, render};
use std::borrow::Cow;
use std::sync::{LazyLock, OnceLock};

/// Page of the site.
pub(super) struct Page {
    /// Path in the repository, by which links between documents are resolved.
    pub source: &'static str,
    text: Text,
    article: OnceLock<Article>,
    html: OnceLock<String>,
}

/// Markdown of a page.
enum Text {
    Written(&'static str),
    Generated(fn() -> String),
}

/// File that is sent as it is.
pub(super) struct File {
    pub path: &'static str,
    pub bytes: &'static [u8],
}

/// Path of the index of the search, which is generated.
pub(super) const SEARCH_INDEX: &str = "search.js";

macro_rules! pages {
    ([$($source:literal),* $(,)?], [$($generated:literal => $make:path),* $(,)?]) => {
        LazyLock::new(|| vec![
            $(Page::new($source, Text::Written(include_str!(concat!("../../../../", $source)))),)*
            $(Page::new($generated, Text::Generated($make)),)*
        ])
    };
}

/// All pages. Their order on the site is that of `docs/SUMMARY.md`.
pub(super) static PAGES: LazyLock<Vec<Page>> = pages!(
    [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "benchmarks/README.md",
        "clients/python/README.md",
        "clients/python/frameworks.md",
        "clients/rust/README.md",
        "clients/typescript/README.md",
        "clients/typescript/frameworks.md",
        "docs/coming-from.md",
        "docs/comparison.md",
        "docs/concepts.md",
        "docs/dependencies.md",
        "docs/guide.md",
        "docs/install.md",
        "docs/operating.md",
        "docs/performance.md",
        "docs/platforms.md",
        "docs/push-from-sql.md",
        "docs/reliability.md",
        "docs/runners.md",
        "docs/security.md",
        "docs/signatures.md",
        "docs/stores.md",
        "docs/tutorial.md",
        "docs/ui.md",
        "docs/dialects/bedrock.md",
        "docs/dialects/jq.md",
        "docs/dialects/miniq.md",
        "docs/dialects/queuey.md",
        "docs/dialects/sidejob.md",
        "docs/migration/beanstalkd.md",
        "docs/migration/bedrock.md",
        "docs/migration/bullmq.md",
        "docs/migration/celery.md",
        "docs/migration/faktory.md",
        "docs/migration/sidejob.md",
        "docs/migration/sidekiq.md",
        "docs/adr/0001-sqlite-by-id-index-in-memory.md",
        "docs/adr/0002-what-a-shared-key-means.md",
        "docs/adr/0003-full-disk-and-failing-disk.md",
        "docs/adr/0004-wasi-by-hand-on-wasmtime.md",
        "docs/adr/0005-postgresql-lanes-and-one-clock.md",
        "docs/adr/0006-a-call-on-long-lived-jobs-is-one-step.md",
        "docs/adr/0007-whoever-is-alone-writes.md",
        "docs/adr/0008-jobs-with-ports-are-remembered.md",
        "docs/adr/0009-time-goes-on-whatever-the-clock-says.md",
        "docs/adr/0010-what-holds-a-handler.md",
        "docs/adr/0011-the-engine-has-a-transaction.md",
        "docs/adr/0012-a-token-for-some-queues.md",
        "docs/adr/0013-a-dialect-is-one-value.md",
        "docs/adr/0014-the-journal-has-its-own-files-and-writer.md",
        "docs/adr/0015-the-position-in-the-journal-is-in-the-store.md",
        "docs/adr/0016-children-are-pushed-by-a-loop-of-their-own.md",
        "docs/adr/0017-one-pool-for-outgoing-calls.md",
        "docs/adr/0018-the-size-of-bedrocks-query.md",
        "docs/adr/0019-deletion-is-undone-from-memory.md",
        "docs/adr/0020-turns-are-kept-with-the-job.md",
        "docs/adr/0021-the-audit-log-is-written-where-calls-are-admitted.md",
        "docs/adr/0022-steps-are-part-of-the-job.md",
        "docs/adr/0023-otlp-as-json-by-hand.md",
    ],
    [
        "docs/reference/command-line.md" => reference::command_line::page,
        "docs/reference/configuration.md" => reference::configuration::page,
        "docs/reference/api.md" => reference::api::page,
        "docs/reference/metrics.md" => reference::metrics::page,
    ]
);

macro_rules! files {
    ($($path:literal from $source:literal),* $(,)?) => {
        &[$(File { path: $path, bytes: include_bytes!(concat!("../../../../", $source)) }),*]
    };
}

/// Files of the layout, and pictures.
pub(super) static FILES: &[File] = files![
    "theme.css" from "web/theme.css",
    "icon.svg" from "web/icon.svg",
    "style.css" from "web/docs/style.css",
    "docs.js" from "web/docs/docs.js",
    "images/cast.svg" from "docs/images/cast.svg",
    "images/failures.png" from "docs/images/failures.png",
    "images/job.png" from "docs/images/job.png",
    "images/overview.png" from "docs/images/overview.png",
];

impl Page {
    fn new(source: &'static str, text: Text) -> Page {
        Page { source, text, article: OnceLock::new(), html: OnceLock::new() }
    }

    pub(super) fn find(source: &str) -> Option<&'static Page> {
        PAGES.iter().find(|page| page.source == source)
    }

    /// Path on the site: `docs/guide.md` becomes `guide.html`, `clients/python/README.md` becomes
    /// `clients/python.html`, and documents in the root of the repository are in `project/`.
    pub(super) fn path(&self) -> String {
        if self.source == "README.md" {
            return "index.html".to_owned();
        }
        let stem = self.source.strip_suffix("/README.md").or(self.source.strip_suffix(".md"));
        let stem = stem.unwrap_or(self.source);
        match stem.strip_prefix("docs/") {
            Some(stem) => format!("{stem}.html"),
            None if stem.contains('/') => format!("{stem}.html"),
            None => format!("project/{}.html", stem.to_ascii_lowercase()),
        }
    }

    /// Relative path from this page to the root of the site: empty, or `../`.
    pub(super) fn to_root(&self) -> String {
        "../".repeat(self.path().matches('/').count())
    }

    pub(super) fn markdown(&self) -> Cow<'static, str> {
        match self.text {
            Text::Written(text) => text.into(),
            Text::Generated(make) => make().into(),
        }
    }

    pub(super) fn article(&'static self) -> &'static Article {
        self.article.get_or_init(|| render::article(self, &self.markdown()))
    }

    /// The whole page.
    pub(super) fn html(&'static self) -> &'static str {
        self.html.get_or_init(|| layout::html(self))
    }
}
