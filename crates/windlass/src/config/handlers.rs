//! What miniq's jobs live by, what its handlers may have, and where the journal is.

use super::{BadConfig, Found};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use windlass_dialects::journal::Home;
use windlass_dialects::miniq;
use windlass_dialects::miniq::log::LogSettings;
use windlass_dialects::outgoing::Allowed;
use windlass_dialects::signature::Signer;

/// What handlers of miniq's clients may have.
#[derive(Clone, Debug)]
pub struct HandlerConfig {
    pub run: bool,
    pub contexts: usize,
    pub contexts_per_type: usize,
    pub http_batches: usize,
    pub time_limit: Duration,
    pub memory_bytes_max: u64,
    pub disk_bytes_max: u64,
    /// No handler is run where something that should hold it is missing.
    pub strict: bool,
    pub network: HandlerNetwork,
    pub addresses: Arc<Allowed>,
    /// Signs what http handlers are sent.
    pub signer: Option<Signer>,
    /// Certificates that https handlers are believed by, in place of the system's.
    pub ca: Option<PathBuf>,
    pub readable: Vec<PathBuf>,
    /// Zero: contexts are the server's own user.
    pub uid_base: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerNetwork {
    Never,
    Asked,
    Always,
}

/// Lines of one store must never come into another, so every store has a journal of its own: beside the file of an embedded
/// one, and for a database a folder with a number made of its address.
pub(super) fn journal_home(store: &str, data: &Path, store_is_in_data: bool) -> Home {
    if store_is_in_data {
        return Home::Folder(data.join("journal"));
    }
    match store.split_once(':') {
        Some(("memory", _)) => Home::Memory,
        Some(("sqlite", path)) => Home::Folder(PathBuf::from(format!("{path}.lines"))),
        _ => Home::Folder(data.join(format!("journal-{:08x}", address_number(store)))),
    }
}

/// Without the user and the password, which may change.
fn address_number(store: &str) -> u32 {
    let (scheme, rest) = store.split_once("://").unwrap_or(("", store));
    let address = rest.rsplit_once('@').map_or(rest, |(_, address)| address);
    // FNV-1a: a few different addresses need different numbers, nothing more.
    let hash = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    scheme.bytes().chain(address.bytes()).fold(0x811c_9dc5, hash)
}

impl Found<'_> {
    pub(super) fn miniq(&self, store: &str, data: &Path) -> miniq::Settings {
        let ms = |name: &str| self.whole(name).saturating_mul(1_000);
        let path = match self.text("miniq.log_file") {
            "off" => None,
            "" if store == "memory:" => None,
            "" => Some(data.join("jobs.log")),
            path => Some(PathBuf::from(path)),
        };
        let log = path.map(|path| LogSettings {
            path,
            bytes_max: self.whole("miniq.log_bytes_max").unsigned_abs(),
            files_kept: self.count("miniq.log_files_kept"),
        });
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        miniq::Settings {
            lock_ms: ms("miniq.lock_s").max(1_000),
            retry_delay_ms: ms("miniq.retry_delay_s"),
            give_up_after_ms: ms("miniq.give_up_after_s"),
            archive_keep_ms: ms("miniq.archive_keep_s"),
            log,
            host: host.trim().to_owned(),
            sysid: None,
        }
    }

    pub(super) fn handlers(&self) -> Result<HandlerConfig, BadConfig> {
        Ok(HandlerConfig {
            run: self.switch("miniq.run"),
            contexts: self.count("miniq.contexts"),
            contexts_per_type: self.count("miniq.contexts_per_type"),
            http_batches: self.count("miniq.http_batches"),
            time_limit: self.seconds("miniq.time_limit_s"),
            memory_bytes_max: self.count("miniq.memory_bytes_max") as u64,
            disk_bytes_max: self.count("miniq.disk_bytes_max") as u64,
            strict: self.text("runners.isolation") == "strict",
            network: match self.text("miniq.network") {
                "always" => HandlerNetwork::Always,
                "asked" => HandlerNetwork::Asked,
                _ => HandlerNetwork::Never,
            },
            addresses: self.addresses("miniq.handler_addresses")?,
            signer: self.signer()?,
            ca: Some(self.text("miniq.handler_ca")).filter(|path| !path.is_empty()).map(PathBuf::from),
            readable: self.list("miniq.readable").into_iter().map(PathBuf::from).collect(),
            uid_base: u32::try_from(self.whole("miniq.uid_base")).unwrap_or(0),
        })
    }

    /// The key that requests are signed with.
    pub(super) fn signer(&self) -> Result<Option<Signer>, BadConfig> {
        match self.text("outgoing.signing_key") {
            "" => Ok(None),
            key => {
                Signer::new(key).map(Some).map_err(|why| BadConfig(format!("outgoing.signing_key: {why}")))
            }
        }
    }

    /// What the server may call by itself.
    fn addresses(&self, name: &str) -> Result<Arc<Allowed>, BadConfig> {
        let entries = self.list(name);
        let allowed = match entries.is_empty() {
            true => Allowed::default_for(self.bind("http")?.is_loopback()),
            false => Allowed::parse(entries.iter().map(String::as_str))
                .map_err(|why| BadConfig(format!("{name}: {why}")))?,
        };
        Ok(Arc::new(allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_has_a_journal_of_its_own() {
        let home = |store: &str, is_in_data: bool| journal_home(store, Path::new("data"), is_in_data);
        let folder = |path: &str| Home::Folder(PathBuf::from(path));
        assert_eq!(home("sqlite:data/windlass.db", true), folder("data/journal"));
        assert_eq!(home("sqlite:/x/jobs.db", false), folder("/x/jobs.db.lines"));
        assert_eq!(home("memory:", false), Home::Memory);
        let one = home("postgres://me:secret@db/jobs", false);
        assert_eq!(home("postgres://you:other@db/jobs", false), one);
        assert_ne!(home("postgres://me:secret@db/other", false), one);
    }
}
