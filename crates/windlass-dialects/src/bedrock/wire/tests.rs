use super::*;

fn parse(bytes: &[u8]) -> Vec<Request> {
    let mut parser = Parser::default();
    parser.feed(bytes);
    all(&mut parser)
}

fn all(parser: &mut Parser) -> Vec<Request> {
    std::iter::from_fn(|| parser.take().unwrap()).collect()
}

fn one(bytes: &[u8]) -> Request {
    let mut requests = parse(bytes);
    assert_eq!(requests.len(), 1, "{:?}", String::from_utf8_lossy(bytes));
    requests.remove(0)
}

fn lines(bytes: &[u8]) -> Vec<String> {
    parse(bytes).into_iter().map(|request| request.line).collect()
}

#[test]
fn both_line_endings_are_understood() {
    for bytes in ["CreateJob\nname: a\n\n", "CreateJob\r\nname: a\r\n\r\n", "CreateJob\r\nname: a\r\n\n"] {
        assert_eq!(one(bytes.as_bytes()), Request::new("CreateJob", &[("name", "a")]), "{bytes:?}");
    }
}

#[test]
fn only_two_forms_end_a_head() {
    for bytes in ["Ping\n\r\n", "Ping\r\r", "Ping\r\n\r", "Ping\n", "Ping\r\n"] {
        assert_eq!(parse(bytes.as_bytes()), [], "{bytes:?}");
    }
    assert_eq!(lines(b"Ping\n\r\n\r\n"), ["Ping"]);
}

#[test]
fn fewer_than_four_bytes_are_not_looked_at() {
    assert_eq!(lines(b"A\n\n"), [""; 0]);
    assert_eq!(lines(b"AB\n\n"), ["AB"]);
    assert_eq!(lines(b"A\n\nPing\n\n"), ["A", "Ping"]);
}

#[test]
fn leading_blank_lines_are_skipped() {
    assert_eq!(lines(b"\n\r\n\n\r\nPing\n\n\n\nPing\n\n"), ["Ping", "Ping"]);
}

#[test]
fn a_method_line_is_trimmed_and_may_have_a_tail() {
    let request = one(b"  CreateJob / HTTP/1.1  \n\n");
    assert_eq!((request.line.as_str(), request.verb()), ("CreateJob / HTTP/1.1", "CreateJob"));
    assert_eq!(request.tail(), "/ HTTP/1.1");
}

#[test]
fn header_names_have_no_case_and_the_last_one_wins() {
    let request = one(b"Ping\nName: a\nNAME: b\nno colon here\nempty:\n\n");
    assert_eq!(request.get("name"), Some("b"));
    assert_eq!(request.get("no colon here"), Some(""));
    assert_eq!((request.get("empty"), request.given("empty")), (Some(""), None));
    assert_eq!(request.get("missing"), None);
}

