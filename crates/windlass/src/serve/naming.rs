//! A name for this server among those on its store, before anybody can reach it.

use crate::fault::{Fault, Outcome};
use tracing::{info, warn};
use windlass_dialects::miniq::Settings;
use windlass_dialects::miniq::sysid::{self, NoSysid};
use windlass_engine::Engine;

/// Where no name is free the server does not start. A store that does not answer is no such case: what is added meanwhile is
/// journaled, and the name is found when the store is back.
pub async fn named(settings: Settings, engine: &Engine) -> Outcome<Settings> {
    match sysid::end_locks_of_the_gone(engine).await {
        Ok(0) => {}
        Ok(jobs) => info!("jobs that this server was running when it was killed are run again: {jobs}"),
        Err(error) => warn!("jobs of a server that was killed wait for the end of their locks: {error}"),
    }
    match sysid::find_free(engine, &settings.host).await {
        Ok(sysid) => Ok(Settings { sysid: Some(sysid), ..settings }),
        Err(NoSysid::Store(error)) => {
            warn!("whether names of servers are free is not known: {error}");
            Ok(settings)
        }
        Err(error @ NoSysid::TooManyTries) => Err(Fault::failed(format!(
            "{error}: every name for this server that was tried is reserved in the store; names of servers that are gone \
             are free after {} minutes, so wait, or give this machine another host name (now {:?})",
            sysid::RESERVED_MS / 60_000,
            settings.host
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use windlass_engine::{Dice, ManualClock, Options};
    use windlass_store::faulty::{Call, FaultyStore, Kind};
    use windlass_store::memory::MemoryStore;

    /// Always the same throw, so always the same name.
    struct Loaded;

    impl Dice for Loaded {
        fn roll(&self) -> u64 {
            7
        }
    }

    #[tokio::test]
    async fn a_server_without_a_free_name_does_not_start_and_says_what_to_do() {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryStore::shared());
        let engine = Engine::start(store, clock, Arc::new(Loaded), Options::default()).await.unwrap();
        let settings = Settings { host: "host".to_owned(), ..Settings::default() };
        let named = named(settings.clone(), &engine).await.unwrap();
        assert_eq!(named.sysid.as_deref(), Some("ht-0007"));
        let held = sysid::reserve(&engine, "host", "ht-0007").await.unwrap();
        let fault = super::named(settings.clone(), &engine).await.unwrap_err();
        assert_eq!(fault.exit_code(), 1);
        let text = fault.to_string();
        assert!(text.starts_with("getSysid: too many tries: ") && text.contains("30 minutes"), "{text}");
        held.release(&engine).await.unwrap();
        assert!(super::named(settings, &engine).await.is_ok());
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_reached_keeps_no_server_from_starting() {
        let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::shared()));
        let (clock, dice) = (Arc::new(ManualClock::default()), Arc::new(Loaded));
        let engine = Engine::start(store, clock, dice, Options::default()).await.unwrap();
        faults.fail_next_call(Call::Read, 1, Kind::BeforeDoing);
        assert_eq!(named(Settings::default(), &engine).await.unwrap().sysid, None);
        assert!(named(Settings::default(), &engine).await.unwrap().sysid.is_some());
    }
}
