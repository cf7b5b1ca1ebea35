//! Who is calling: tokens, roles, tenants.
//!
//! A token reads `wl_<8 hex>_<64 hex>`. The first part is public and finds the record; the second is 256 random bits, of
//! which the server keeps only the SHA-256 (so much chance needs no slow hash). Every request is checked anew: a token
//! that was revoked is refused on connections that are already open, too.

use ::http::StatusCode;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use subtle::ConstantTimeEq;
use windlass_core::{Tenant, Timestamp};

#[cfg(test)]
mod tests;

/// What a caller may do; each role may do what the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look.
    Viewer,
    /// Push, claim, settle.
    Worker,
    /// Change, cancel and delete jobs; pause queues; set limits.
    Operator,
    /// The same for every tenant, and the server as a whole.
    Admin,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Viewer, Role::Worker, Role::Operator, Role::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Worker => "worker",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    /// Whether payloads, results and errors are shown to this role; `hidden` is `auth.viewer_payloads = hide`.
    pub fn sees_payloads(self, hidden: bool) -> bool {
        !hidden || self > Role::Viewer
    }

    pub fn parse(text: &str) -> Option<Role> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who is calling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub tenant: Tenant,
    pub role: Role,
    /// What people know them by: the note of their token, or its public part.
    pub who: Arc<str>,
}

/// Whoever calls where no token is needed.
const ANYONE: &str = "anyone";

impl Caller {
    /// Somebody without a token.
    pub fn unnamed(role: Role) -> Caller {
        Caller { tenant: Tenant::default(), role, who: ANYONE.into() }
    }

    /// The tenant a call is about. Only an admin may name another than their own.
    pub fn tenant_for(&self, asked: Option<&str>) -> Result<Tenant, BadTenant> {
        match asked {
            None => Ok(self.tenant.clone()),
            Some(asked) if asked == self.tenant.as_str() => Ok(self.tenant.clone()),
            Some(_) if self.role < Role::Admin => Err(BadTenant::NotYours),
            Some(asked) => Tenant::new(asked).map_err(|e| BadTenant::Name(e.to_string())),
        }
    }

    /// The tenants a look around is about: an admin who names none sees all.
    pub fn tenants_for(&self, asked: Option<&str>) -> Result<Option<Tenant>, BadTenant> {
        match asked {
            None if self.role == Role::Admin => Ok(None),
            asked => self.tenant_for(asked).map(Some),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTenant {
    #[error("only an admin may name another tenant; leave `tenant` out")]
    NotYours,
    #[error("{0}")]
    Name(String),
}

impl BadTenant {
    pub fn status(&self) -> StatusCode {
        match self {
            BadTenant::NotYours => StatusCode::FORBIDDEN,
            BadTenant::Name(_) => StatusCode::BAD_REQUEST,
        }
    }
}

/// A token as the server knows it. Holds nothing that lets anyone in.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TokenRecord {
    /// The public part.
    pub prefix: String,
    /// SHA-256 of the whole token, in hex.
    pub hash: String,
    pub tenant: Tenant,
    pub role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Settings of the store whose keys begin so each hold one [`TokenRecord`] as JSON.
pub const SETTING_PREFIX: &str = "token/";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    #[error("a token looks like wl_<8 hex digits>_<64 hex digits>")]
    Shape,
    #[error("the hash of token {prefix} is not 64 hex digits")]
    Hash { prefix: String },
    #[error("two tokens have the public part {prefix}")]
    Twice { prefix: String },
    #[error("a stored token cannot be read: {0}")]
    Stored(String),
}

impl TokenRecord {
    /// What to keep of a token that was made or configured in the clear.
    pub fn of(
        token: &str,
        tenant: Tenant,
        role: Role,
        expires_at: Option<Timestamp>,
    ) -> Result<Self, BadToken> {
        let prefix = public_part(token).ok_or(BadToken::Shape)?.to_owned();
        Ok(TokenRecord { prefix, hash: hex(&digest(token)), tenant, role, expires_at, note: String::new() })
    }

    /// Under which key the store keeps it.
    pub fn setting_key(&self) -> String {
        format!("{SETTING_PREFIX}{}", self.prefix)
    }

    pub fn from_setting(value: &[u8]) -> Result<TokenRecord, BadToken> {
        serde_json::from_slice(value).map_err(|e| BadToken::Stored(e.to_string()))
    }
}

/// A new token: show it once, keep `TokenRecord::of` it.
pub fn generate_token() -> Result<String, getrandom::Error> {
    let mut random = [0_u8; 36];
    getrandom::fill(&mut random)?;
    Ok(format!("wl_{}_{}", hex(&random[..4]), hex(&random[4..])))
}

/// The tokens in force. Shared: changes hold for the next request.
#[derive(Default)]
pub struct Tokens {
    /// Set with the first token and never cleared: revoking the last one must not open the server.
    needed: AtomicBool,
    by_prefix: RwLock<HashMap<String, Known>>,
}

#[derive(Clone)]
struct Known {
    hash: [u8; 32],
    caller: Caller,
    expires_at: Option<Timestamp>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.by_prefix.read().unwrap_or_else(PoisonError::into_inner).len();
        write!(f, "{count} tokens")
    }
}

impl Tokens {
    /// No tokens: the server is open, and everyone is admin of the tenant `default`.
    pub fn open() -> Arc<Tokens> {
        Arc::default()
    }

