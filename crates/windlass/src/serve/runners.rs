//! The server's own runner of WASI jobs.

#[cfg(not(feature = "wasi"))]
pub use none::{Runners, start};
#[cfg(feature = "wasi")]
pub(super) use wasi::{Runners, start};

#[cfg(feature = "wasi")]
mod wasi {
    use crate::client::Client;
    use crate::config::Config;
    use crate::fault::{Fault, Outcome};
    use crate::wasi::local::Local;
    use crate::wasi::{Storage, guest_program};
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::watch;
    use tokio::task::JoinHandle;
    use windlass_core::Tenant;
    use windlass_dialects::queuey::{self, in_process_runner::InProcessRunner};
    use windlass_engine::Engine;
    use windlass_runners::wasi::message::Limits;
    use windlass_runners::wasi::runner::{Options, Runner, Stopping};

    /// Runner of jobs inside the server.
    pub(crate) struct Runners {
        wasi: Option<(watch::Sender<Stopping>, JoinHandle<()>)>,
    }

    pub(crate) fn start(config: &Config, engine: &Engine) -> Outcome<Runners> {
        let asked = &config.wasi;
        if asked.workers == 0 {
            return Ok(Runners { wasi: None });
        }
        let tenant =
            Tenant::new(&asked.tenant).map_err(|error| Fault::usage(format!("wasi.tenant: {error}")))?;
        let storage = match &asked.storage_url {
            Some(url) => Some(Storage::new(Client::new(url, None, None)?)),
            None => None,
        };
        let settings: queuey::Settings = config.settings.get();
        let source = Local {
            addresses: settings.addresses,
            runner: InProcessRunner::new(engine.clone(), tenant.clone(), settings),
            engine: engine.clone(),
            tenant,
            storage,
        };
        let limits = Limits {
            time_limit_ms: u64::try_from(asked.time_limit.as_millis()).unwrap_or(u64::MAX),
            memory_bytes_max: asked.memory_bytes_max,
            output_bytes_max: asked.output_bytes_max,
            cache_modules: asked.cache_modules,
        };
        let strict = config.handlers.strict;
        let options = Options { workers: asked.workers, limits, program: guest_program()?, strict };
        let (stop, stopping) = watch::channel(Stopping::No);
        let task = tokio::spawn(Runner::new(Arc::new(source), options, stopping).run());
        Ok(Runners { wasi: Some((stop, task)) })
    }

    impl Runners {
        /// Lets running jobs finish within `grace`, then releases them.
        pub(crate) async fn stop(&mut self, grace: Duration) {
            let Some((stop, mut task)) = self.wasi.take() else { return };
            stop.send_replace(Stopping::Finish);
            if tokio::time::timeout(grace, &mut task).await.is_err() {
                stop.send_replace(Stopping::Now);
                let _ = task.await;
            }
        }
    }
}

#[cfg(not(feature = "wasi"))]
mod none {
    use crate::config::Config;
    use crate::fault::{Fault, Outcome};
    use std::time::Duration;
    use windlass_engine::Engine;

    pub struct Runners;

    pub fn start(config: &Config, _: &Engine) -> Outcome<Runners> {
        if config.wasi.workers > 0 {
            return Err(Fault::usage(
                "wasi.workers must be 0: this binary was built without WASI support (cargo feature \
                 `wasi`)",
            ));
        }
        Ok(Runners)
    }

    impl Runners {
        pub async fn stop(&mut self, _grace: Duration) {}
    }
}
