//! TLS from certificate files, which are read again when they change.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio_rustls::TlsAcceptor;

/// How often to look whether the files changed. Looked at when a connection comes, so an idle server does nothing.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("reading {path}: {error}")]
    File { path: String, error: String },
    #[error("{path} holds no certificate")]
    NoCertificate { path: String },
    #[error("the certificate and the key do not work together: {0}")]
    Unusable(#[from] rustls::Error),
}

/// Certificate chain and key, as PEM files.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: Mutex<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    changed_at: [Option<SystemTime>; 2],
    looked_at: Instant,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tls({})", self.certificate.display())
    }
}

impl Tls {
    pub fn open(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Tls, TlsError> {
        let (certificate, key) = (certificate.into(), key.into());
        warn_if_others_can_read(&key);
        let changed_at = [changed_at(&certificate), changed_at(&key)];
        let acceptor = load(&certificate, &key)?;
        let current = Mutex::new(Current { acceptor, changed_at, looked_at: Instant::now() });
        Ok(Tls { certificate, key, current })
    }

    /// Reads the files again now; for a signal from outside.
    pub fn reload(&self) -> Result<(), TlsError> {
        let changed_at = [changed_at(&self.certificate), changed_at(&self.key)];
        let acceptor = load(&self.certificate, &self.key)?;
        let looked_at = Instant::now();
        *self.current() = Current { acceptor, changed_at, looked_at };
        Ok(())
    }

    /// For the next connection. Files that changed but cannot be used leave the old certificate in place.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let look = {
            let mut current = self.current();
            let due = current.looked_at.elapsed() >= LOOK_AGAIN;
            if due {
                current.looked_at = Instant::now();
            }
            due.then_some(current.changed_at)
        };
        if look.is_some_and(|known| known != [changed_at(&self.certificate), changed_at(&self.key)]) {
            match self.reload() {
                Ok(()) => tracing::info!("certificate {} read again", self.certificate.display()),
                Err(error) => {
                    tracing::warn!(%error, "the changed certificate cannot be used; keeping the old one")
                }
            }
        }
        self.current().acceptor.clone()
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn load(certificate: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let trouble = |path: &Path, error: &dyn std::fmt::Display| TlsError::File {
        path: path.display().to_string(),
        error: error.to_string(),
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| trouble(certificate, &e))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: certificate.display().to_string() });
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|e| trouble(key, &e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn changed_at(path: &Path) -> Option<SystemTime> {
    let changed: io::Result<SystemTime> = std::fs::metadata(path).and_then(|meta| meta.modified());
    changed.ok()
}

#[cfg(unix)]
fn warn_if_others_can_read(key: &Path) {
    use std::os::unix::fs::PermissionsExt;
    if std::fs::metadata(key).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0) {
        tracing::warn!("the private key {} can be read by others; chmod 600 it", key.display());
    }
}

#[cfg(not(unix))]
fn warn_if_others_can_read(_: &Path) {}
