//! Positions up to which the lines of each tenant are in the store: notes `journal/{id of the journal}/{tenant}`,
//! written in the commits of the pushes.
//!
//! There is at most one for each tenant and journal. A start and a clean stop delete those of their own journal
//! that its head has passed; a journal that was deleted after a crash leaves its last ones.

use super::IngestError;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::Tenant;
use windlass_engine::Engine;
use windlass_engine::journal::{Journal, Place, Position, PositionCheck};

/// Deletions of one commit.
const DELETED_AT_ONCE: usize = 500;

pub(super) struct Positions {
    journal: Arc<str>,
    by_tenant: BTreeMap<Tenant, Place>,
}

impl Positions {
    /// Reads the positions of this journal, and deletes those without use: the head has passed them, or they
    /// belong to other files, as after the folder was restored from a backup.
    pub(super) async fn load(engine: &Engine, journal: &Journal) -> Result<Positions, IngestError> {
        // There is an id wherever there are lines.
        let mut positions =
            Positions { journal: journal.id().unwrap_or_default(), by_tenant: BTreeMap::new() };
        let mut useless = Vec::new();
        let prefix = positions.prefix();
        for (key, value) in engine.notes(&prefix).await? {
            let tenant = Tenant::new(&key[prefix.len()..]).ok();
            match (tenant, Position::decode(&value)) {
                (Some(tenant), Some(position)) => match journal.check_position(&position)? {
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
                },
                (None, _) | (_, None) => useless.push(key),
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

    pub(super) fn is_empty(&self) -> bool {
        self.by_tenant.is_empty()
    }
}
