//! Handlers in the store. Every version is stored; the newest applies.

use super::{State, commands};
use crate::registered_handlers::{HandlerVersion, RegisteredHandler};
use std::sync::Arc;
use windlass_core::handler::HandlerText;
use windlass_core::{Name, Tenant};
use windlass_engine::{Engine, EngineError};

/// Versions kept of one handler.
const VERSIONS_KEPT: usize = 20;

/// Most bytes of handler texts read for one list. Further handlers are listed without their text.
const SHOWN_BYTES_MAX: usize = 4 << 20;

const NOTES: &str = "miniq/handler/";

/// A type has no slash, so no handler's key is a prefix of another's.
fn prefix(client: &Tenant, jobtype: &Name) -> String {
    format!("{NOTES}{client}/{jobtype}/")
}

/// Version of a handler.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    pub id: String,
    /// May be long, and is shared by the batches.
    pub handler: Arc<HandlerText>,
}

/// Newest version, by its id. The known version is not read again.
pub async fn newest(
    engine: &Engine,
    client: &Tenant,
    jobtype: &Name,
    known: Option<&Version>,
) -> Result<Option<Version>, EngineError> {
    let prefix = prefix(client, jobtype);
    let mut keys = engine.note_keys(&prefix).await?;
    while let Some(key) = keys.pop() {
        let id = &key[prefix.len()..];
        if let Some(known) = known.filter(|known| known.id == id) {
            return Ok(Some(known.clone()));
        }
        // May have been deleted meanwhile.
        let Some(text) = text_of(engine, &key).await? else { continue };
        match serde_json::from_slice(&text) {
            Ok(handler) => return Ok(Some(Version { id: id.to_owned(), handler: Arc::new(handler) })),
            Err(error) => {
                tracing::error!("cannot read handler {key}: {error}; the previous version is used")
            }
        }
    }
    Ok(None)
}

async fn text_of(engine: &Engine, key: &str) -> Result<Option<Vec<u8>>, EngineError> {
    let found = engine.notes(key).await?;
    Ok(found.into_iter().find(|(found, _)| found == key).map(|(_, value)| value))
}

/// Adds a version; `id` must sort after the existing ones.
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
    let keys = engine.note_keys(&prefix).await?;
    for key in keys.iter().rev().skip(VERSIONS_KEPT) {
        engine.put_note(key, None).await?;
    }
    Ok(())
}

/// Deletes all versions and returns their number.
pub async fn delete(engine: &Engine, client: &Tenant, jobtype: &Name) -> Result<usize, EngineError> {
    let keys = engine.note_keys(&prefix(client, jobtype)).await?;
    for key in &keys {
        engine.put_note(key, None).await?;
    }
    Ok(keys.len())
}

/// Types for which the client has handlers.
pub async fn types(engine: &Engine, client: &Tenant) -> Result<Vec<String>, EngineError> {
    let prefix = format!("{NOTES}{client}/");
    let keys = engine.note_keys(&prefix).await?;
    let mut types: Vec<String> =
        keys.iter().filter_map(|key| Some(key[prefix.len()..].rsplit_once('/')?.0.to_owned())).collect();
    types.sort_unstable();
    types.dedup();
    Ok(types)
}

/// Version in a list, with its text if that was read.
pub struct HandlerView {
    pub id: String,
    pub handler: Option<HandlerText>,
}

/// All handlers by client and type, newest version first, at most `limit` types. Texts are read up to a size
/// limit, those of newest versions first.
pub async fn all(
    engine: &Engine,
    client: Option<&Tenant>,
    limit: usize,
) -> Result<Vec<(Tenant, String, Vec<HandlerView>)>, EngineError> {
    let prefix = client.map_or_else(|| NOTES.to_owned(), |client| format!("{NOTES}{client}/"));
    let mut found: Vec<(Tenant, String, Vec<HandlerView>)> = Vec::new();
    for key in engine.note_keys(&prefix).await? {
        let mut parts = key[NOTES.len()..].rsplitn(2, '/');
        let (Some(id), Some(of)) = (parts.next(), parts.next()) else { continue };
        let Some((client, jobtype)) = of.split_once('/') else { continue };
        let Ok(client) = Tenant::new(client) else { continue };
        let version = HandlerView { id: id.to_owned(), handler: None };
        let is_full = found.len() == limit;
        match found.last_mut() {
            Some((whose, name, versions)) if *whose == client && name == jobtype => {
                versions.insert(0, version);
            }
            _ if is_full => break,
            _ => found.push((client, jobtype.to_owned(), vec![version])),
        }
    }
    let mut left = SHOWN_BYTES_MAX;
    for age in 0..=VERSIONS_KEPT {
        for (client, jobtype, versions) in &mut found {
            let Some(version) = versions.get_mut(age).filter(|_| left > 0) else { continue };
            let key = format!("{NOTES}{client}/{jobtype}/{}", version.id);
            let Some(text) = text_of(engine, &key).await? else { continue };
            left = left.saturating_sub(text.len());
            version.handler = serde_json::from_slice(&text).ok();
        }
    }
    Ok(found)
}

/// Handlers for the native API.
pub(super) async fn registered(
    state: &State,
    client: Option<&Tenant>,
    limit: usize,
) -> Result<Vec<RegisteredHandler>, EngineError> {
    let found = all(&state.engine, client, limit).await?;
    Ok(found
        .into_iter()
        .map(|(client, jobtype, versions)| describe(state, client, jobtype, versions))
        .collect())
}

fn describe(state: &State, tenant: Tenant, name: String, versions: Vec<HandlerView>) -> RegisteredHandler {
    let in_force = versions.first().and_then(|version| version.handler.as_ref());
    let trouble =
        in_force.zip(state.runners.as_ref()).and_then(|(handler, runners)| runners.check(handler).err());
    let version = |version: HandlerView| HandlerVersion {
        text: version.handler.map(|handler| serde_json::to_value(handler).unwrap_or_default()),
        id: version.id,
    };
    RegisteredHandler {
        dialect: "miniq",
        tenant,
        name,
        queue: commands::QUEUE.to_owned(),
        trouble,
        versions: versions.into_iter().map(version).collect(),
    }
}
