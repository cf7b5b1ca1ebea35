//! Verification of a server's certificate.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// Accepts certificates that a trusted authority has issued, and a self-signed certificate that is itself in the file:
/// `openssl req -x509` marks it as an authority, which may not be a server by the usual rules. Dates and host name are
/// checked in both cases.
#[derive(Debug)]
pub(super) struct Verifier {
    usual: Arc<WebPkiServerVerifier>,
    /// Certificates trusted for a server that presents exactly the same bytes.
    servers: Vec<CertificateDer<'static>>,
}

impl Verifier {
    pub(super) fn new(
        roots: RootCertStore,
        servers: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Verifier, VerifierBuilderError> {
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Verifier { usual, servers })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The dates were checked before this error.
            Err(error) if is_authority(&error) && self.servers.iter().any(|known| known == end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// True if the only objection is that the certificate is that of an authority.
pub(super) fn is_authority(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::Other(reason)) => {
            reason.0.to_string() == "CaUsedAsEndEntity"
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use std::time::Duration;

    /// Self-signed certificate as `openssl req -x509` makes it: an authority with these names.
    fn self_signed(names: &[&str]) -> CertificateDer<'static> {
        let names = names.iter().map(|name| (*name).to_string()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn verify(
        trusted: &CertificateDer<'static>,
        shown: &CertificateDer<'static>,
        host: &'static str,
        year: u64,
    ) -> Result<(), Error> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier::new(roots, vec![trusted.clone()], provider).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_556_952));
        let host = ServerName::try_from(host).unwrap();
        verifier.verify_server_cert(shown, &[], &host, &[], now).map(drop)
    }

    #[test]
    fn a_self_signed_certificate_is_trusted_if_it_is_the_one_in_the_file() {
        let own = self_signed(&["localhost", "127.0.0.1"]);
        assert_eq!(verify(&own, &own, "localhost", 2025), Ok(()));
        assert_eq!(verify(&own, &own, "127.0.0.1", 2025), Ok(()));
        let name = verify(&own, &own, "example.org", 2025).unwrap_err().to_string();
        assert!(name.contains("not valid for name"), "{name}");
        let late = verify(&own, &own, "localhost", 2031).unwrap_err().to_string();
        assert!(late.contains("expired"), "{late}");
        let other = self_signed(&["localhost"]);
        assert!(verify(&own, &other, "localhost", 2025).is_err(), "another with the same names");
        let unnamed = self_signed(&[]);
        assert!(verify(&unnamed, &unnamed, "localhost", 2025).is_err(), "it names no host");
    }
}
