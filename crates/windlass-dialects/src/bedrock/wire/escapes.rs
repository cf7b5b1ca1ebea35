//! Backslash escapes in header values.

pub(super) fn escape(value: &str, out: &mut Vec<u8>) {
    for byte in value.bytes() {
        match byte {
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            byte => out.push(byte),
        }
    }
}

pub(super) fn unescaped(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let Some((&escape, after)) = rest.split_first() else {
            out.push(b'\\');
            break;
        };
        rest = after;
        match escape {
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'u' => match code_point(rest) {
                Some((c, bytes)) => {
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                    rest = &rest[bytes..];
                }
                None => out.push(b'u'),
            },
            other => out.push(other),
        }
    }
    out.extend_from_slice(rest);
    out
}

/// Decodes four hex digits, or a surrogate pair, and returns the number of bytes consumed.
fn code_point(after: &[u8]) -> Option<(char, usize)> {
    let unit = |bytes: &[u8]| {
        let digits = bytes.get(..4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let first = unit(after)?;
    if let Some(c) = char::from_u32(first) {
        return Some((c, 4));
    }
    let low = after.get(4..6).filter(|mark| *mark == b"\\u").and_then(|_| unit(&after[6..]));
    match (first, low) {
        (0xd800..0xdc00, Some(low @ 0xdc00..0xe000)) => {
            let c = char::from_u32(0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00))?;
            Some((c, 10))
        }
        // Unpaired surrogate.
        _ => Some((char::REPLACEMENT_CHARACTER, 4)),
    }
}
