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
    let allowed = ["jobs.example.org".to_owned()];
    let check = |host: &str| check_host(&headers(&[("host", host)]), &allowed).is_ok();
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
    assert!(check_host(&headers(&[]), &allowed).is_ok());
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
        check(&parts, Access::From(Role::Admin), &tokens, &Hosts::default(), Timestamp::EPOCH).unwrap();
    assert_eq!((caller.tenant.as_str(), caller.role), ("default", Role::Admin));
}
