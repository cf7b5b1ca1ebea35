use super::*;
use ::http::{HeaderValue, Request};

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(key, value)| (HeaderName::from_static(key), HeaderValue::from_str(value).unwrap()))
        .collect()
}

#[test]
fn only_our_own_names_are_accepted_as_host() {
    let hosts = Hosts { allowed: vec!["jobs.example.org".to_owned()], ..Hosts::default() };
    let check = |host: &str| check_host(&headers(&[("host", host)]), &hosts).is_ok();
    for ours in [
        "localhost",
        "LOCALHOST:7373",
        "127.0.0.1",
        "127.0.0.1:7373",
        "127.1.2.3",
        "[::1]:7373",
        "[::1]",
        "x.localhost",
        "jobs.example.org:80",
    ] {
        assert!(check(ours), "{ours}");
    }
    for foreign in [
        "evil.example",
        "localhost.evil.example",
        "10.0.0.1",
        "127.0.0.1.evil.example:80",
        "",
        "[::2]",
        "evil:80:127.0.0.1",
    ] {
        assert!(!check(foreign), "{foreign}");
    }
    assert!(check_host(&headers(&[]), &hosts).is_ok());
}

#[test]
fn a_server_that_others_reach_takes_addresses_and_names_that_nobody_can_register() {
    let hosts = Hosts { loopback_only: false, allowed: vec!["jobs.example.org".to_owned()] };
    for ours in
        ["10.0.0.1:7373", "[fe80::1]:7373", "8.8.8.8", "windlass:7373", "box.local", "host.docker.internal"]
    {
        assert!(hosts.has(ours), "{ours}");
    }
    for ours in ["localhost", "127.0.0.1:7373", "JOBS.example.org:80", "a.lan", "b.home.arpa:1"] {
        assert!(hosts.has(ours), "{ours}");
    }
    for foreign in
        ["evil.example", "evil.example:7373", "", "10.0.0.1.evil.example", "local.evil", "evil.example."]
    {
        assert!(!hosts.has(foreign), "{foreign}");
    }
}

#[test]
fn a_get_that_changes_something_is_not_taken_from_other_pages() {
    let check = |pairs: &[(&'static str, &str)], changes_state| {
        let (mut parts, ()) = Request::get("/quit").body(()).unwrap().into_parts();
        parts.headers = headers(pairs);
        let access = (Access::From(Role::Admin), changes_state);
        super::check(&parts, access, &Tokens::open(), &Hosts::default(), Timestamp::EPOCH).is_ok()
    };
    let host = ("host", "localhost:1");
    let browser = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)");
    for fine in [
        &[host] as &[_],
        &[host, ("user-agent", "curl/8.0")],
        // PowerShell.
        &[host, browser],
        &[host, browser, ("sec-fetch-site", "none")],
        &[host, browser, ("sec-fetch-site", "same-origin"), ("origin", "http://localhost:1")],
    ] {
        assert!(check(fine, true), "{fine:?}");
    }
    for foreign in [
        &[host, ("origin", "http://evil.example")] as &[_],
        &[host, ("sec-fetch-site", "cross-site")],
        &[host, browser, ("sec-fetch-site", "same-site")],
        // An image on a page, over plain HTTP.
        &[host, browser, ("accept-language", "en")],
    ] {
        assert!(!check(foreign, true), "{foreign:?}");
        assert!(check(foreign, false), "a GET that only looks: {foreign:?}");
    }
}

#[test]
fn other_web_sites_cannot_change_anything() {
    let check = |pairs: &[(&'static str, &str)]| check_origin(&headers(pairs)).is_ok();
    assert!(check(&[("host", "localhost:1")]), "not a browser");
    assert!(check(&[("host", "localhost:1"), ("origin", "http://localhost:1")]));
    assert!(check(&[("host", "h"), ("origin", "https://h"), ("sec-fetch-site", "same-origin")]));
    assert!(!check(&[("host", "localhost:1"), ("origin", "http://localhost:2")]));
    assert!(!check(&[("host", "localhost:1"), ("origin", "null")]));
    assert!(!check(&[("host", "localhost:1"), ("origin", "http://evil.example")]));
    assert!(!check(&[("host", "localhost:1"), ("sec-fetch-site", "cross-site")]));
    assert!(!check(&[("origin", "http://evil.example")]));
}

#[test]
fn compressed_bodies_are_refused() {
    assert!(check_encoding(&headers(&[])).is_ok());
    assert!(check_encoding(&headers(&[("content-encoding", "identity")])).is_ok());
    assert_eq!(check_encoding(&headers(&[("content-encoding", "gzip")])), Err(Refusal::Compressed));
}

#[test]
fn an_open_server_makes_everyone_admin_of_the_default_tenant() {
    let (parts, ()) = Request::post("/x").body(()).unwrap().into_parts();
    let tokens = Tokens::open();
    let caller =
        check(&parts, (Access::From(Role::Admin), false), &tokens, &Hosts::default(), Timestamp::EPOCH)
            .unwrap();
    assert_eq!((caller.tenant.as_str(), caller.role), ("default", Role::Admin));
}
