//! Positions up to which the lines of each tenant are in the store: notes `journal/{id of the journal}/{tenant}`,
//! written in the commits of the pushes.
//!
//! There is at most one for each tenant and journal. A start and a clean stop delete those of their own journal
//! that its head has passed; a journal that was deleted after a crash leaves its last ones.

use super::{IngestError, Places};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::Tenant;
use windlass_engine::journal::{Journal, JournalError, Place, Position, PositionCheck};
use windlass_engine::{Engine, EngineError};

/// Deletions of one commit.
const DELETED_AT_ONCE: usize = 500;

pub(super) struct Positions {
    journal: Arc<str>,
    by_tenant: Places,
}

/// Note of a tenant.
struct Note {
    key: String,
    tenant: Tenant,
    position: Position,
}

impl Positions {
    /// Reads the positions of this journal, and deletes those without use: the head has passed them, or they
    /// belong to other files, as after the folder was restored from a backup.
    pub(super) async fn load(engine: &Engine, journal: &Journal) -> Result<Positions, IngestError> {
        // There is an id wherever there are lines.
        let mut positions =
            Positions { journal: journal.id().unwrap_or_default(), by_tenant: BTreeMap::new() };
        let (mut useless, mut found) = (Vec::new(), Vec::new());
        let prefix = positions.prefix();
        for (key, value) in engine.notes(&prefix).await? {
            let tenant = Tenant::new(&key[prefix.len()..]).ok();
            match (tenant, Position::decode(&value)) {
                (Some(tenant), Some(position)) => found.push(Note { key, tenant, position }),
                (None, _) | (_, None) => useless.push(key),
            }
        }
        for (Note { key, tenant, position }, check) in compare(journal, found).await? {
            match check {
                PositionCheck::Present => {
                    positions.by_tenant.insert(tenant, position.place);
                }
                PositionCheck::Passed => useless.push(key),
                PositionCheck::Foreign => {
                    tracing::warn!(
                        "the journal files were changed: line {} is not at its recorded \
                         position; lines of tenant {tenant} are read from the recorded head",
                        position.line
                    );
                    useless.push(key);
                }
            }
        }
        for keys in useless.chunks(DELETED_AT_ONCE) {
            engine.drop_notes(keys).await?;
        }
        Ok(positions)
    }

    pub(super) fn key(&self, tenant: &Tenant) -> String {
        format!("{}{tenant}", self.prefix())
    }

    fn prefix(&self) -> String {
        format!("journal/{}/", self.journal)
    }

    /// True if the line at this place is in the store.
    pub(super) fn covers(&self, tenant: &Tenant, place: Place) -> bool {
        self.by_tenant.get(tenant).is_some_and(|position| place <= *position)
    }

    pub(super) fn advance(&mut self, tenant: Tenant, place: Place) {
        self.by_tenant.insert(tenant, place);
    }

    pub(super) fn places(&self) -> &Places {
        &self.by_tenant
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_tenant.is_empty()
    }
}

/// Compares the positions with the files, which are read for it.
async fn compare(journal: &Journal, notes: Vec<Note>) -> Result<Vec<(Note, PositionCheck)>, IngestError> {
    let journal = journal.clone();
    let check = move |note: Note| journal.check_position(&note.position).map(|check| (note, check));
    let check_all = move || notes.into_iter().map(check).collect::<Result<Vec<_>, JournalError>>();
    match tokio::task::spawn_blocking(check_all).await {
        Ok(checked) => Ok(checked?),
        // The runtime is shutting down.
        Err(_) => Err(EngineError::ShuttingDown.into()),
    }
}
