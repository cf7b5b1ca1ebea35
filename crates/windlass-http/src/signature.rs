//! Signatures of the server's outgoing requests: the receiver can verify that this server sent the request,
//! for this tenant, and recently. The form is common for webhooks:
//!
//! ```text
//! Windlass-Signature: t=1893456000,v1=<hex of HMAC-SHA256(key, "1893456000." + body)>
//! ```
//!
//! Every tenant has a key of its own, derived from the server's: none can sign for another.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt::{self, Write};
use std::sync::Arc;

pub const HEADER: &str = "windlass-signature";
/// Shorter keys can be guessed.
const KEY_BYTES_MIN: usize = 32;

#[derive(Clone)]
pub struct Signer {
    key: Arc<str>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a signing key must have at least {KEY_BYTES_MIN} characters; create one with: openssl rand -hex 32")]
pub struct ShortKey;

impl Signer {
    pub fn new(key: &str) -> Result<Signer, ShortKey> {
        if key.len() < KEY_BYTES_MIN {
            return Err(ShortKey);
        }
        Ok(Signer { key: key.into() })
    }

    /// Key of this tenant's requests, for its receivers.
    pub fn key_of(&self, tenant: &str) -> String {
        hex(&mac(self.key.as_bytes(), &[b"windlass-signature/", tenant.as_bytes()]))
    }

    /// Header value for a body sent at this Unix time in seconds.
    pub fn sign(&self, tenant: &str, at_s: u64, body: &[u8]) -> String {
        let key = self.key_of(tenant);
        let signature = mac(key.as_bytes(), &[at_s.to_string().as_bytes(), b".", body]);
        format!("t={at_s},v1={}", hex(&signature))
    }

    /// Header value for a body sent now.
    pub fn sign_now(&self, tenant: &str, body: &[u8]) -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        self.sign(tenant, now.unwrap_or_default().as_secs(), body)
    }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    // HMAC accepts keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_that_of_the_standard() {
        // RFC 4231, test case 2.
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex(&mac(b"Jefe", &[b"what do ya want ", b"for nothing?"])), expected);
    }

    #[test]
    fn a_signature_is_about_one_tenant_one_moment_and_one_body() {
        let signer = Signer::new(&"k".repeat(32)).unwrap();
        let signed = signer.sign("shop", 100, b"body");
        assert!(signed.starts_with("t=100,v1=") && signed.len() == 9 + 64, "{signed}");
        assert_eq!(signer.sign("shop", 100, b"body"), signed);
        let others = [
            signer.sign("shop", 101, b"body"),
            signer.sign("shop", 100, b"bodx"),
            signer.sign("b", 100, b"body"),
        ];
        for other in &others {
            assert_ne!(other[other.len() - 64..], signed[signed.len() - 64..]);
        }
        assert!(Signer::new("short").is_err());
        assert!(!format!("{signer:?}").contains("kkk"));
    }
}
