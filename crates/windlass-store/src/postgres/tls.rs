//! TLS to the database: `sslmode` and `sslrootcert` of the URL have the same meaning as in libpq.

use crate::error::StoreError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// Usual locations of the system's trusted certificates.
const SYSTEM_FILES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// ALPN protocol; newer servers require it.
const PROTOCOL: &[u8] = b"postgresql";

/// TLS requirements. Each mode includes those of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SslMode {
    Disable,
    /// Encrypted if the database supports it.
    #[default]
    Prefer,
    /// Encrypted, without a check of the certificate.
    Require,
    /// The certificate is signed by a trusted authority.
    VerifyCa,
    /// In addition, the certificate names the host.
    VerifyFull,
}

impl SslMode {
    pub(super) fn parse(word: &str) -> Option<SslMode> {
        Some(match word {
            "disable" => SslMode::Disable,
            "prefer" => SslMode::Prefer,
            "require" => SslMode::Require,
            "verify-ca" => SslMode::VerifyCa,
            "verify-full" => SslMode::VerifyFull,
            _ => return None,
        })
    }

    /// Equivalent mode of the driver.
    pub(super) fn for_driver(self) -> tokio_postgres::config::SslMode {
        match self {
            SslMode::Disable => tokio_postgres::config::SslMode::Disable,
            SslMode::Prefer => tokio_postgres::config::SslMode::Prefer,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => {
                tokio_postgres::config::SslMode::Require
            }
        }
    }
}

/// TLS configuration; cheap to clone.
#[derive(Clone)]
pub(super) struct Tls {
    config: Arc<ClientConfig>,
}

impl Tls {
    /// `roots`: file of trusted certificates; by default, and with the word `system`, the system's.
    pub(super) fn new(mode: SslMode, roots: Option<&str>) -> Result<Tls, StoreError> {
        let bad = |why: String| StoreError::Open(format!("TLS to PostgreSQL: {why}"));
        // As in libpq: `require` with a file of certificates means `verify-ca`.
        let mode = if mode == SslMode::Require && roots.is_some() { SslMode::VerifyCa } else { mode };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| bad(error.to_string()))?;
        let mut config = match mode {
            SslMode::VerifyFull => {
                builder.with_root_certificates(read_roots(roots).map_err(bad)?).with_no_client_auth()
            }
            SslMode::Disable | SslMode::Prefer | SslMode::Require | SslMode::VerifyCa => {
                let is_strict = mode == SslMode::VerifyCa;
                let roots = is_strict.then(|| read_roots(roots)).transpose().map_err(bad)?;
                let judge = Arc::new(Lenient { provider, roots });
                builder.dangerous().with_custom_certificate_verifier(judge).with_no_client_auth()
            }
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Tls { config: Arc::new(config) })
    }
}

fn read_roots(file: Option<&str>) -> Result<RootCertStore, String> {
    let system = || SYSTEM_FILES.iter().map(Path::new).find(|path| path.exists());
    let file = file.filter(|file| *file != "system").map(Path::new).or_else(system);
    let file = file.ok_or("this system has no trusted CA certificates; give a file with sslrootcert=")?;
    let trouble =
        |error: &dyn std::fmt::Display| format!("cannot read certificates from {}: {error}", file.display());
    let certificates = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| trouble(&error))?;
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 { Err(trouble(&"the file contains none")) } else { Ok(roots) }
}

/// Certificate check that ignores the host name and, without roots, the signer.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    roots: Option<RootCertStore>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            rustls::client::verify_server_cert_signed_by_trust_anchor(
                &certificate,
                roots,
                intermediates,
                now,
                algorithms,
            )?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

// --- traits of the driver ----------------------------------------------------------------------------------

/// TLS handshake with one host.
pub(super) struct Handshake {
    config: Arc<ClientConfig>,
    host: String,
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Secured;
    type TlsConnect = Handshake;
    type Error = std::io::Error;

    /// Also called for connections without encryption, such as a Unix socket.
    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, std::io::Error> {
        Ok(Handshake { config: Arc::clone(&self.config), host: host.to_owned() })
    }
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Secured;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Secured, std::io::Error>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host).map_err(std::io::Error::other)?;
            tokio_rustls::TlsConnector::from(self.config).connect(name, socket).await.map(Secured)
        })
    }
}

pub(super) struct Secured(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for Secured {
    /// No channel binding: `verify-full` is the protection against a wrong server.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
