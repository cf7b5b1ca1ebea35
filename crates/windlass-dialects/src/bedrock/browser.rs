//! Protection against requests that a web page makes a browser send. The protocol resembles HTTP: a page on
//! another site can send a request whose method is a command and whose headers are its parameters.

use super::commands::Command;
use super::errors::{self, StatusLine};
use super::wire::Request;
use crate::guard::Hosts;

const HTTP_VERBS: [&str; 9] =
    ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"];

/// Returns the refusal, after which the connection is closed: the following bytes may be the body of a form.
/// `hosts` lists the host names of a server without tokens; `None`: tokens are required, and a page has none.
pub fn refusal(request: &Request, hosts: Option<&Hosts>) -> Option<StatusLine> {
    // Health checks of load balancers, under any host name.
    if let Some((Command::IsFollower | Command::HandlingCommands, ..)) = Command::of(request) {
        return None;
    }
    if HTTP_VERBS.iter().any(|verb| verb.eq_ignore_ascii_case(request.verb())) {
        return Some(errors::UNRECOGNIZED);
    }
    if request.get("origin").is_some() {
        return Some(StatusLine("403 Forbidden: requests from web pages are not accepted".into()));
    }
    let host = request.get("host")?;
    let is_ours = hosts.is_none_or(|hosts| hosts.has(host));
    let why = "421 Misdirected: unknown name in the header host; remove the header, or add the name to \
         `hosts` in the configuration";
    (!is_ours).then(|| StatusLine(why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_could_send_is_refused_and_what_clients_send_is_not() {
        let hosts = Hosts::default();
        let check = |line: &str, headers: &[(&str, &str)]| {
            let refused = refusal(&Request::new(line, headers), Some(&hosts));
            refused.map_or_else(
                || "fine".to_owned(),
                |status| status.0.split(' ').next().unwrap_or("").to_owned(),
            )
        };
        let (ours, evil) = (("Host", "localhost:8888"), ("Host", "evil.example:8888"));
        let origin = ("Origin", "http://evil.example:8888");
        for (line, headers, expected) in [
            ("CreateJob", &[("name", "a")] as &[_], "fine"),
            ("CreateJob / HTTP/1.1", &[ours], "fine"),
            ("Query / HTTP/1.1", &[("query", "DELETE FROM jobs;"), evil], "421"),
            ("Query / HTTP/1.1", &[evil, origin], "403"),
            ("Query / HTTP/1.1", &[ours, origin], "403"),
            ("POST / HTTP/1.1", &[ours], "430"),
            ("get / HTTP/1.1", &[], "430"),
            ("GET /status/isLeader HTTP/1.1", &[], "430"),
            ("GET /status/isFollower HTTP/1.1", &[evil], "fine"),
            ("GET /status/handlingCommands HTTP/1.1", &[evil], "fine"),
            ("nonsense", &[], "fine"),
        ] {
            assert_eq!(check(line, headers), expected, "{line} {headers:?}");
        }
        let request = Request::new("Ping / HTTP/1.1", &[evil]);
        assert!(refusal(&request, None).is_none(), "where a token is needed");
    }
}