#[test]
fn values_lose_their_spaces_and_escapes() {
    let value = |raw: &str| one(format!("Ping\nv:{raw}\n\n").as_bytes()).get("v").unwrap().to_owned();
    for (raw, expected) in [
        ("   a b   ", "a b"),
        (" \ta\t ", "\ta\t"),
        (r"a\nb\rc\td\be\ff", "a\nb\rc\td\u{8}e\u{c}f"),
        (r#"\\ \/ \" \x"#, "\\ / \" x"),
        (r"\u00e9\u4E2D", "é中"),
        (r"\ud83d\ude00", "😀"),
        (r"\ud83d!", "\u{fffd}!"),
        (r"\uZZ", "uZZ"),
        (r"end\", "end\\"),
        (r#"{"a":"x\"y"}"#, r#"{"a":"x"y"}"#),
        (r#"{"a":"x\\"y"}"#, r#"{"a":"x\"y"}"#),
    ] {
        assert_eq!(value(raw), expected, "{raw}");
    }
}

#[test]
fn a_line_that_begins_with_a_space_goes_on_with_the_one_above() {
    let request = one(b"Query\nquery: SELECT 1\n  FROM jobs\n\tWHERE 1;\n\n");
    assert_eq!(request.get("query"), Some("SELECT 1  FROM jobs\tWHERE 1;"));
    assert_eq!(one(b"Query: SELECT\n 1;\nname: a\n\n").line, "Query: SELECT 1;");
}

#[test]
fn a_value_that_is_not_text_is_known_as_such() {
    let request = one(b"Ping\nname: \xff\nok: a\n\n");
    assert_eq!(request.garbled().collect::<Vec<_>>(), ["name"]);
}

#[test]
fn a_body_is_counted_off() {
    assert_eq!(lines(b"Ping\nContent-Length: 5\n\nabcdePing\n\n"), ["Ping", "Ping"]);
    assert_eq!(lines(b"Ping\nContent-Length: 5\n\nabcd"), [""; 0]);
    assert_eq!(lines(b"Ping\nContent-Length: 99999999999\n\nabcd"), [""; 0]);
    assert_eq!(lines(b"Ping\ncontent-length: 0\n\nPing\n\n"), ["Ping", "Ping"]);
}

#[test]
fn a_bad_length_breaks_the_connection() {
    for length in ["x", "-1", "", "1x", "99999999999999999999999", "+1"] {
        let mut parser = Parser::default();
        parser.feed(format!("Ping\nContent-Length: {length}\n\n").as_bytes());
        assert_eq!(parser.take(), Err(Broken::BadLength), "{length:?}");
    }
}

#[test]
fn chunks_are_counted_off() {
    let chunked = "Ping\r\nTransfer-Encoding: Chunked\r\n\r\n";
    let ends = |body: &str| lines(format!("{chunked}{body}").as_bytes());
    assert_eq!(ends("5\r\nab\n\nc\r\n0\r\n\r\nStatus\n\n"), ["Ping", "Status"]);
    assert_eq!(ends("A;name=x\r\n0123456789\r\n0\r\nTrailer: y\r\n\r\n"), ["Ping"]);
    assert_eq!(ends("5\r\nabcde\r\n0\r\n"), [""; 0]);
    let broken = |body: &str| {
        let mut parser = Parser::default();
        parser.feed(format!("{chunked}{body}").as_bytes());
        parser.take()
    };
    for body in ["x\r\n", "2\r\nabc\r\n", "-1\r\n", "+1\r\n", "\r\n", "fffffffffffffffff\r\n"] {
        assert_eq!(broken(body), Err(Broken::BadLength), "{body:?}");
    }
    assert_eq!(broken(&"1".repeat(CHUNK_LINE_BYTES_MAX)), Err(Broken::BadLength));
}

#[test]
fn what_is_too_large_breaks_the_connection_before_it_is_all_there() {
    let limits = RequestLimits { head_bytes_max: 100, headers_max: 3 };
    let outcome = |bytes: &[u8]| {
        let mut parser = Parser::new(limits);
        parser.feed(bytes);
        parser.take()
    };
    assert_eq!(outcome(&[b'a'; 101]), Err(Broken::HeadTooLarge));
    assert_eq!(outcome(&[b'a'; 100]), Ok(None));
    let exact = [&[b'a'; 98][..], b"\n\n"].concat();
    assert!(outcome(&exact).unwrap().is_some());
    assert_eq!(outcome(&[&[b'a'; 99][..], b"\n\n"].concat()), Err(Broken::HeadTooLarge));
    assert_eq!(outcome(b"Ping\na:\nb:\nc:\nd:\n\n"), Err(Broken::TooManyHeaders));
}

/// The parser must not scan an incomplete request again with every byte.
#[test]
fn a_slow_and_large_head_is_read_once() {
    let mut parser = Parser::default();
    parser.feed(b"CreateJob\ndata: ");
    for _ in 0..4_000 {
        parser.feed(&[b'x'; 1_000]);
        assert_eq!(parser.take(), Ok(None));
        assert_eq!(parser.scanned, parser.pending());
    }
}

#[test]
fn replies_have_their_headers_in_order_and_the_length_last() {
    let reply = Reply::new("402 Bad query")
        .with_header("nodeName", "w\\1")
        .with_header("commitCount", "5")
        .with_header("error", "two\r\nlines\t.")
        .with_header("Connection", "close")
        .with_body("body");
    let mut out = Vec::new();
    reply.write(&mut out);
    let expected = "402 Bad query\r\ncommitCount: 5\r\nConnection: close\r\nerror: two\\r\\nlines\\t.\r\n\
                    nodeName: w\\\\1\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

/// Pieces of valid and malformed streams, combined at random.
fn pieces() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
    use proptest::prelude::*;
    const PIECES: &[&[u8]] = &[
        b"CreateJob",
        b"\r\n",
        b"\n",
        b"\r",
        b"\n\n",
        b"\r\n\r\n",
        b"name: a",
        b"data: {\"a\":\"\\\\u00e9\"}",
        b" folded",
        b"Content-Length: 3",
        b"Content-Length: x",
        b"Transfer-Encoding: chunked",
        b"3\r\nabc\r\n",
        b"0\r\n\r\n",
        b"\xff\\",
        b":",
    ];
    let piece = proptest::sample::select(PIECES);
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn outcome(parts: &[&[u8]]) -> (Vec<Request>, Option<Broken>) {
    let mut parser = Parser::default();
    let mut requests = Vec::new();
    for part in parts {
        parser.feed(part);
        loop {
            match parser.take() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(broken) => return (requests, Some(broken)),
            }
        }
    }
    (requests, None)
}

proptest::proptest! {
    #[test]
    fn how_a_stream_is_cut_does_not_matter(bytes in pieces(), cuts in proptest::collection::vec(0_usize..400, 0..8)) {
        let whole = outcome(&[&bytes]);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.sort_unstable();
        let mut parts = Vec::new();
        let mut from = 0;
        for cut in cuts {
            parts.push(&bytes[from..cut]);
            from = cut;
        }
        parts.push(&bytes[from..]);
        assert_eq!(outcome(&parts), whole);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(outcome(&single), whole);
    }
}
