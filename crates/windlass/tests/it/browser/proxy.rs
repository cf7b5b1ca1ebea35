//! The UI behind a reverse proxy with a path prefix.

use super::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

const PREFIX: &str = "/tools/windlass";

/// Proxy that forwards one request per connection without the prefix. Ends with the test's process.
fn start(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || pass_on(client, to));
        }
    });
    address
}

fn pass_on(mut client: TcpStream, to: SocketAddr) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let mut head = String::new();
    reader.read_line(&mut head).ok()?;
    let mut length = 0;
    let mut sent = head.replacen(PREFIX, "", 1);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
        if !lower.starts_with("connection:") {
            sent.push_str(&line);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut server = TcpStream::connect(to).ok()?;
    server.write_all(format!("{sent}Connection: close\r\n\r\n").as_bytes()).ok()?;
    server.write_all(&body).ok()?;
    let mut piece = [0; 16_384];
    loop {
        let count = server.read(&mut piece).ok().filter(|count| *count > 0)?;
        client.write_all(&piece[..count]).ok()?;
    }
}

#[test]
fn the_ui_works_from_a_path_of_a_reverse_proxy() {
    let server = Server::start(&[]);
    let proxy = start(server.http);
    let browser = Browser::open();
    browser.go(&format!("http://{proxy}{PREFIX}/"));
    browser.until_shows("#first-steps", &format!("curl http://{proxy}{PREFIX}/api/v1/jobs"));
    push(&server, json!({"name": "mail"}));
    browser.until_shows("[data-state=ready] .value", "1");
    browser.click("nav.pages a[data-page=queues]");
    browser.click("button[aria-label='Pause default']");
    browser.until_shows("main tbody", "paused");
    assert!(claim(&server, json!({})).is_empty());
}
