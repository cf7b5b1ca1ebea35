//! Handlers: kept in the store, every version of them, the newest in force.

use super::wire::HandlerText;
use std::sync::Arc;
use windlass_core::{Name, Tenant};
use windlass_engine::{Engine, EngineError};

/// Versions of one handler that are kept, the newest ones: enough to look back, few enough to be read with each batch.
const VERSIONS_KEPT: usize = 20;

const NOTES: &str = "miniq/handler/";

/// No type has a slash in it, so no handler's key begins with another's.
fn prefix(client: &Tenant, jobtype: &Name) -> String {
    format!("{NOTES}{client}/{jobtype}/")
}

/// A handler and which of its versions it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    pub id: String,
    /// May be long, and is handed around with each batch.
    pub handler: Arc<HandlerText>,
}

/// The newest version, by its id.
pub async fn newest(
    engine: &Engine,
    client: &Tenant,
    jobtype: &Name,
) -> Result<Option<Version>, EngineError> {
    let prefix = prefix(client, jobtype);
    let mut versions = engine.notes(&prefix).await?;
    while let Some((key, value)) = versions.pop() {
        match serde_json::from_slice(&value) {
            Ok(handler) => {
                let id = key[prefix.len()..].to_owned();
                return Ok(Some(Version { id, handler: Arc::new(handler) }));
            }
            Err(error) => {
                tracing::error!("the handler {key} cannot be read: {error}; the one before it is used")
            }
        }
    }
    Ok(None)
}

/// Adds a version; `id` must sort after those there are.
pub async fn add(
    engine: &Engine,
    client: &Tenant,
    jobtype: &Name,
    id: &str,
    handler: &HandlerText,
) -> Result<(), EngineError> {
    let prefix = prefix(client, jobtype);
    let value = serde_json::to_vec(handler).unwrap_or_default();
    engine.put_note(&format!("{prefix}{id}"), Some(value)).await?;
    let versions = engine.notes(&prefix).await?;
    for (key, _) in versions.iter().rev().skip(VERSIONS_KEPT) {
        engine.put_note(key, None).await?;
    }
    Ok(())
}

/// Removes all versions; how many there were.
pub async fn delete(engine: &Engine, client: &Tenant, jobtype: &Name) -> Result<usize, EngineError> {
    let versions = engine.notes(&prefix(client, jobtype)).await?;
    for (key, _) in &versions {
        engine.put_note(key, None).await?;
    }
    Ok(versions.len())
}

/// The types that the client has handlers for.
pub async fn types(engine: &Engine, client: &Tenant) -> Result<Vec<String>, EngineError> {
    let prefix = format!("{NOTES}{client}/");
    let notes = engine.notes(&prefix).await?;
    let mut types: Vec<String> = notes
        .iter()
        .filter_map(|(key, _)| Some(key[prefix.len()..].rsplit_once('/')?.0.to_owned()))
        .collect();
    types.sort_unstable();
    types.dedup();
    Ok(types)
}

/// Everything that is kept, by client and type, the newest version first; at most `limit` types.
pub async fn all(
    engine: &Engine,
    client: Option<&Tenant>,
    limit: usize,
) -> Result<Vec<(Tenant, String, Vec<Version>)>, EngineError> {
    let prefix = client.map_or_else(|| NOTES.to_owned(), |client| format!("{NOTES}{client}/"));
    let mut found: Vec<(Tenant, String, Vec<Version>)> = Vec::new();
    for (key, value) in engine.notes(&prefix).await? {
        let mut parts = key[NOTES.len()..].rsplitn(2, '/');
        let (Some(id), Some(of)) = (parts.next(), parts.next()) else { continue };
        let Some((client, jobtype)) = of.split_once('/') else { continue };
        let (Ok(client), Ok(handler)) = (Tenant::new(client), serde_json::from_slice(&value)) else {
            continue;
        };
        let version = Version { id: id.to_owned(), handler: Arc::new(handler) };
        let is_full = found.len() == limit;
        match found.last_mut() {
            Some((whose, name, versions)) if *whose == client && name == jobtype => {
                versions.insert(0, version);
            }
            _ if is_full => break,
            _ => found.push((client, jobtype.to_owned(), vec![version])),
        }
    }
    Ok(found)
}
