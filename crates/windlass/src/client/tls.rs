//! TLS configuration for the command line and for calls of http handlers: trusts the system's CA certificates
//! or those in a file.

mod verify;
mod words;

pub(crate) use words::{explain, is_distrust};

use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ConfigBuilder, RootCertStore, StreamOwned};
use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use verify::Verifier;

/// Usual paths of the system's CA certificates.
const SYSTEM_FILES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Builds a configuration. `option`: name of the option for the CA file, for error messages.
pub(crate) fn config(ca: Option<&Path>, option: &str) -> Result<Arc<ClientConfig>, String> {
    Ok(Arc::new(trusting(ca, option)?.with_no_client_auth()))
}

/// Builds a configuration with a client certificate: `identity` holds its chain and private key.
pub(crate) fn config_presenting(
    ca: Option<&Path>,
    option: &str,
    identity: &Path,
) -> Result<Arc<ClientConfig>, String> {
    let trouble = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", identity.display());
    let chain = CertificateDer::pem_file_iter(identity)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| trouble(&error))?;
    let key = PrivateKeyDer::from_pem_file(identity).map_err(|error| trouble(&error))?;
    let config = trusting(ca, option)?.with_client_auth_cert(chain, key);
    config.map(Arc::new).map_err(|error| trouble(&error))
}

fn trusting(ca: Option<&Path>, option: &str) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let system = || SYSTEM_FILES.iter().map(Path::new).find(|path| path.exists());
    let missing = || format!("this system has no trusted CA certificates; give a file with {option}");
    let path = ca.or_else(system).ok_or_else(missing)?;
    let trouble =
        |error: &dyn std::fmt::Display| format!("cannot read certificates from {}: {error}", path.display());
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| trouble(&error))?;
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates.iter().cloned());
    if added == 0 {
        return Err(trouble(&"the file contains none"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| error.to_string())?;
    // Certificates of the system are authorities, never servers.
    let servers = if ca.is_some() { certificates } else { Vec::new() };
    let verifier = Verifier::new(roots, servers, provider).map_err(|error| trouble(&error))?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)))
}

pub(crate) fn wrap(
    config: &Arc<ClientConfig>,
    host: &str,
    socket: TcpStream,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = ServerName::try_from(host.to_string()).map_err(io::Error::other)?;
    let connection = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(connection, socket))
}
