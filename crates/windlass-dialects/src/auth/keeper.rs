//! Tokens in the store: created, rotated and revoked while the server runs, and known to every server on the
//! same store.
//!
//! | note in the store | contents |
//! |---|---|
//! | `token/<prefix>` | a [`TokenRecord`] as JSON |
//! | `token-revoked/<prefix>` | time at which a token of the configuration was revoked, so that it stays revoked after a restart |
//! | `token-use/<prefix>` | time of the last use, to the minute |

use super::tokens::{BadToken, Listed, TokenRecord, TokenSource, Tokens, generate_token};
use super::{Caller, Role};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::{Tenant, Timestamp};
use windlass_engine::{Engine, EngineError};

const KEPT: &str = "token/";
const REVOKED: &str = "token-revoked/";
const USED: &str = "token-use/";

/// Time for which a token that was revoked at another server may still be accepted here.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Resolution of the stored last use.
const USE_EVERY_MS: i64 = 60_000;
/// Most tokens in the store. Every server on the store reads all of them every second.
const TOKENS_MAX: usize = 10_000;

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("no token {0}; list the tokens with `windlass token list`")]
    NotFound(String),
    #[error("{0} is the last admin token; create another admin token first")]
    LastAdmin(String),
    #[error("token {0} is set in the configuration of the server; rotate it there")]
    Configured(String),
    #[error("the maximum of {TOKENS_MAX} tokens is reached; revoke unused ones")]
    TooMany,
    #[error("cannot read random numbers: {0}")]
    NoChance(getrandom::Error),
    #[error(transparent)]
    Bad(#[from] BadToken),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Properties of a new token.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub tenant: Tenant,
    pub role: Role,
    pub note: String,
    pub expires_at: Option<Timestamp>,
    /// Same as in [`TokenRecord`].
    pub queues: Vec<String>,
}

/// Reads the tokens of the store, once at start before the ports are open.
pub async fn load(engine: &Engine, tokens: &Tokens) -> Result<(), TokenError> {
    let _keeping = tokens.keeping.lock().await;
    read(engine, tokens).await
}

async fn read(engine: &Engine, tokens: &Tokens) -> Result<(), TokenError> {
    let mut records = Vec::new();
    for (key, value) in engine.notes(KEPT).await? {
        match serde_json::from_slice::<TokenRecord>(&value) {
            Ok(record) => records.push(record),
            // The unreadable token is refused; the other tokens and the revocations are still loaded.
            Err(error) => tracing::warn!("token {key} is ignored: cannot read its record: {error}"),
        }
    }
    let revoked = engine.notes(REVOKED).await?;
    let revoked: HashSet<String> =
        revoked.into_iter().filter_map(|(key, _)| key.strip_prefix(REVOKED).map(str::to_owned)).collect();
    Ok(tokens.replace_stored(records, &revoked)?)
}

/// Reads changes by other servers on the store, and stores the last uses of tokens. Never returns.
pub async fn follow(engine: Engine, tokens: Arc<Tokens>) {
    let mut written = HashMap::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if engine.is_shared()
            && let Err(error) = load(&engine, &tokens).await
        {
            tracing::warn!(%error, "cannot read the tokens created or revoked on other servers; retrying");
        }
        if let Err(error) = keep_uses(&engine, &tokens, &mut written).await {
            tracing::debug!(%error, "cannot store when tokens were last used; retrying");
        }
    }
}

/// Stores uses that are a minute newer than the stored ones.
async fn keep_uses(
    engine: &Engine,
    tokens: &Tokens,
    written: &mut HashMap<String, Timestamp>,
) -> Result<(), EngineError> {
    for Listed { record: TokenRecord { prefix, .. }, last_used_at, .. } in tokens.list() {
        let Some(used) = last_used_at else { continue };
        let is_known =
            written.get(&prefix).is_some_and(|at| used.as_millis() - at.as_millis() < USE_EVERY_MS);
        if !is_known {
            engine.put_note(&format!("{USED}{prefix}"), Some(used.as_millis().to_string().into())).await?;
            written.insert(prefix, used);
        }
    }
    Ok(())
}

/// All tokens, with their last use at any server.
pub async fn list(engine: &Engine, tokens: &Tokens) -> Result<Vec<Listed>, TokenError> {
    let kept: HashMap<String, Timestamp> = engine
        .notes(USED)
        .await?
        .into_iter()
        .filter_map(|(key, value)| {
            let ms = std::str::from_utf8(&value).ok()?.parse().ok()?;
            Some((key.strip_prefix(USED)?.to_owned(), Timestamp::from_millis(ms)))
        })
        .collect();
    let mut all = tokens.list();
    for listed in &mut all {
        listed.last_used_at = listed.last_used_at.max(kept.get(&listed.record.prefix).copied());
    }
    Ok(all)
}

