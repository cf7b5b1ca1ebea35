//! Valid access tokens.
//!
//! A token reads `wl_<8 hex>_<64 hex>`. The first part is public and identifies the record; the second is 256
//! random bits, of which the server stores only the SHA-256 (random secrets need no slow hash). Every request
//! is checked: a revoked token is refused on open connections, too, and waiting calls of its holder end.

use super::{Caller, Role};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use subtle::ConstantTimeEq;
use tokio::sync::watch;
use windlass_core::scope::BadScope;
use windlass_core::{Scope, Tenant, Timestamp};
use windlass_engine::Engine;

/// Stored form of a token. Contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TokenRecord {
    /// The public part.
    pub prefix: String,
    /// SHA-256 of the whole token, in hex.
    pub hash: String,
    pub tenant: Tenant,
    pub role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Description for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Jobs the token can reach, in the syntax of [`Scope::parse`]; empty: all of the tenant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    #[error("invalid token; a token has the form wl_<8 hex digits>_<64 hex digits>")]
    Shape,
    #[error("the hash of token {prefix} is not 64 hex digits")]
    Hash { prefix: String },
    #[error("two tokens have the same public part {prefix}")]
    Twice { prefix: String },
    #[error("invalid queues of token {prefix}: {why}")]
    Queues { prefix: String, why: BadScope },
    #[error("an admin token cannot be restricted to queues; choose another role")]
    AdminOfSome,
    #[error("cannot read a stored token: {0}")]
    Stored(String),
}

impl TokenRecord {
    /// Record of a new token, or of one configured in plain text.
    pub fn of(
        token: &str,
        tenant: Tenant,
        role: Role,
        expires_at: Option<Timestamp>,
    ) -> Result<Self, BadToken> {
        let prefix = public_part(token).ok_or(BadToken::Shape)?.to_owned();
        let hash = hex(&digest(token));
        let (note, queues) = (String::new(), Vec::new());
        Ok(TokenRecord { prefix, hash, tenant, role, created_at: None, expires_at, note, queues })
    }
}

impl TokenRecord {
    /// Jobs the token can reach.
    pub fn scope(&self) -> Result<Scope, BadToken> {
        let bad = |why| BadToken::Queues { prefix: self.prefix.clone(), why };
        let scope = Scope::parse(&self.queues).map_err(bad)?;
        match self.role == Role::Admin && !scope.is_everything() {
            true => Err(BadToken::AdminOfSome),
            false => Ok(scope),
        }
    }
}

/// Creates a token. It is shown once; only `TokenRecord::of` it is stored.
pub fn generate_token() -> Result<String, getrandom::Error> {
    let mut random = [0_u8; 36];
    getrandom::fill(&mut random)?;
    Ok(format!("wl_{}_{}", hex(&random[..4]), hex(&random[4..])))
}

/// Origin of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenSource {
    Configuration,
    Store,
}

impl TokenSource {
    pub fn as_str(self) -> &'static str {
        match self {
            TokenSource::Configuration => "configuration",
            TokenSource::Store => "store",
        }
    }
}

/// Valid token in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub record: TokenRecord,
    pub source: TokenSource,
    /// At this server, since its start.
    pub last_used_at: Option<Timestamp>,
}

/// Table of the valid tokens. Changes apply to the next request.
#[derive(Default)]
pub struct Tokens {
    /// Set by the first token and never cleared: revoking the last token must not open the server.
    needed: AtomicBool,
    by_prefix: RwLock<HashMap<String, Arc<Known>>>,
    /// Number of changes, for callers that wait for a token's end.
    changes: watch::Sender<u64>,
    /// Held while the store and this table change together.
    pub(super) keeping: tokio::sync::Mutex<()>,
}

struct Known {
    record: TokenRecord,
    hash: [u8; 32],
    caller: Caller,
    source: TokenSource,
    /// Milliseconds; `i64::MIN`: never.
    last_used: AtomicI64,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.table().len())
    }
}

impl Tokens {
    /// No tokens: the server is open, and every caller is admin of the tenant `default`.
    pub fn open() -> Arc<Tokens> {
        Arc::default()
    }

    /// A token is required, even if there is none yet.
    pub fn new(records: impl IntoIterator<Item = TokenRecord>) -> Result<Tokens, BadToken> {
        let tokens = Tokens { needed: AtomicBool::new(true), ..Tokens::default() };
        for record in records {
            let prefix = record.prefix.clone();
            if !tokens.insert(record, TokenSource::Configuration)? {
                return Err(BadToken::Twice { prefix });
            }
        }
        Ok(tokens)
    }

    /// Adds a token. Returns false if it replaced one with the same public part.
    pub fn insert(&self, record: TokenRecord, source: TokenSource) -> Result<bool, BadToken> {
        let known = Known::of(record, source)?;
        let is_new = {
            let mut table = self.table_mut();
            self.needed.store(true, Ordering::Release);
            table.insert(known.record.prefix.clone(), Arc::new(known)).is_none()
        };
        self.notify_changed();
        Ok(is_new)
    }

