//! Format of a journal file: encoding, and decoding that recovers lines from damaged files.
//!
//! ```text
//! #:Batch bytes=84 lines=2 crc=5f3a09c1 sums=Ab3k~9 check=0c77e2d4
//! Q7TzzMq-vm-aHav-000|acme-resize|first payload
//! Q7TzzMq-vm-aHav-001|acme-resize|second payload
//! #:EndBatch
//! ```
//!
//! A line is `id|type|payload`; the payload may contain `|`. Text that begins with `#` is skipped: comments,
//! erased lines, marks. `crc` is the CRC-32 of the `bytes` that follow, `sums` three radix-64 digits for each
//! line, `check` the CRC-32 of the header before it. A block with a correct `crc` is accepted whole. In a
//! damaged block each line with a correct sum is accepted, so that the lines before and after the damage are
//! recovered. Lines outside of a block (written by hand, or after a damaged header) are accepted without a
//! checksum.
//!
//! To change the format: add a field to the header; readers ignore unknown fields.

use super::radix64;
use bytes::Bytes;

const BEGIN: &str = "#:Batch ";
const END: &str = "#:EndBatch\n";
/// Digits of a line's checksum: 18 bits. They are compared only if the block's checksum is wrong.
const SUM_DIGITS: usize = 3;
/// Longest accepted header: sums for a hundred thousand lines and a few fields.
const HEADER_BYTES_MAX: usize = 512 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub id: String,
    pub kind: String,
    pub payload: Bytes,
}

/// Line to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewLine<'a> {
    pub id: &'a str,
    pub kind: &'a str,
    pub payload: &'a [u8],
}

impl NewLine<'_> {
    /// False for a line that would not be read back unchanged.
    pub fn is_writable(&self) -> bool {
        let is_field = |field: &str| {
            !field.is_empty() && !field.bytes().any(|byte| matches!(byte, b'|' | b'\n' | b'\r' | b'\0'))
        };
        is_field(self.id)
            && is_field(self.kind)
            && !self.id.starts_with(|c: char| c == '#' || c.is_whitespace())
            && !self.payload.contains(&b'\n')
    }
}

/// Encodes a block, ready to be appended.
pub fn block<'a>(lines: impl Iterator<Item = NewLine<'a>>) -> Vec<u8> {
    let mut content = Vec::with_capacity(4096);
    let mut sums = String::new();
    let mut count = 0_usize;
    for line in lines {
        let start = content.len();
        content.extend_from_slice(line.id.as_bytes());
        content.push(b'|');
        content.extend_from_slice(line.kind.as_bytes());
        content.push(b'|');
        content.extend_from_slice(line.payload);
        push_sum(&mut sums, &content[start..]);
        content.push(b'\n');
        count += 1;
    }
    let crc = crc32fast::hash(&content);
    let mut header = format!("{BEGIN}bytes={} lines={count} crc={crc:08x} sums={sums}", content.len());
    let check = crc32fast::hash(header.as_bytes());
    header.push_str(&format!(" check={check:08x}\n"));
    let mut block = header.into_bytes();
    block.reserve(content.len() + END.len());
    block.extend_from_slice(&content);
    block.extend_from_slice(END.as_bytes());
    block
}

fn push_sum(sums: &mut String, line: &[u8]) {
    radix64::push(sums, u64::from(crc32fast::hash(line)), SUM_DIGITS);
}

/// Decoded line and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Offset of its block in the bytes read; for a line outside of a block the offset of the line.
    pub block: usize,
    pub start: usize,
    pub line: Line,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Read {
    pub lines: Vec<Found>,
    /// Lines that could not be decoded: offset and reason.
    pub damaged: Vec<(usize, &'static str)>,
    /// Length of the decoded bytes; the rest is incomplete.
    pub consumed: usize,
}

/// Decodes as much as possible. `is_all`: nothing will follow these bytes, so an incomplete block is decoded
/// too.
pub fn read(bytes: &Bytes, is_all: bool) -> Read {
    let mut read = Read::default();
    while read.consumed < bytes.len() {
        let at = read.consumed;
        let Some(end) = line_end(bytes, at) else {
            if is_all || bytes.len() - at > HEADER_BYTES_MAX && bytes[at..].starts_with(BEGIN.as_bytes()) {
                read.consumed = bytes.len();
                bare(&mut read, bytes, at, bytes.len(), true);
            }
            break;
        };
        match Header::parse(&bytes[at..end]) {
            Some(header) if end + header.bytes <= bytes.len() => {
                read.consumed = end + header.bytes;
                within(&mut read, bytes, at, end, &header);
            }
            // The block continues beyond the bytes read.
            Some(_) if !is_all => break,
            Some(header) => {
                read.consumed = bytes.len();
                salvage(&mut read, bytes, at, (end, bytes.len()), &header);
            }
            None => {
                read.consumed = end + 1;
                bare(&mut read, bytes, at, end, false);
            }
        }
    }
    read
}

/// Offset of the newline of the line that begins at `at`.
fn line_end(bytes: &[u8], at: usize) -> Option<usize> {
    bytes[at..].iter().position(|byte| *byte == b'\n').map(|length| at + length)
}

struct Header<'a> {
    /// Length of the content, plus one for the newline of the header.
    bytes: usize,
    crc: u32,
    sums: &'a [u8],
}

