//! Registry of the classes that have workers, by queue.

use super::errors::Problem;
use super::wire::{Ask, object_of};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use windlass_core::ports::{Declared, Ports};
use windlass_core::{Job, JobId, Name, Queue, Tenant, Timestamp};
use windlass_engine::Engine;

/// Age up to which the cache is valid: other servers on the same store may register classes, too.
const BELIEVED_MS: i64 = 1_000;

#[derive(Default)]
pub(super) struct Registry {
    tenants: Mutex<HashMap<Tenant, Known>>,
}

struct Known {
    read_at: Timestamp,
    queues: Arc<Queues>,
}

/// Classes of all queues of a tenant.
#[derive(Clone, Default)]
pub(super) struct Queues(HashMap<String, Arc<Classes>>);

/// Classes registered for one queue.
#[derive(Default)]
pub(super) struct Classes {
    /// JSON as written by the client.
    pub text: String,
    by_name: BTreeMap<String, Class>,
}

/// Configuration of a class.
#[derive(Clone, Default)]
pub(super) struct Class {
    pub inports: Declared,
    pub outports: Declared,
    /// The class needs no shutdown run, so termination ends the job at once.
    pub without_shutdown: bool,
}

impl Queues {
    pub(super) fn class(&self, queue: &str, class: &str) -> Option<&Class> {
        self.0.get(queue)?.by_name.get(class)
    }

    pub(super) fn class_of(&self, job: &Job) -> Option<&Class> {
        self.class(&job.spec.queue, &job.spec.name)
    }

    pub(super) fn queue(&self, queue: &str) -> Option<&Arc<Classes>> {
        self.0.get(queue)
    }
}

impl Class {
    fn read(config: &Ask<'_>) -> Result<Class, Problem> {
        let class = Class {
            inports: config.configured("inports")?.unwrap_or_default(),
            outports: config.configured("outports")?.unwrap_or_default(),
            without_shutdown: config.raw("shutdown") == Some("false"),
        };
        // Validates port names at registration, not at the creation of the first job.
        ports(placeholder_id(), class.inports.clone(), class.outports.clone())?;
        Ok(class)
    }

    /// Merges the ports of the class with the given ones, which override ports of the same name.
    pub(super) fn with(&self, inports: Declared, outports: Declared) -> (Declared, Declared) {
        let mut all = (self.inports.clone(), self.outports.clone());
        all.0.extend(inports);
        all.1.extend(outports);
        all
    }
}

/// Builds the ports of a new job or of a class.
pub(super) fn ports(id: JobId, inports: Declared, outports: Declared) -> Result<Ports, Problem> {
    Ports::new(inports, outports).map_err(|error| Problem::port(id, &error))
}

/// Placeholder id for messages about the ports of a class.
fn placeholder_id() -> JobId {
    JobId::new(u64::MAX).unwrap_or_else(|| unreachable!("it is not zero"))
}

impl Classes {
    pub(super) fn read(bytes: &[u8]) -> Result<Classes, Problem> {
        let ask = Ask::read(bytes)?;
        let mut by_name = BTreeMap::new();
        for (name, written) in ask.fields() {
            Name::new(name)?;
            let Some(config) = object_of(written) else {
                return Err(Problem::refused(format!("the configuration of class {name} must be an object")));
            };
            by_name.insert(name.to_owned(), Class::read(&config)?);
        }
        let text = String::from_utf8_lossy(bytes).trim().to_owned();
        Ok(Classes { text: if text.is_empty() { "{}".to_owned() } else { text }, by_name })
    }
}

impl Registry {
    /// Replaces all classes of the queue.
    pub(super) async fn register(
        &self,
        engine: &Engine,
        tenant: &Tenant,
        queue: &Queue,
        classes: Classes,
    ) -> Result<(), Problem> {
        let value = classes.text.clone().into_bytes();
        engine.put_note(&format!("{}{queue}", prefix(tenant)), Some(value)).await?;
        let known = self.read(engine, tenant).await?;
        self.tenants().insert(tenant.clone(), known);
        Ok(())
    }

    pub(super) async fn queues(&self, engine: &Engine, tenant: &Tenant) -> Result<Arc<Queues>, Problem> {
        let now = engine.now();
        if let Some(known) = self.tenants().get(tenant)
            && now.since_ms(known.read_at) < BELIEVED_MS
        {
            return Ok(Arc::clone(&known.queues));
        }
        let known = self.read(engine, tenant).await?;
        let queues = Arc::clone(&known.queues);
        self.tenants().insert(tenant.clone(), known);
        Ok(queues)
    }

    async fn read(&self, engine: &Engine, tenant: &Tenant) -> Result<Known, Problem> {
        let read_at = engine.now();
        let prefix = prefix(tenant);
        let before = self.tenants().get(tenant).map(|known| Arc::clone(&known.queues)).unwrap_or_default();
        let mut queues = Queues::default();
        for (key, value) in engine.notes(&prefix).await? {
            let queue = &key[prefix.len()..];
            // Parses only entries that changed: they seldom do, and this runs every second.
            let classes = match before.queue(queue).filter(|known| known.text.as_bytes() == &value[..]) {
                Some(known) => Arc::clone(known),
                None => Arc::new(Classes::read(&value).unwrap_or_default()),
            };
            queues.0.insert(queue.to_owned(), classes);
        }
        Ok(Known { read_at, queues: Arc::new(queues) })
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<Tenant, Known>> {
        self.tenants.lock()
    }
}

fn prefix(tenant: &Tenant) -> String {
    format!("sidejob/workers/{tenant}/")
}
