//! Blob addresses: the hash of the bytes, in three notations.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fmt;

/// Notation of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddrForm {
    /// 40 hex digits.
    #[default]
    Sha1,
    /// 64 hex digits.
    Sha256,
    /// `sha256-` and base64, as in subresource integrity.
    Sri,
}

impl AddrForm {
    pub fn parse(word: &str) -> Option<AddrForm> {
        match word {
            "sha1" => Some(AddrForm::Sha1),
            "sha256" => Some(AddrForm::Sha256),
            "sri" => Some(AddrForm::Sri),
            _ => None,
        }
    }
}

/// Requested address: one hash of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlobAddr {
    Sha1([u8; 20]),
    Sha256([u8; 32]),
}

impl BlobAddr {
    /// Parses hex in either case, or SRI with `sha256-` or `sha1-`, and nothing else: a client's text never
    /// reaches the file system.
    pub fn parse(text: &str) -> Option<BlobAddr> {
        if let Some(encoded) = text.strip_prefix("sha256-") {
            return Some(BlobAddr::Sha256(unbase64(encoded)?));
        }
        if let Some(encoded) = text.strip_prefix("sha1-") {
            return Some(BlobAddr::Sha1(unbase64(encoded)?));
        }
        match text.len() {
            40 => Some(BlobAddr::Sha1(unhex(text)?)),
            64 => Some(BlobAddr::Sha256(unhex(text)?)),
            _ => None,
        }
    }
}

impl fmt::Display for BlobAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlobAddr::Sha1(hash) => f.write_str(&hex(hash)),
            BlobAddr::Sha256(hash) => f.write_str(&hex(hash)),
        }
    }
}

/// All hashes of one blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digests {
    pub sha1: [u8; 20],
    pub sha256: [u8; 32],
}

impl Digests {
    pub fn of(bytes: &[u8]) -> Digests {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    pub fn show(&self, form: AddrForm) -> String {
        match form {
            AddrForm::Sha1 => hex(&self.sha1),
            AddrForm::Sha256 => hex(&self.sha256),
            AddrForm::Sri => format!("sha256-{}", LENIENT.encode(self.sha256)),
        }
    }

    pub fn fit(&self, addr: &BlobAddr) -> bool {
        match addr {
            BlobAddr::Sha1(hash) => self.sha1 == *hash,
            BlobAddr::Sha256(hash) => self.sha256 == *hash,
        }
    }
}

/// Incremental hasher.
#[derive(Clone, Default)]
pub struct Hasher {
    sha1: Sha1,
    sha256: Sha256,
    bytes: u64,
}

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.sha1.update(bytes);
        self.sha256.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn finish(self) -> Digests {
        Digests { sha1: self.sha1.finalize().into(), sha256: self.sha256.finalize().into() }
    }
}

/// Encodes with padding, decodes with or without.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

fn unbase64<const N: usize>(text: &str) -> Option<[u8; N]> {
    LENIENT.decode(text).ok()?.try_into().ok()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (value(pair[0])? << 4) | value(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA1: &str = "68d5b57378f76645bf12506c88fb06a81ddb3965";
    const SHA256: &str = "979f59d88a9ea9a2ce524f679861133cdfb7318570302f3147f129a12f2e9698";

    #[test]
    fn every_spelling_of_an_address_finds_the_same_bytes() {
        let digests = Digests::of(b"WILSON!");
        assert_eq!(digests.show(AddrForm::Sha1), SHA1);
        assert_eq!(digests.show(AddrForm::Sha256), SHA256);
        let sri = digests.show(AddrForm::Sri);
        assert_eq!(sri, "sha256-l59Z2IqeqaLOUk9nmGETPN+3MYVwMC8xR/EpoS8ulpg=");
        for text in
            [SHA1, SHA256, &sri, &SHA1.to_uppercase(), &SHA256.to_uppercase(), sri.trim_end_matches('=')]
        {
            assert!(BlobAddr::parse(text).is_some_and(|addr| digests.fit(&addr)), "{text}");
        }
    }

    #[test]
    fn what_is_no_hash_is_no_address() {
        let long = format!("{SHA256}00");
        let tricks =
            ["", ".", "..", "../../etc/passwd", "/etc/passwd", "sha256-", "sha256-../..", "sha512-AAAA"];
        let lengths = [&SHA1[1..], &SHA256[1..], &long, "sha256-l59Z2IqeqaLOUk9nmGETPN+3MYVwMC8xR"];
        let letters =
            ["g8d5b57378f76645bf12506c88fb06a81ddb3965", "+8d5b57378f76645bf12506c88fb06a81ddb3965"];
        let wide = "é".repeat(20);
        for text in tricks.into_iter().chain(lengths).chain(letters).chain([wide.as_str()]) {
            assert_eq!(BlobAddr::parse(text), None, "{text}");
        }
    }
}
