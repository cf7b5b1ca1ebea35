//! https handlers.

use crate::rig::{Rig, brief, handler, outcomes};
use async_trait::async_trait;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use windlass_http::Allowed;
use windlass_runners::handlers::{BlobError, Handler, Lang, World};

/// Certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    own: CertificateDer<'static>,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = params.self_signed(&key).unwrap().der().clone();
        Authority { issuer: Issuer::new(params, key), own }
    }

    /// Certificate for a server of this name.
    fn certify(&self, host: &str) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap()
    }
}

/// Server that responds with the request's body; returns its port.
fn start_site(config: ServerConfig) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let tls = ServerConnection::new(config.clone()).unwrap();
            std::thread::spawn(move || answer(StreamOwned::new(tls, stream)));
        }
    });
    port
}

fn answer(stream: impl Read + Write) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let lower = head.to_lowercase();
        let length = lower.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        stream.get_mut().write_all(&[reply.as_bytes(), &body].concat()).ok()?;
        stream.get_mut().flush().ok()?;
    }
}

/// Trusts one CA, if any.
struct Trusting(Option<CertificateDer<'static>>);

#[async_trait]
impl World for Trusting {
    fn addresses(&self) -> Arc<Allowed> {
        Arc::new(Allowed::parse(["loopback"]).unwrap())
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.clone().ok_or("nobody is trusted")?).map_err(|error| error.to_string())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }

    async fn blob(&self, _: &str, address: &str) -> Result<Vec<u8>, BlobError> {
        Err(BlobError::Missing(address.to_owned()))
    }
}

fn at(host: &str, port: u16) -> Handler {
    handler(Lang::Http, &format!("https://{host}:{port}/run"))
}

async fn told(world: Trusting, handler: &Handler, payloads: &[&str]) -> Vec<String> {
    let rig = Rig::in_world(Arc::new(world), |_| {});
    let mut run = rig.start("acme", "t", handler, payloads);
    outcomes(&mut run, payloads.len()).await.iter().map(brief).collect()
}

#[tokio::test]
async fn an_https_handler_is_called_if_its_certificate_is_right() {
    let authority = Authority::new();
    for host in ["localhost", "127.0.0.1"] {
        let port = start_site(authority.certify(host));
        let world = Trusting(Some(authority.own.clone()));
        assert_eq!(told(world, &at(host, port), &["a", "b"]).await, ["200 OK a", "200 OK b"], "{host}");
    }
}

#[tokio::test]
async fn a_handler_whose_certificate_is_not_right_is_sent_nothing() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let port = start_site(authority.certify("localhost"));
    let check = async |world: Trusting, host: &str, expected: &str| {
        assert_eq!(told(world, &at(host, port), &["x"]).await, [expected], "{host}");
    };
    check(Trusting(Some(stranger.own.clone())), "localhost", "500 ETLS").await;
    check(Trusting(Some(authority.own.clone())), "127.0.0.1", "500 ETLS").await;
    check(Trusting(None), "localhost", "500 BAD_HANDLER").await;
}

#[tokio::test]
async fn a_handler_that_speaks_no_tls_is_an_error_with_a_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = stream.read(&mut [0; 1]);
        }
    });
    let world = Trusting(Some(Authority::new().own));
    assert_eq!(told(world, &at("localhost", port), &["x"]).await, ["500 ETLS"]);
}

#[test]
fn whether_anybody_is_trusted_is_known_before_the_first_call() {
    let with = |world: Trusting| Rig::in_world(Arc::new(world), |_| {}).handlers.check(&at("localhost", 9));
    assert_eq!(with(Trusting(Some(Authority::new().own))), Ok(()));
    assert_eq!(with(Trusting(None)), Err("nobody is trusted".to_owned()));
}
