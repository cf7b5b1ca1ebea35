//! Detects request headers that a proxy could parse differently (request smuggling): lines that end with a
//! line feed alone, a length beside a transfer coding. The parser accepts them; a proxy in front may see
//! other requests in the same bytes. Each byte of a header is checked once, before it reaches the parser.

/// Length of the longest name searched for, with its colon.
const NAME_BYTES: usize = b"transfer-encoding:".len();

/// State within a header. Reset for each request.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// First bytes of the current line.
    line: [u8; NAME_BYTES],
    /// Bytes of the current line so far.
    length: usize,
    /// Previous byte; `None` at the start, when the request may have begun in the bytes read with the
    /// previous one.
    last: Option<u8>,
    has_length: bool,
    has_coding: bool,
    has_lines: bool,
    /// At the start of a connection: nothing was read before.
    is_first: bool,
    is_over: bool,
}

impl Head {
    /// State at the start of a connection, where empty lines may precede the first request.
    pub(super) fn first() -> Head {
        Head { last: Some(b'\n'), is_first: true, ..Head::default() }
    }

    /// Checks the next bytes. Returns false if the header is ambiguous.
    pub(super) fn look(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while !self.is_over {
            let Some(end) = memchr::memchr(b'\n', rest) else {
                self.take(rest);
                return true;
            };
            self.take(&rest[..end]);
            if self.last.is_some_and(|last| last != b'\r') {
                return false;
            }
            self.end_line();
            if self.has_length && self.has_coding {
                return false;
            }
            rest = &rest[end + 1..];
        }
        true
    }

    fn take(&mut self, piece: &[u8]) {
        if let Some(room) = self.line.get_mut(self.length..).filter(|room| !room.is_empty()) {
            let copied = piece.len().min(room.len());
            room[..copied].copy_from_slice(&piece[..copied]);
        }
        self.length += piece.len();
        self.last = piece.last().copied().or(self.last);
    }

    fn end_line(&mut self) {
        let is_empty = self.length <= 1;
        let is_name = |name: &[u8]| {
            let line = &self.line[..self.length.min(NAME_BYTES)];
            line.get(..name.len()).is_some_and(|line| line.eq_ignore_ascii_case(name))
        };
        self.has_length |= is_name(b"content-length:");
        self.has_coding |= is_name(b"transfer-encoding:");
        // If the start of the header may have been missed, an empty line ends it: a body may follow.
        self.is_over = is_empty && (self.has_lines || !self.is_first);
        self.has_lines |= !is_empty;
        self.length = 0;
        self.last = Some(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(head: &str, piece: usize, mut state: Head) -> bool {
        head.as_bytes().chunks(piece).all(|piece| state.look(piece))
    }

    #[track_caller]
    fn check(head: &str, expected: bool) {
        for piece in [1, 2, 3, 7, 1000] {
            assert_eq!(looked(head, piece, Head::first()), expected, "{head:?} in pieces of {piece}");
        }
    }

    #[test]
    fn ordinary_requests_pass_with_whatever_body() {
        check("GET / HTTP/1.1\r\nHost: x\r\n\r\n", true);
        check("\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", true);
        check("POST / HTTP/1.1\r\nContent-Length: 6\r\n\r\na\nb\n\n\n", true);
        check("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\nContent-Length: 5\r\n\n", true);
        check(
            "POST / HTTP/1.1\r\nContent-Length: 6\r\nContent-Length: 6\r\nX-Transfer-Encoding: a\r\n\r\n",
            true,
        );
    }

    #[test]
    fn what_can_be_read_in_two_ways_does_not() {
        check("GET / HTTP/1.1\nHost: x\r\n\r\n", false);
        check("GET / HTTP/1.1\r\nHost: x\n\r\n", false);
        check("GET / HTTP/1.1\r\nHost: x\r\n\n", false);
        check("\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", false);
        check("POST / HTTP/1.1\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n", false);
        check("POST / HTTP/1.1\r\ntransfer-encoding:chunked\r\nHost: x\r\nCONTENT-LENGTH: 6\r\n\r\n", false);
    }

    #[test]
    fn what_is_seen_of_a_head_from_its_middle_on_is_no_reason_to_refuse_it() {
        for rest in
            ["\nHost: x\r\n\r\na\nb", "\r\nHost: x\r\n\r\na\nb", "ost: x\r\n\r\n\n", "\r\n\n\n", "\n\n"]
        {
            assert!(looked(rest, 1000, Head::default()), "{rest:?}");
        }
    }
}
