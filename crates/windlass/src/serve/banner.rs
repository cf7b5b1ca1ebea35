//! First lines on standard output: the listening addresses, the web UI and a first command to try.

use crate::config::{Config, LogForm};
use crate::output::{self, Colour, Style};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Prints the banner, as lines of text or as JSON lines like the log. Write errors are ignored.
pub(super) fn print(config: &Config, listening: &[(&'static str, SocketAddr)]) {
    let banner = Banner::new(config, listening);
    match config.log {
        LogForm::Text => banner.lines(Style::of_stdout()).iter().for_each(|line| {
            let _ = output::say(line);
        }),
        LogForm::Json => banner.objects(&now()).iter().for_each(|object| {
            let _ = output::say(object.to_string());
        }),
    }
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

struct Banner<'a> {
    listening: &'a [(&'static str, SocketAddr)],
    /// URL of the HTTP API as a program on this machine reaches it.
    url: Option<String>,
    /// True if the command line finds the server without `--server`.
    is_usual: bool,
    /// Where jobs are stored.
    kept: String,
}

impl<'a> Banner<'a> {
    fn new(config: &Config, listening: &'a [(&'static str, SocketAddr)]) -> Banner<'a> {
        let http = listening.iter().find(|(what, _)| *what == "http").map(|(_, address)| *address);
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, 7373));
        let kept = match config.store.as_str() {
            "memory:" => "in memory only; they are lost when the server stops".to_string(),
            store => format!("in {}", output::without_password(store.trim_start_matches("sqlite:"))),
        };
        let at = http.map(reachable);
        Banner {
            listening,
            url: at.map(|at| format!("{scheme}://{at}")),
            is_usual: at == Some(usual) && config.tls.is_none(),
            kept,
        }
    }

    /// Lines for scripts, one per listener, then those for people.
    fn lines(&self, style: Style) -> Vec<String> {
        let listening = self.listening.iter().map(|(what, address)| format!("listening {what} {address}"));
        let mut lines: Vec<String> = listening.collect();
        lines.push(format!("windlass {} stores jobs {}", env!("CARGO_PKG_VERSION"), self.kept));
        let Some(url) = &self.url else { return lines };
        let at = if self.is_usual { String::new() } else { format!(" --server {url}") };
        let first = format!("windlass push hello '{{\"to\":\"you\"}}'{at}");
        let then = format!("windlass work hello{at} -- cat");
        lines.push(format!("web UI    {}", style.paint(Colour::Bold, &format!("{url}/ui/"))));
        lines.push(format!("try       {}", style.paint(Colour::Bold, &first)));
        lines.push(format!("and then  {}", style.paint(Colour::Bold, &then)));
        lines
    }

    /// The same facts with the fields of the log.
    fn objects(&self, now: &str) -> Vec<Value> {
        let listening = self.listening.iter().map(|(what, address)| {
            json!({"timestamp": now, "level": "INFO", "message": format!("listening {what} {address}"),
                "listener": what, "address": address.to_string()})
        });
        let mut objects: Vec<Value> = listening.collect();
        let message = format!("windlass {} stores jobs {}", env!("CARGO_PKG_VERSION"), self.kept);
        let mut ready = json!({"timestamp": now, "level": "INFO", "message": message,
            "version": env!("CARGO_PKG_VERSION")});
        if let Some(url) = &self.url {
            ready["url"] = json!(url);
            ready["ui"] = json!(format!("{url}/ui/"));
        }
        objects.push(ready);
        objects
    }
}

/// URL at which a program on this machine reaches the server of a configuration; `None` for a port that is chosen at
/// the start.
pub(crate) fn local_url(config: &Config) -> Option<String> {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let address = config.http.addresses.first().filter(|address| address.port() != 0)?;
    Some(format!("{scheme}://{}", reachable(*address)))
}

/// Address that a program on this machine can open: a wildcard address stands for loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(http: &str, url: &str, is_usual: bool) -> Vec<String> {
        let listening = [("http", http.parse().unwrap())];
        let kept = "in jobs.db".to_string();
        Banner { listening: &listening, url: Some(url.to_string()), is_usual, kept }
            .lines(Style { colours: false, width: 80 })
    }

    #[test]
    fn an_address_that_cannot_be_opened_is_not_named() {
        let check = |address: &str, expected: &str| {
            assert_eq!(reachable(address.parse().unwrap()).to_string(), expected);
        };
        check("0.0.0.0:80", "127.0.0.1:80");
        check("[::]:80", "[::1]:80");
        check("127.0.0.1:7373", "127.0.0.1:7373");
        check("192.0.2.7:7373", "192.0.2.7:7373");
    }

    #[test]
    fn the_text_names_the_listeners_the_web_ui_and_a_first_command() {
        let usual = lines("127.0.0.1:7373", "http://127.0.0.1:7373", true);
        assert_eq!(usual[0], "listening http 127.0.0.1:7373");
        assert_eq!(usual[2], "web UI    http://127.0.0.1:7373/ui/");
        assert_eq!(usual[4], "and then  windlass work hello -- cat");
        let other = lines("0.0.0.0:1", "https://127.0.0.1:1", false);
        assert!(other[4].ends_with("windlass work hello --server https://127.0.0.1:1 -- cat"), "{other:?}");
    }
}
