//! Settings of handlers, and the location of the journal.

use super::BadConfig;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use windlass_dialects::settings::Values;
use windlass_engine::journal::Location;
use windlass_http::{Allowed, Signer};

/// Limits and permissions of handlers.
#[derive(Clone, Debug)]
pub(crate) struct HandlerConfig {
    pub run: bool,
    pub contexts: usize,
    pub contexts_per_type: usize,
    pub http_batches: usize,
    pub time_limit: Duration,
    pub memory_bytes_max: u64,
    pub disk_bytes_max: u64,
    /// Refuses to run handlers if an isolation mechanism is missing.
    pub strict: bool,
    pub network: HandlerNetwork,
    pub addresses: Arc<Allowed>,
    /// Signer of requests to http handlers.
    pub signer: Option<Signer>,
    /// CA certificates for https handlers, in place of the system's.
    pub ca: Option<PathBuf>,
    pub readable: Vec<PathBuf>,
    /// First user id of contexts; 0: contexts run as the server's user.
    pub uid_base: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandlerNetwork {
    Never,
    Asked,
    Always,
}

/// Location of the journal. Entries of one store must never reach another, so every store has its own
/// journal: beside the file of an embedded store, or in a folder named by a hash of the database address.
pub(super) fn journal_home(store: &str, data: &Path, store_is_in_data: bool) -> Location {
    if store_is_in_data {
        return Location::Folder(data.join("journal"));
    }
    match store.split_once(':') {
        Some(("memory", _)) => Location::Memory,
        Some(("sqlite", path)) => Location::Folder(PathBuf::from(format!("{path}.lines"))),
        _ => Location::Folder(data.join(format!("journal-{:08x}", address_number(store)))),
    }
}

/// Hash of the address without user and password, which may change.
fn address_number(store: &str) -> u32 {
    let (scheme, rest) = store.split_once("://").unwrap_or(("", store));
    let address = rest.rsplit_once('@').map_or(rest, |(_, address)| address);
    // FNV-1a is enough to distinguish a few addresses.
    let hash = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    scheme.bytes().chain(address.bytes()).fold(0x811c_9dc5, hash)
}

impl HandlerConfig {
    pub(super) fn from_values(values: &Values, signer: Option<Signer>) -> Result<HandlerConfig, BadConfig> {
        Ok(HandlerConfig {
            run: values.switch("miniq.run"),
            contexts: values.count("miniq.contexts"),
            contexts_per_type: values.count("miniq.contexts_per_type"),
            http_batches: values.count("miniq.http_batches"),
            time_limit: values.seconds("miniq.time_limit_s"),
            memory_bytes_max: values.count("miniq.memory_bytes_max") as u64,
            disk_bytes_max: values.count("miniq.disk_bytes_max") as u64,
            strict: values.text("runners.isolation") == "strict",
            network: match values.text("miniq.network") {
                "always" => HandlerNetwork::Always,
                "asked" => HandlerNetwork::Asked,
                _ => HandlerNetwork::Never,
            },
            addresses: Arc::new(values.allowed("miniq.handler_addresses")?),
            signer,
            ca: values.optional("miniq.handler_ca").map(PathBuf::from),
            readable: values.list("miniq.readable").into_iter().map(PathBuf::from).collect(),
            uid_base: u32::try_from(values.whole("miniq.uid_base")).unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_has_a_journal_of_its_own() {
        let home = |store: &str, is_in_data: bool| journal_home(store, Path::new("data"), is_in_data);
        let folder = |path: &str| Location::Folder(PathBuf::from(path));
        assert_eq!(home("sqlite:data/windlass.db", true), folder("data/journal"));
        assert_eq!(home("sqlite:/x/jobs.db", false), folder("/x/jobs.db.lines"));
        assert_eq!(home("memory:", false), Location::Memory);
        let one = home("postgres://me:secret@db/jobs", false);
        assert_eq!(home("postgres://you:other@db/jobs", false), one);
        assert_ne!(home("postgres://me:secret@db/other", false), one);
    }
}
