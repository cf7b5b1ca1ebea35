//! Files of the journal: whatever is in them, nothing that is whole is lost, and it makes no difference in how many pieces
//! they are read.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/windlass-store/src/journal"]
#[allow(dead_code)]
mod journal {
    pub mod format;
    pub mod radix64;
}

use bytes::Bytes;
use journal::format::{self, Line, NewLine};

fuzz_target!(|input: &[u8]| {
    let Some((&cut, bytes)) = input.split_first() else { return };
    in_pieces(bytes, usize::from(cut));
    come_back(bytes);
});

fn lines(bytes: &[u8], is_all: bool) -> (Vec<Line>, usize) {
    let read = format::read(&Bytes::copy_from_slice(bytes), is_all);
    assert!(read.consumed <= bytes.len());
    assert!(read.lines.iter().all(|found| found.block <= found.start && found.start < bytes.len()));
    (read.lines.into_iter().map(|found| found.line).collect(), read.consumed)
}

fn in_pieces(bytes: &[u8], cut: usize) {
    let (whole, consumed) = lines(bytes, true);
    assert_eq!(consumed, bytes.len(), "nothing is left over at the end");
    let (mut found, consumed) = lines(&bytes[..cut.min(bytes.len())], false);
    found.extend(lines(&bytes[consumed..], true).0);
    assert_eq!(found, whole, "read in two pieces");
}

/// What is written is found again as it was, whatever comes after it.
fn come_back(bytes: &[u8]) {
    let fields: Vec<&[u8]> = bytes.split(|byte| *byte == 0).collect();
    let new = |fields: &[&[u8]]| {
        let [id, kind, payload] = fields else { return None };
        Some((String::from_utf8(id.to_vec()).ok()?, String::from_utf8(kind.to_vec()).ok()?, payload.to_vec()))
    };
    let written: Vec<(String, String, Vec<u8>)> = fields.chunks(3).filter_map(new).collect();
    let line = |(id, kind, payload): &(String, String, Vec<u8>)| Line {
        id: id.clone(),
        kind: kind.clone(),
        payload: Bytes::copy_from_slice(payload),
    };
    let as_new = |(id, kind, payload)| NewLine { id, kind, payload };
    let views =
        written.iter().map(|(id, kind, payload)| as_new((id.as_str(), kind.as_str(), payload.as_slice())));
    let writable: Vec<bool> = views.clone().map(|view| view.is_writable()).collect();
    let mut file = format::block(views.zip(&writable).filter(|(_, is)| **is).map(|(view, _)| view));
    let expected: Vec<Line> =
        written.iter().zip(&writable).filter(|(_, is)| **is).map(|(one, _)| line(one)).collect();
    file.extend_from_slice(bytes);
    let (found, _) = lines(&file, true);
    assert_eq!(found[..expected.len().min(found.len())], expected);
}
