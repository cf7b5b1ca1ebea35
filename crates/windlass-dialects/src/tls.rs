//! TLS with certificate files, which are read again when they change.

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio_rustls::TlsAcceptor;

/// Interval of the checks for changed files. Checked when a connection arrives, so an idle server does
/// nothing.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}: {error}")]
    File { path: String, error: String },
    #[error("{path} contains no certificate")]
    NoCertificate { path: String },
    #[error("the certificate and the private key do not match: {0}")]
    Unusable(#[from] rustls::Error),
    #[error("cannot use {path} to verify client certificates: {error}")]
    ClientCa { path: String, error: String },
}

/// Certificate chain and key, as PEM files.
pub struct Tls {
    files: Files,
    current: Mutex<Current>,
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
    /// CA of the certificates that clients must present; `None`: none are required.
    client_ca: Option<PathBuf>,
}

type ChangedAt = [Option<SystemTime>; 3];

struct Current {
    acceptor: TlsAcceptor,
    changed_at: ChangedAt,
    looked_at: Instant,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tls({})", self.files.certificate.display())
    }
}

impl Tls {
    pub fn open(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Tls, TlsError> {
        Tls::mutual(certificate, key, None)
    }

    /// With `client_ca`, clients must present a certificate signed by a CA in that file (mutual TLS).
    pub fn mutual(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        client_ca: Option<PathBuf>,
    ) -> Result<Tls, TlsError> {
        let files = Files { certificate: certificate.into(), key: key.into(), client_ca };
        warn_if_others_can_read(&files.key);
        let changed_at = files.changed_at();
        let acceptor = files.load()?;
        let current = Mutex::new(Current { acceptor, changed_at, looked_at: Instant::now() });
        Ok(Tls { files, current })
    }

    /// Reads the files again, for a reload by signal.
    pub fn reload(&self) -> Result<(), TlsError> {
        let changed_at = self.files.changed_at();
        let acceptor = self.files.load()?;
        let looked_at = Instant::now();
        *self.current() = Current { acceptor, changed_at, looked_at };
        Ok(())
    }

    /// Acceptor for the next connection. Changed files that cannot be used leave the old certificate in
    /// place.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let look = {
            let mut current = self.current();
            let due = current.looked_at.elapsed() >= LOOK_AGAIN;
            if due {
                current.looked_at = Instant::now();
            }
            due.then_some(current.changed_at)
        };
        if look.is_some_and(|known| known != self.files.changed_at()) {
            match self.reload() {
                Ok(()) => tracing::info!("certificate {} reloaded", self.files.certificate.display()),
                Err(error) => {
                    tracing::warn!(%error, "cannot reload the certificate; the old one stays in use")
                }
            }
        }
        self.current().acceptor.clone()
    }

    fn current(&self) -> parking_lot::MutexGuard<'_, Current> {
        self.current.lock()
    }
}

impl Files {
    fn changed_at(&self) -> ChangedAt {
        let client_ca = self.client_ca.as_deref().and_then(changed_at);
        [changed_at(&self.certificate), changed_at(&self.key), client_ca]
    }

    fn load(&self) -> Result<TlsAcceptor, TlsError> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| unreadable(&self.key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
        let config = match &self.client_ca {
            None => config.with_no_client_auth(),
            Some(path) => {
                let trouble = |error: &dyn std::fmt::Display| TlsError::ClientCa {
                    path: path.display().to_string(),
                    error: error.to_string(),
                };
                let mut roots = rustls::RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| trouble(&error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                config.with_client_cert_verifier(verifier.map_err(|error| trouble(&error))?)
            }
        };
        let mut config = config.with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> TlsError {
    TlsError::File { path: path.display().to_string(), error: error.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(path, &error))?;
    match chain.is_empty() {
        true => Err(TlsError::NoCertificate { path: path.display().to_string() }),
        false => Ok(chain),
    }
}

fn changed_at(path: &Path) -> Option<SystemTime> {
    let changed: io::Result<SystemTime> = std::fs::metadata(path).and_then(|meta| meta.modified());
    changed.ok()
}

#[cfg(unix)]
fn warn_if_others_can_read(key: &Path) {
    use std::os::unix::fs::PermissionsExt;
    if std::fs::metadata(key).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0) {
        tracing::warn!("other users can read the private key {}; restrict it with chmod 600", key.display());
    }
}

#[cfg(not(unix))]
fn warn_if_others_can_read(_: &Path) {}