    /// Removes a token. Returns false if it is unknown.
    pub fn revoke(&self, prefix: &str) -> bool {
        let was_there = self.table_mut().remove(prefix).is_some();
        self.notify_changed();
        was_there
    }

    /// Replaces the tokens of the store by `records`, and removes revoked tokens of the configuration.
    pub(super) fn replace_stored(
        &self,
        records: Vec<TokenRecord>,
        revoked: &HashSet<String>,
    ) -> Result<(), BadToken> {
        let known: Vec<Known> = records
            .into_iter()
            .map(|record| Known::of(record, TokenSource::Store))
            .collect::<Result<_, _>>()?;
        let has_changed = {
            let mut table = self.table_mut();
            let before: HashMap<String, Arc<Known>> = std::mem::take(&mut *table);
            let mut has_changed = false;
            for known in known {
                self.needed.store(true, Ordering::Release);
                let kept = before.get(&known.record.prefix).filter(|before| before.record == known.record);
                has_changed |= kept.is_none();
                let kept = kept.cloned().unwrap_or_else(|| Arc::new(known));
                table.insert(kept.record.prefix.clone(), kept);
            }
            for (prefix, known) in before {
                let is_configured = known.source == TokenSource::Configuration && !revoked.contains(&prefix);
                if is_configured && !table.contains_key(&prefix) {
                    table.insert(prefix, known);
                } else {
                    has_changed |= !table.contains_key(&prefix);
                }
            }
            has_changed
        };
        if has_changed {
            self.notify_changed();
        }
        Ok(())
    }

    /// All tokens, sorted by public part.
    pub fn list(&self) -> Vec<Listed> {
        let mut all: Vec<Listed> = self.table().values().map(|known| known.listed()).collect();
        all.sort_by(|a, b| a.record.prefix.cmp(&b.record.prefix));
        all
    }

    pub fn get(&self, prefix: &str) -> Option<Listed> {
        self.table().get(prefix).map(|known| known.listed())
    }

    /// True if no token is required.
    pub fn is_open(&self) -> bool {
        !self.needed.load(Ordering::Acquire)
    }

    /// [`Tokens::is_open`] for a caller that knows nothing of tokens.
    pub fn open_check(self: &Arc<Tokens>) -> impl Fn() -> bool + Send + Sync + use<> {
        let tokens = Arc::clone(self);
        move || tokens.is_open()
    }

    /// Authenticates a token. Unknown, wrong and expired tokens take the same path, so that neither the
    /// response nor its timing shows the difference.
    pub fn check(&self, token: &str, now: Timestamp) -> Option<Caller> {
        let prefix = public_part(token).unwrap_or_default();
        let known = self.table().get(prefix).cloned();
        let hash = known.as_ref().map_or([0; 32], |known| known.hash);
        let right = bool::from(digest(token).ct_eq(&hash));
        let live = known.as_ref().is_none_or(|known| known.is_live(now));
        let known = known.filter(|_| right & live)?;
        known.last_used.fetch_max(now.as_millis(), Ordering::Relaxed);
        Some(known.caller.clone())
    }

    /// Waits until the caller would be refused: the token was revoked or has expired, or a token is required
    /// now and the caller has none.
    pub async fn wait_until_refused(&self, caller: &Caller, engine: &Engine) {
        let mut changes = self.changes.subscribe();
        loop {
            let known = caller.token.as_ref().and_then(|prefix| self.table().get(&**prefix).cloned());
            let expires_at = match (&caller.token, known) {
                (None, _) if self.is_open() => None,
                (Some(_), Some(known)) if known.is_live(engine.now()) => known.record.expires_at,
                _ => return,
            };
            let expired = async {
                match expires_at {
                    Some(at) => engine.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = expired => {}
            }
        }
    }

    fn notify_changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn table(&self) -> RwLockReadGuard<'_, HashMap<String, Arc<Known>>> {
        self.by_prefix.read()
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, HashMap<String, Arc<Known>>> {
        self.by_prefix.write()
    }
}

impl Known {
    fn of(record: TokenRecord, source: TokenSource) -> Result<Known, BadToken> {
        let hash = unhex(&record.hash).ok_or_else(|| BadToken::Hash { prefix: record.prefix.clone() })?;
        let scope = record.scope()?;
        let who = match record.note.as_str() {
            "" => format!("wl_{}", record.prefix),
            note => note.to_owned(),
        };
        let caller = Caller {
            tenant: record.tenant.clone(),
            role: record.role,
            scope,
            who: who.into(),
            token: Some(record.prefix.as_str().into()),
        };
        Ok(Known { record, hash, caller, source, last_used: AtomicI64::new(i64::MIN) })
    }

    fn is_live(&self, now: Timestamp) -> bool {
        self.record.expires_at.is_none_or(|at| now < at)
    }

    fn listed(&self) -> Listed {
        let last_used = Some(self.last_used.load(Ordering::Relaxed)).filter(|ms| *ms != i64::MIN);
        Listed {
            record: self.record.clone(),
            source: self.source,
            last_used_at: last_used.map(Timestamp::from_millis),
        }
    }
}

pub(super) fn public_part(token: &str) -> Option<&str> {
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