    /// A token is needed, though there may be none yet.
    pub fn new(records: impl IntoIterator<Item = TokenRecord>) -> Result<Tokens, BadToken> {
        let tokens = Tokens { needed: AtomicBool::new(true), ..Tokens::default() };
        for record in records {
            let prefix = record.prefix.clone();
            if !tokens.insert(record)? {
                return Err(BadToken::Twice { prefix });
            }
        }
        Ok(tokens)
    }

    /// `false`: there was one with this public part already, which is now replaced.
    pub fn insert(&self, record: TokenRecord) -> Result<bool, BadToken> {
        let hash = unhex(&record.hash).ok_or_else(|| BadToken::Hash { prefix: record.prefix.clone() })?;
        let who = if record.note.is_empty() { format!("wl_{}", record.prefix) } else { record.note };
        let caller = Caller { tenant: record.tenant, role: record.role, who: who.into() };
        let known = Known { hash, caller, expires_at: record.expires_at };
        let mut by_prefix = self.by_prefix.write().unwrap_or_else(PoisonError::into_inner);
        self.needed.store(true, Ordering::Release);
        Ok(by_prefix.insert(record.prefix, known).is_none())
    }

    /// `false`: there was none.
    pub fn revoke(&self, prefix: &str) -> bool {
        self.by_prefix.write().unwrap_or_else(PoisonError::into_inner).remove(prefix).is_some()
    }

    /// Nobody needs a token.
    pub fn is_open(&self) -> bool {
        !self.needed.load(Ordering::Acquire)
    }

    /// Who holds this token. Unknown, wrong and expired tokens take the same path, so that neither the answer nor its
    /// time tells which it was.
    pub fn check(&self, token: &str, now: Timestamp) -> Option<Caller> {
        let prefix = public_part(token).unwrap_or_default();
        let known = {
            let by_prefix = self.by_prefix.read().unwrap_or_else(PoisonError::into_inner);
            by_prefix.get(prefix).cloned()
        };
        let (known, exists) = match known {
            Some(known) => (known, true),
            None => (Known::nobody(), false),
        };
        let right = bool::from(digest(token).ct_eq(&known.hash));
        let live = known.expires_at.is_none_or(|at| now < at);
        (right & live & exists).then_some(known.caller)
    }
}

impl Known {
    fn nobody() -> Known {
        let caller = Caller::unnamed(Role::Viewer);
        Known { hash: [0; 32], caller, expires_at: None }
    }
}

fn public_part(token: &str) -> Option<&str> {
    let (prefix, secret) = token.strip_prefix("wl_")?.split_once('_')?;
    let is_hex = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    (prefix.len() == 8 && secret.len() == 64 && is_hex(prefix) && is_hex(secret)).then_some(prefix)
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        use fmt::Write;
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}