impl<'a> Header<'a> {
    /// `None`: the line is no header, or its checksum is wrong.
    fn parse(line: &'a [u8]) -> Option<Header<'a>> {
        let text = std::str::from_utf8(line.strip_prefix(BEGIN.as_bytes())?).ok()?;
        let (_, check) = text.rsplit_once(" check=")?;
        let covered = line.len() - " check=".len() - check.len();
        if u32::from_str_radix(check, 16).ok()? != crc32fast::hash(&line[..covered]) {
            return None;
        }
        let field =
            |name: &str| text.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        Some(Header {
            bytes: field("bytes")?.parse::<usize>().ok()?.checked_add(1)?,
            crc: u32::from_str_radix(field("crc")?, 16).ok()?,
            sums: field("sums")?.as_bytes(),
        })
    }
}

/// Decodes a complete block; `end` is the newline of its header.
fn within(read: &mut Read, bytes: &Bytes, block: usize, end: usize, header: &Header<'_>) {
    let content = (end + 1, end + header.bytes);
    if crc32fast::hash(&bytes[content.0..content.1]) != header.crc {
        // The length is correct, because the header's checksum is.
        return salvage(read, bytes, block, (end, content.1), header);
    }
    let mut start = content.0;
    while start < content.1 {
        let end = line_end(bytes, start).unwrap_or(content.1);
        take(read, bytes, block, start, end);
        start = end + 1;
    }
}

/// Decodes a damaged block: accepts every line whose checksum is the next or a later one in the header.
fn salvage(read: &mut Read, bytes: &Bytes, block: usize, (mut at, to): (usize, usize), header: &Header<'_>) {
    let mut sums = header.sums.chunks_exact(SUM_DIGITS);
    at += 1;
    while at < to {
        let end = line_end(&bytes[..to], at);
        let line = &bytes[at..end.unwrap_or(to)];
        let mut sum = String::with_capacity(SUM_DIGITS);
        push_sum(&mut sum, line);
        let mut rest = sums.clone();
        if rest.any(|expected| expected == sum.as_bytes()) {
            sums = rest;
            take(read, bytes, block, at, end.unwrap_or(to));
        } else if !line.starts_with(b"#:") {
            read.damaged.push((at, "wrong checksum"));
        }
        at = end.map_or(to, |end| end + 1);
    }
}

/// Decodes a line outside of a block.
fn bare(read: &mut Read, bytes: &Bytes, start: usize, end: usize, is_cut_off: bool) {
    let line = &bytes[start..end];
    if line.starts_with(BEGIN.as_bytes()) {
        read.damaged.push((start, "the header of a batch is damaged; its lines are read without checksums"));
    } else if is_cut_off && !line.is_empty() && !line.starts_with(b"#") {
        read.damaged.push((start, "truncated line"));
    } else {
        take(read, bytes, start, start, end);
    }
}

fn take(read: &mut Read, bytes: &Bytes, block: usize, start: usize, end: usize) {
    let text = &bytes[start..end];
    if text.is_empty() || text[0] == b'#' {
        return;
    }
    match parse_line(bytes, start, end) {
        Some(line) => read.lines.push(Found { block, start, line }),
        None => read.damaged.push((start, "not of the form id|type|payload")),
    }
}

fn parse_line(bytes: &Bytes, start: usize, end: usize) -> Option<Line> {
    let text = &bytes[start..end];
    let first = text.iter().position(|byte| *byte == b'|')?;
    let second = first + 1 + text[first + 1..].iter().position(|byte| *byte == b'|')?;
    let id = std::str::from_utf8(&text[..first]).ok()?.trim_start();
    let kind = std::str::from_utf8(&text[first + 1..second]).ok()?;
    if id.is_empty() || kind.is_empty() {
        return None;
    }
    let payload = bytes.slice(start + second + 1..end);
    Some(Line { id: id.to_owned(), kind: kind.to_owned(), payload })
}

#[cfg(test)]
mod tests;
