//! Errors of TLS in words that say what to do.

use super::verify::is_authority;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, Error};
use std::io;

/// Cause of a failed TLS connection; `None` if the error has nothing to do with TLS.
pub(crate) fn explain(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref::<Error>()? {
        Error::InvalidCertificate(reason) => {
            Some(format!("the certificate of the server is not accepted: {}", certificate(reason)))
        }
        Error::InvalidMessage(_) => Some(
            "the server does not speak TLS on this port; use http:// instead of https:// in the URL"
                .to_owned(),
        ),
        other => Some(format!("TLS: {other}")),
    }
}

/// True if the certificate is refused for its name or its authority only: with another URL or `--ca` it may be
/// accepted.
pub(crate) fn is_distrust(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    cause.is_some_and(|cause| match cause {
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer
            | CertificateError::NotValidForName
            | CertificateError::NotValidForNameContext { .. },
        ) => true,
        cause => is_authority(cause),
    })
}

fn certificate(reason: &CertificateError) -> String {
    match reason {
        CertificateError::UnknownIssuer => "no trusted authority has issued it; give the PEM file of its \
             authority, or of the certificate itself if it is self-signed, with --ca"
            .to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => names(expected, presented),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired; renew it".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet; check the clocks of both machines".to_owned()
        }
        CertificateError::Other(reason) => other(&reason.0.to_string()),
        reason => reason.to_string(),
    }
}

fn names(expected: &ServerName<'_>, presented: &[String]) -> String {
    let entry = match expected {
        ServerName::IpAddress(_) => format!("IP:{}", expected.to_str()),
        _ => format!("DNS:{}", expected.to_str()),
    };
    match presented {
        [] => format!(
            "it names no host (it has no subjectAltName; the common name does not count); make it again with \
             openssl req … -addext subjectAltName={entry}"
        ),
        names => format!(
            "it is for {}, not for {}; use such a name in the URL, or make it again with openssl req … -addext \
             subjectAltName={entry}",
            names.iter().map(|name| bare(name)).collect::<Vec<_>>().join(", "),
            expected.to_str()
        ),
    }
}

/// Name inside of a text like `DnsName("localhost")`.
fn bare(name: &str) -> &str {
    let inside = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inside.trim_matches('"')
}

/// Words for errors that TLS has no name for.
fn other(reason: &str) -> String {
    match reason {
        "CaUsedAsEndEntity" => "it is the certificate of an authority, which may only sign others; give the \
             PEM file of exactly this certificate with --ca, or make it again with openssl req … -addext \
             basicConstraints=critical,CA:FALSE"
            .to_owned(),
        "UnsupportedCertVersion" => "it is an X.509 certificate of version 1, which names no host; make it \
             again with openssl req -x509 … -addext subjectAltName=DNS:HOST"
            .to_owned(),
        reason => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_is_wrong_with_the_certificate() {
        let check = |reason: CertificateError, expected: &str| {
            let said = explain(&io::Error::other(Error::InvalidCertificate(reason))).unwrap();
            assert!(said.contains(expected), "{said}");
        };
        let name = |host: &'static str| ServerName::try_from(host).unwrap();
        let unfit = |expected, presented: &[&str]| CertificateError::NotValidForNameContext {
            expected,
            presented: presented.iter().map(|name| (*name).to_string()).collect(),
        };
        check(unfit(name("localhost"), &[]), "names no host");
        check(unfit(name("localhost"), &[]), "-addext subjectAltName=DNS:localhost");
        check(unfit(name("127.0.0.1"), &["DnsName(\"a.org\")"]), "it is for a.org, not for 127.0.0.1");
        check(unfit(name("127.0.0.1"), &["x"]), "subjectAltName=IP:127.0.0.1");
        check(CertificateError::UnknownIssuer, "--ca");
        check(CertificateError::Expired, "expired");
        assert_eq!(explain(&io::Error::other("something else")), None);
        let distrust = |reason| is_distrust(&io::Error::other(Error::InvalidCertificate(reason)));
        assert!(distrust(unfit(name("127.0.0.1"), &["x"])) && distrust(CertificateError::UnknownIssuer));
        assert!(!distrust(CertificateError::Expired) && !is_distrust(&io::Error::other("something else")));
    }
}