/// Creates a token. Only the response contains it; the store has its hash.
pub async fn create(
    engine: &Engine,
    tokens: &Tokens,
    by: &Caller,
    new: NewToken,
) -> Result<(String, TokenRecord), TokenError> {
    let _keeping = tokens.keeping.lock().await;
    if tokens.list().len() >= TOKENS_MAX {
        return Err(TokenError::TooMany);
    }
    let (token, record) = keep_new(engine, tokens, new).await?;
    log_change("created", &record, by);
    Ok((token, record))
}

async fn keep_new(
    engine: &Engine,
    tokens: &Tokens,
    new: NewToken,
) -> Result<(String, TokenRecord), TokenError> {
    let token = loop {
        let token = generate_token().map_err(TokenError::NoChance)?;
        // The public part has 32 bits, so another token may have the same.
        if tokens.get(&token[3..11]).is_none() {
            break token;
        }
    };
    let record = TokenRecord {
        created_at: Some(engine.now()),
        note: new.note,
        queues: new.queues,
        ..TokenRecord::of(&token, new.tenant, new.role, new.expires_at)?
    };
    record.scope()?;
    keep(engine, &record).await?;
    tokens.insert(record.clone(), TokenSource::Store)?;
    Ok((token, record))
}

async fn keep(engine: &Engine, record: &TokenRecord) -> Result<(), TokenError> {
    let value = serde_json::to_vec(record).map_err(|error| BadToken::Stored(error.to_string()))?;
    Ok(engine.put_note(&format!("{KEPT}{}", record.prefix), Some(value)).await?)
}

/// Creates a new token for the same holder; the old one stays valid for `grace_ms`, or until its own expiry.
pub async fn rotate(
    engine: &Engine,
    tokens: &Tokens,
    by: &Caller,
    prefix: &str,
    grace_ms: i64,
) -> Result<(String, TokenRecord), TokenError> {
    let _keeping = tokens.keeping.lock().await;
    let old = tokens.get(prefix).ok_or_else(|| TokenError::NotFound(prefix.to_owned()))?;
    if old.source == TokenSource::Configuration {
        return Err(TokenError::Configured(prefix.to_owned()));
    }
    let old = old.record;
    // A token with a limited lifetime is replaced by one with the same lifetime.
    let lifetime_ms = old.created_at.zip(old.expires_at).map(|(from, to)| to.as_millis() - from.as_millis());
    let now = engine.now();
    let new = NewToken {
        tenant: old.tenant.clone(),
        role: old.role,
        note: old.note.clone(),
        queues: old.queues.clone(),
        expires_at: lifetime_ms.map(|ms| now.plus_ms(ms)),
    };
    let (token, record) = keep_new(engine, tokens, new).await?;
    let end = now.plus_ms(grace_ms.max(0));
    let old = TokenRecord { expires_at: Some(old.expires_at.map_or(end, |at| at.min(end))), ..old };
    keep(engine, &old).await?;
    tokens.insert(old.clone(), TokenSource::Store)?;
    log_change("rotated", &old, by);
    Ok((token, record))
}

/// Revokes a token: at this server at once, at others on the store within seconds.
pub async fn revoke(engine: &Engine, tokens: &Tokens, by: &Caller, prefix: &str) -> Result<(), TokenError> {
    let _keeping = tokens.keeping.lock().await;
    let found = tokens.get(prefix).ok_or_else(|| TokenError::NotFound(prefix.to_owned()))?;
    let now = engine.now();
    let is_admin =
        |record: &TokenRecord| record.role == Role::Admin && record.expires_at.is_none_or(|at| now < at);
    let others = tokens.list().into_iter().filter(|other| other.record.prefix != prefix);
    if is_admin(&found.record) && !others.into_iter().any(|other| is_admin(&other.record)) {
        return Err(TokenError::LastAdmin(prefix.to_owned()));
    }
    match found.source {
        TokenSource::Store => engine.put_note(&format!("{KEPT}{prefix}"), None).await?,
        TokenSource::Configuration => {
            let at = now.as_millis().to_string();
            engine.put_note(&format!("{REVOKED}{prefix}"), Some(at.into())).await?;
        }
    }
    tokens.revoke(prefix);
    engine.put_note(&format!("{USED}{prefix}"), None).await?;
    log_change("revoked", &found.record, by);
    Ok(())
}

/// Logs every change of the tokens.
fn log_change(what: &str, record: &TokenRecord, by: &Caller) {
    let TokenRecord { prefix, tenant, role, note, queues, .. } = record;
    tracing::info!(token = %prefix, %tenant, %role, ?queues, name = %note, by = %by.who, "token {prefix} {what}");
}
