//! The documentation as a site: exported by the command, served by the server, without a dead link.

use crate::server::{Ran, Server, exchange, request, windlass};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Files of the site that the command writes, by path.
fn exported(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let ran = Ran::of(windlass().args(["docs", "--out"]).arg(folder));
    assert!(ran.code == 0 && ran.stderr.contains("index.html"), "{ran:?}");
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(one) = folders.pop() {
        for path in std::fs::read_dir(one).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                    files.insert(name, std::fs::read(&path).unwrap());
                }
            }
        }
    }
    files
}

/// Values of an attribute in a page.
fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let opening = format!(" {name}=\"");
    html.split(opening.as_str()).skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
}

/// Path of a relative link.
fn resolved(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => assert!(parts.pop().is_some(), "{link} of {from} leaves the site"),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn every_link_and_every_anchor_of_the_site_leads_somewhere() {
    let folder = tempfile::tempdir().unwrap();
    let files = exported(folder.path());
    let text = |path: &str| std::str::from_utf8(&files[path]).unwrap();
    let pages: Vec<&String> = files.keys().filter(|path| path.ends_with(".html")).collect();
    assert!(pages.len() > 40, "{} pages", pages.len());
    let mut anchors: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for page in &pages {
        let ids = attributes(text(page), "id");
        let unique: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(unique.len(), ids.len(), "{page} has an id twice: {ids:?}");
        anchors.insert(page, unique);
    }
    let check = |from: &str, link: &str| {
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if path.is_empty() { from.to_owned() } else { resolved(from, path) };
        assert!(files.contains_key(&target), "{from}: {link} is dead");
        let known = anchors.get(target.as_str());
        assert!(
            anchor.is_empty() || known.is_some_and(|known| known.contains(anchor)),
            "{from}: {target} has no section #{anchor}"
        );
    };
    let mut count = 0;
    for page in &pages {
        let links = attributes(text(page), "href").into_iter().chain(attributes(text(page), "src"));
        for link in links.filter(|link| !link.starts_with("https://")) {
            assert!(!link.starts_with('/') && !link.contains(':'), "{page}: {link} is not relative");
            check(page, link);
            count += 1;
        }
    }
    assert!(count > 2_000, "{count} links");
    let index =
        text("search.js").strip_prefix("windlassSearch(").and_then(|index| index.strip_suffix(");\n"));
    let index: Vec<[String; 4]> = serde_json::from_str(index.unwrap()).unwrap();
    for [_, _, address, _] in &index {
        check("search.js", address);
    }
    assert!(index.len() > 300, "{} sections", index.len());
}

#[test]
fn the_server_serves_the_same_site_without_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let files = exported(folder.path());
    let token = Ran::of(windlass().args(["token", "--role", "admin", "--json"])).json();
    let server = Server::start(&["--set", &format!("auth.tokens={}", token["config"].as_str().unwrap())]);
    for (path, bytes) in files.iter().filter(|(path, _)| !path.ends_with(".png")) {
        let (status, body) = request(server.http, "GET", &format!("/docs/{path}"), "").unwrap();
        assert!(status == 200 && body.as_bytes() == bytes, "{path}: {status}");
    }
    let get =
        |method: &str, path: &str, headers: &str| exchange(server.http, method, path, headers, "").unwrap();
    let (head, body) = get("GET", "/docs/", "");
    assert_eq!(body.as_bytes(), files["index.html"]);
    let head = head.to_ascii_lowercase();
    for header in [
        "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cache-control: no-cache",
        "content-type: text/html; charset=utf-8",
    ] {
        assert!(head.contains(header), "{header} is not in {head}");
    }
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let (head, body) = get("GET", "/docs/", &format!("If-None-Match: {tag}\r\n"));
    assert!(head.starts_with("HTTP/1.1 304") && body.is_empty(), "{head}");
    let (head, body) = get("HEAD", "/docs/guide.html", "");
    assert!(head.starts_with("HTTP/1.1 200") && body.is_empty(), "{head}");
    let (head, _) = get("GET", "/docs", "");
    assert!(head.starts_with("HTTP/1.1 308") && head.contains("location: docs/"), "{head}");
    assert!(get("GET", "/docs/nowhere.html", "").0.starts_with("HTTP/1.1 404"));
    assert!(get("POST", "/docs/index.html", "").0.starts_with("HTTP/1.1 405"));
    let secret = format!("Authorization: Bearer {}\r\n", token["token"].as_str().unwrap());
    let (_, metrics) = get("GET", "/metrics", &secret);
    assert!(metrics.contains(r#"windlass_http_requests_total{route="/docs/*",method="GET",status="2xx"}"#));
}

#[test]
fn the_command_says_where_the_documentation_is() {
    let server = Server::start(&[]);
    assert_eq!(server.run(&["docs"]).ok(), format!("{}/docs/", server.url()));
    let ran = Ran::of(windlass().args(["docs", "--out", "/proc/none"]));
    assert!(ran.code == 1 && ran.stderr.contains("cannot write the documentation to /proc/none"), "{ran:?}");
}

/// Names in the first column of the reference of the metrics.
fn described() -> BTreeSet<String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(path).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn the_metrics_of_a_server_are_those_of_the_reference() {
    let server = Server::start(&[]);
    let page = request(server.http, "GET", "/metrics", "").unwrap().1;
    let served = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    assert_eq!(served.map(str::to_owned).collect::<BTreeSet<_>>(), described());
}
