//! The reader of Bedrock's wire format: it takes any bytes in pieces of any size.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/windlass-dialects/src/bedrock/wire.rs"]
#[allow(dead_code)]
mod wire;

use wire::{Broken, RequestLimits, Parser, Reply, Request};

/// Small, so that the fuzzer meets them.
const LIMITS: RequestLimits = RequestLimits { head_bytes_max: 2_000, headers_max: 20 };

fuzz_target!(|input: &[u8]| {
    let Some((&piece, bytes)) = input.split_first() else { return };
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(whole, read(bytes, usize::from(piece).max(1)), "the size of the pieces makes no difference");
    for request in &whole.0 {
        come_back(request);
    }
});

/// The requests, and how it ended.
fn read(bytes: &[u8], piece: usize) -> (Vec<Request>, Result<bool, Broken>) {
    let mut parser = Parser::new(LIMITS);
    let mut requests = Vec::new();
    for part in bytes.chunks(piece) {
        parser.feed(part);
        loop {
            match parser.take() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(broken) => return (requests, Err(broken)),
            }
        }
    }
    (requests, Ok(parser.is_idle()))
}

/// What we write in a header is read again as it was, but for spaces at its ends.
fn come_back(request: &Request) {
    let Some(value) = request.get("data").map(|value| value.trim_matches(' ')) else { return };
    let reply = Reply::ok().with_header("data", value).with_body(*b"1234");
    let mut bytes = Vec::new();
    reply.write(&mut bytes);
    let mut parser = Parser::new(RequestLimits::default());
    parser.feed(&bytes);
    let again = parser.take().expect("what we write can be read").expect("and is whole");
    assert_eq!((again.line.as_str(), again.get("data")), ("200 OK", Some(value)));
    assert_eq!(parser.pending(), 0);
}
