//! Settings of queues that outlive their jobs, such as keep times. They are stored, and apply to all servers of
//! the store.

use crate::engine::Engine;
use crate::error::EngineError;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use windlass_core::{Keep, KeepFor, Queue, Tenant};

/// Prefix of the notes: `queue/<tenant>/<queue>` contains [`QueueSettings`] as JSON.
const NOTES: &str = "queue/";
/// Most queues with settings on one store: all of them are read again whenever another server may have changed
/// them.
const QUEUES_MAX: usize = 10_000;

/// Settings of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct QueueSettings {
    pub keep: KeepSettings,
}

/// Keep times of the jobs of a queue; `None`: the server's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct KeepSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<KeepFor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<KeepFor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<KeepFor>,
}

impl KeepSettings {
    /// Keep times of a job: these, and for the rest `default`.
    pub fn or(self, default: Keep) -> Keep {
        Keep {
            completed: self.completed.unwrap_or(default.completed),
            failed: self.failed.unwrap_or(default.failed),
            cancelled: self.cancelled.unwrap_or(default.cancelled),
        }
    }
}

type ByQueue = FxHashMap<Tenant, FxHashMap<Queue, QueueSettings>>;

/// Settings of all queues that have any.
#[derive(Debug, Default)]
pub(crate) struct QueueTable(RwLock<ByQueue>);

impl QueueTable {
    fn of(&self, tenant: &Tenant, queue: &Queue) -> QueueSettings {
        let queues = self.0.read();
        queues.get(tenant).and_then(|queues| queues.get(queue)).cloned().unwrap_or_default()
    }

    fn set(&self, tenant: &Tenant, queue: &Queue, settings: QueueSettings) {
        self.0.write().entry(tenant.clone()).or_default().insert(queue.clone(), settings);
    }

    fn len(&self) -> usize {
        self.0.read().values().map(FxHashMap::len).sum()
    }
}

impl Engine {
    /// Settings of a queue; the defaults if none were set.
    pub fn queue_settings(&self, tenant: &Tenant, queue: &Queue) -> QueueSettings {
        self.inner.queues.of(tenant, queue)
    }

    /// Sets all settings of a queue, whether or not it has jobs.
    pub async fn set_queue_settings(
        &self,
        tenant: &Tenant,
        queue: &Queue,
        settings: QueueSettings,
    ) -> Result<(), EngineError> {
        self.check_queue(queue)?;
        let is_new = self.inner.queues.of(tenant, queue) == QueueSettings::default();
        if is_new && self.inner.queues.len() >= QUEUES_MAX {
            return Err(EngineError::Quota { what: "queues with settings", max: QUEUES_MAX as u64 });
        }
        let is_default = settings == QueueSettings::default();
        let value = (!is_default).then(|| serde_json::to_vec(&settings).unwrap_or_default());
        self.put_note(&format!("{NOTES}{tenant}/{queue}"), value).await?;
        self.inner.queues.set(tenant, queue, settings);
        Ok(())
    }

    /// Loads the settings that were set here before, or by another server.
    pub(crate) async fn load_queue_settings(&self) -> Result<(), EngineError> {
        let mut loaded = ByQueue::default();
        for (key, value) in self.notes(NOTES).await? {
            let names = key.strip_prefix(NOTES).and_then(|names| names.split_once('/'));
            let names =
                names.and_then(|(tenant, queue)| Some((Tenant::new(tenant).ok()?, Queue::new(queue).ok()?)));
            match (names, serde_json::from_slice(&value)) {
                (Some((tenant, queue)), Ok(settings)) => {
                    loaded.entry(tenant).or_default().insert(queue, settings);
                }
                _ => tracing::warn!("cannot read the stored settings {key}; the defaults apply"),
            }
        }
        *self.inner.queues.0.write() = loaded;
        Ok(())
    }
}
