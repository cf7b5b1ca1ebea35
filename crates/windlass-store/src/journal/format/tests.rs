use super::*;
use proptest::prelude::*;

fn lines(texts: &[(&str, &str, &[u8])]) -> Vec<u8> {
    block(texts.iter().map(|(id, kind, payload)| NewLine { id, kind, payload }))
}

fn payloads(read: &Read) -> Vec<&[u8]> {
    read.lines.iter().map(|found| &*found.line.payload).collect()
}

fn read_all(bytes: &[u8]) -> Read {
    read(&Bytes::copy_from_slice(bytes), true)
}

#[test]
fn lines_come_back_as_they_were_written() {
    let cases: [&[u8]; 5] = [b"a", b"with|bars||", b"", b"ends in CR\r", "\u{2028}\u{fffd} text".as_bytes()];
    let texts: Vec<(&str, &str, &[u8])> =
        cases.iter().map(|payload| ("i-1", "acme-resize", *payload)).collect();
    let read = read_all(&lines(&texts));
    assert_eq!(payloads(&read), cases);
    assert!(read.damaged.is_empty());
    assert_eq!(read.lines[0].line.kind, "acme-resize");
}

#[test]
fn what_begins_with_a_hash_is_skipped_and_what_is_no_line_is_reported() {
    let text = b"# a comment\ni1|a-b|x\n#i2|a-b|erased\nnonsense\n|a-b|no id\ni4||no type\n#:Batch note\n  i5|a-b|y|z\n";
    let read = read_all(text);
    assert_eq!(payloads(&read), [b"x" as &[u8], b"y|z"]);
    assert_eq!(read.lines[1].line.id, "i5");
    assert_eq!(read.damaged.len(), 4, "{:?}", read.damaged);
}

#[test]
fn a_batch_of_another_program_without_checksums_is_read() {
    let text = b"#:Batch bytes=22\ni1|a-b|x\ni2|a-b|y\n#:EndBatch\n";
    assert_eq!(payloads(&read_all(text)), [b"x", b"y"]);
}

#[test]
fn half_a_block_waits_for_the_rest_unless_there_is_none() {
    let whole = lines(&[("i1", "a-b", b"one"), ("i2", "a-b", b"two")]);
    let cut = whole.len() - END.len() - 3;
    let half = Bytes::copy_from_slice(&whole[..cut]);
    assert_eq!(read(&half, false), Read::default());
    let rest = read(&half, true);
    assert_eq!(payloads(&rest), [b"one"]);
    assert_eq!(rest.damaged.len(), 1);
}

#[test]
fn a_flipped_bit_costs_the_line_it_is_in() {
    let whole = lines(&[
        ("i1", "a-b", b"one"),
        ("i2", "a-b", b"two"),
        ("i3", "a-b", b"three"),
        ("i4", "a-b", b"four"),
    ]);
    let at = whole.windows(3).position(|window| window == b"two").unwrap();
    let mut flipped = whole.clone();
    flipped[at] ^= 1;
    assert_eq!(payloads(&read_all(&flipped)), [b"one" as &[u8], b"three", b"four"]);
    // A damaged newline merges two lines; the lines around them are recovered.
    let mut merged = whole;
    let newline = at + 3;
    merged[newline] ^= 1;
    assert_eq!(payloads(&read_all(&merged)), [b"one" as &[u8], b"four"]);
}

#[test]
fn what_cannot_be_read_back_is_not_writable() {
    let ok = NewLine { id: "i1", kind: "a-b", payload: b"x" };
    assert!(ok.is_writable());
    for (id, kind, payload) in [
        ("", "a-b", "x"),
        ("i1", "", "x"),
        ("i|", "a-b", "x"),
        ("i1", "a\nb", "x"),
        ("i1", "a-b", "x\ny"),
        ("#i", "a-b", "x"),
    ] {
        assert!(!NewLine { id, kind, payload: payload.as_bytes() }.is_writable(), "{id} {kind} {payload}");
    }
}

fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>().prop_filter("a newline", |byte| *byte != b'\n'), 0..40)
}

fn journal() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    proptest::collection::vec(proptest::collection::vec(any_payload(), 1..6), 1..6)
}

/// Encodes the batches as blocks. Returns the bytes, and the offset and id of each line.
fn written(batches: &[Vec<Vec<u8>>]) -> (Vec<u8>, Vec<(usize, String)>) {
    let mut bytes = Vec::new();
    let mut ids = Vec::new();
    let mut number = 0;
    for batch in batches {
        let first = number;
        let names: Vec<String> = batch
            .iter()
            .map(|_| {
                number += 1;
                format!("id{number:05}-x")
            })
            .collect();
        let start = bytes.len();
        bytes.extend(block(batch.iter().zip(&names).map(|(payload, id)| NewLine {
            id,
            kind: "a-b",
            payload,
        })));
        for id in &names {
            let place = bytes[start..].windows(id.len()).position(|window| window == id.as_bytes()).unwrap();
            ids.push((start + place, id.clone()));
        }
        assert_eq!(number - first, batch.len());
    }
    (bytes, ids)
}

proptest! {
    #[test]
    fn everything_written_is_read_in_order_whatever_the_pieces(batches in journal(), piece in 1_usize..400) {
        let (bytes, ids) = written(&batches);
        let bytes = Bytes::from(bytes);
        let (mut at, mut to, mut found) = (0, 0, Vec::new());
        while at < bytes.len() {
            to = (to + piece).min(bytes.len());
            let part = read(&bytes.slice(at..to), to == bytes.len());
            prop_assert!(part.damaged.is_empty());
            found.extend(part.lines.into_iter().map(|found| found.line.id));
            at += part.consumed;
        }
        prop_assert_eq!(found, ids.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
    }

    #[test]
    fn lines_before_a_cut_are_not_lost(batches in journal(), cut in any::<prop::sample::Index>()) {
        let (bytes, ids) = written(&batches);
        let cut = cut.index(bytes.len());
        let found: Vec<String> = read_all(&bytes[..cut]).lines.into_iter().map(|found| found.line.id).collect();
        let payloads: Vec<&Vec<u8>> = batches.iter().flatten().collect();
        for ((start, id), payload) in ids.iter().zip(payloads) {
            // Complete with its newline, which is before the cut.
            if start + id.len() + "|a-b|".len() + payload.len() < cut {
                prop_assert!(found.contains(id), "{} is lost, cut at {}", id, cut);
            }
        }
    }

    #[test]
    fn lines_before_flipped_bits_are_not_lost(
        batches in journal(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..4),
    ) {
        let (mut bytes, ids) = written(&batches);
        let mut first = bytes.len();
        for (place, bit) in flips {
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
            first = first.min(place);
        }
        let read = read_all(&bytes);
        let found: Vec<&str> = read.lines.iter().map(|found| found.line.id.as_str()).collect();
        let payloads: Vec<&Vec<u8>> = batches.iter().flatten().collect();
        for ((start, id), payload) in ids.iter().zip(payloads) {
            if start + id.len() + "|a-b|".len() + payload.len() < first {
                prop_assert!(found.contains(&id.as_str()), "{} is lost, flipped at {}", id, first);
            }
        }
    }

    #[test]
    fn whatever_the_bytes_are_reading_ends(bytes in proptest::collection::vec(any::<u8>(), 0..2000), is_all in any::<bool>()) {
        let bytes = Bytes::from(bytes);
        let read = read(&bytes, is_all);
        prop_assert!(read.consumed <= bytes.len());
        prop_assert!(!is_all || read.consumed == bytes.len());
    }
}
