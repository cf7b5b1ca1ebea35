//! HTTP server that records requests: stands for a collector, a handler or a worker.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    /// Header lines with names in lower case, each with its line end.
    pub head: String,
    pub body: String,
}

pub struct Receiver {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Receiver {
    /// Answers with the status for the number of requests before.
    pub fn start(status: impl Fn(usize) -> u16 + Send + Sync + 'static) -> Receiver {
        Receiver::start_on("127.0.0.1:0".parse().unwrap(), status)
    }

    pub fn start_on(address: SocketAddr, status: impl Fn(usize) -> u16 + Send + Sync + 'static) -> Receiver {
        let listener = TcpListener::bind(address).unwrap();
        let receiver = Receiver { address: listener.local_addr().unwrap(), requests: Arc::default() };
        let (requests, status) = (Arc::clone(&receiver.requests), Arc::new(status));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (requests, status) = (Arc::clone(&requests), Arc::clone(&status));
                std::thread::spawn(move || serve(stream, &requests, &*status));
            }
        });
        receiver
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn all(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Bodies that were sent to this path.
    pub fn bodies(&self, path: &str) -> Vec<Value> {
        let all = self.all();
        let sent = all.iter().filter(|request| request.path == path);
        sent.map(|request| serde_json::from_str(&request.body).unwrap()).collect()
    }
}

/// Serves a connection until the other side closes it.
fn serve(stream: TcpStream, requests: &Mutex<Vec<Request>>, status: &dyn Fn(usize) -> u16) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    while let Some(request) = read(&mut reader) {
        let status = {
            let mut requests = requests.lock().unwrap();
            requests.push(request);
            status(requests.len() - 1)
        };
        let answer =
            format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}");
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        let (name, value) = line.split_once(':')?;
        head.push_str(&format!("{}:{value}", name.to_ascii_lowercase()));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"))?.trim().parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    // The bodies of JQ are MessagePack.
    Some(Request { path, head, body: String::from_utf8_lossy(&body).into_owned() })
}
