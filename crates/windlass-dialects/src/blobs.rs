//! Blobs that a job refers to, whatever dialect created it.

use windlass_core::Job;
use windlass_engine::blob::BlobAddr;

/// Every address in a job's payload, facts and outcome, in any form and at any position: a blob that a job
/// mentions must not count as unused.
pub fn named_by(job: &Job) -> Vec<BlobAddr> {
    let mut found = Vec::new();
    find(&job.spec.payload.bytes, &mut found);
    for text in job.spec.extras.iter().flat_map(|extras| extras.facts.values()) {
        find(text.as_bytes(), &mut found);
    }
    if let Some(body) = &job.body {
        if let Some(outcome) = &body.outcome {
            outcome.result.iter().chain(&outcome.error).for_each(|payload| find(&payload.bytes, &mut found));
            outcome.message.iter().for_each(|text| find(text.as_bytes(), &mut found));
        }
        body.note.iter().for_each(|text| find(text.as_bytes(), &mut found));
    }
    found
}

const SRI_PREFIXES: [(&[u8], usize); 2] = [(b"sha256-", 43), (b"sha1-", 27)];

fn find(bytes: &[u8], found: &mut Vec<BlobAddr>) {
    let text_at =
        |range: std::ops::Range<usize>| bytes.get(range).and_then(|bytes| std::str::from_utf8(bytes).ok());
    // JSON may write a slash as `\/`; the search runs without the escapes.
    if bytes.windows(2).any(|pair| pair == b"\\/") {
        let plain: Vec<u8> = String::from_utf8_lossy(bytes).replace("\\/", "/").into_bytes();
        return find(&plain, found);
    }
    for (prefix, digits) in SRI_PREFIXES {
        let starts = bytes.windows(prefix.len()).enumerate().filter(|(_, window)| *window == prefix);
        for (start, _) in starts {
            let end = start + prefix.len() + digits;
            found.extend(text_at(start..end).and_then(BlobAddr::parse));
        }
    }
    let mut start = 0;
    for run in bytes.split(|byte| !byte.is_ascii_hexdigit()) {
        // In a binary payload the bytes around an address may look like digits, so every window of a run is
        // tried.
        for length in [40, 64] {
            for at in 0..(run.len() + 1).saturating_sub(length) {
                found.extend(text_at(start + at..start + at + length).and_then(BlobAddr::parse));
            }
        }
        start += run.len() + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_engine::blob::{AddrForm, Digests};

    fn found(bytes: &[u8]) -> Vec<BlobAddr> {
        let mut found = Vec::new();
        find(bytes, &mut found);
        found
    }

    #[test]
    fn an_address_is_found_in_any_spelling_and_place() {
        // Its SRI form contains a slash and a plus.
        let digests = Digests::of(b"WILSON!");
        for form in [AddrForm::Sha1, AddrForm::Sha256, AddrForm::Sri] {
            let addr = digests.show(form);
            let texts = [
                addr.clone(),
                format!("{{\"binary_addr\":\"{addr}\",\"n\":1}}"),
                format!(
                    "see blob {}.",
                    if form == AddrForm::Sri { addr.clone() } else { addr.to_uppercase() }
                ),
                format!("\u{a0}{addr}7"),
                addr.replace('/', "\\/"),
                addr.trim_end_matches('=').to_owned(),
            ];
            for text in texts {
                assert!(found(text.as_bytes()).iter().any(|addr| digests.fit(addr)), "{text}");
            }
        }
    }

    #[test]
    fn other_words_are_no_addresses() {
        for text in ["", "sha256-", "deadbeef", "no address at all", "\u{1f6e0}"] {
            assert_eq!(found(text.as_bytes()), [], "{text}");
        }
        assert_eq!(found(&[0xff; 100]), []);
    }
}
