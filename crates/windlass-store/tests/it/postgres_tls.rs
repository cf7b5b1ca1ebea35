//! TLS connections to PostgreSQL: modes of `sslmode`, and verification of certificates.

use crate::postgres_server::PostgresServer;
use crate::postgres_several::{ask, now, push};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::path::PathBuf;
use tempfile::TempDir;
use windlass_store::Store;
use windlass_store::postgres::PostgresStore;

/// Certificate authority, and the file with its certificate.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let own = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("root.pem"), own.pem()).unwrap();
        Authority { issuer: Issuer::new(params, key), folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("root.pem")
    }

    /// Certificate for `localhost`, and its key.
    fn certificate(&self, until_year: i32) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(until_year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn server(&self, until_year: i32) -> PostgresServer {
        let (certificate, key) = self.certificate(until_year);
        PostgresServer::start_with_tls(&certificate, &key)
    }
}

/// URL of a new schema of this server, with the host name of its certificate or another.
fn url(server: &PostgresServer, host: &str, more: &str) -> String {
    let url = server.new_schema_url().replace("@127.0.0.1:", &format!("@{host}:"));
    format!("{url}&{more}")
}

async fn open(url: &str) -> Result<PostgresStore, String> {
    PostgresStore::open(url, &crate::not_safe()).await.map_err(|error| error.to_string())
}

/// `true` if the connections of this application are encrypted, `false` if not, or both values.
fn encrypted(server: &PostgresServer, application: &str) -> String {
    server.sql(&format!(
        "SELECT string_agg(DISTINCT ssl::text, ' ') FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE application_name = '{application}'"
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_is_as_secure_as_its_mode_asks_for() {
    let authority = Authority::new();
    let server = authority.server(2100);
    let root = authority.file().display().to_string();
    let escaped = root.replace('/', "%2F");
    for (place, (host, more, expected)) in [
        ("localhost", "sslmode=disable".to_owned(), "false"),
        ("localhost", "sslmode=prefer".to_owned(), "true"),
        ("127.0.0.1", "sslmode=require".to_owned(), "true"),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={root}"), "true"),
        ("localhost", format!("sslmode=verify-full&sslrootcert={escaped}"), "true"),
    ]
    .into_iter()
    .enumerate()
    {
        let application = format!("mode-{place}");
        let more = format!("{more}&application_name={application}");
        let store = open(&url(&server, host, &more)).await.unwrap_or_else(|why| panic!("{more}: {why}"));
        push(&store, &["a"]).await.unwrap();
        assert_eq!(store.claim(ask(1), now()).await.unwrap().len(), 1, "{more}");
        assert_eq!(encrypted(&server, &application), expected, "{more}");
    }
    // A server without TLS: `prefer` continues unencrypted.
    open(&url(PostgresServer::shared(), "127.0.0.1", "sslmode=prefer")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cannot_show_what_the_mode_asks_for_is_not_believed() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (server, expired) = (authority.server(2100), authority.server(2001));
    let (root, other) = (authority.file().display().to_string(), stranger.file().display().to_string());
    for (server, host, more, why) in [
        (&server, "127.0.0.1", format!("sslmode=verify-full&sslrootcert={root}"), "certificate"),
        (&server, "localhost", format!("sslmode=verify-full&sslrootcert={other}"), "certificate"),
        (&server, "localhost", format!("sslmode=verify-ca&sslrootcert={other}"), "certificate"),
        (&server, "localhost", format!("sslmode=require&sslrootcert={other}"), "certificate"),
        (&expired, "localhost", format!("sslmode=verify-full&sslrootcert={root}"), "certificate"),
        (&expired, "localhost", format!("sslmode=verify-ca&sslrootcert={root}"), "certificate"),
        (
            &server,
            "localhost",
            "sslmode=verify-full&sslrootcert=/nowhere/root.pem".to_owned(),
            "/nowhere/root.pem",
        ),
        (&server, "localhost", "sslmode=verify".to_owned(), "verify-full"),
        (PostgresServer::shared(), "127.0.0.1", "sslmode=require".to_owned(), "does not support TLS"),
    ] {
        match open(&url(server, host, &more)).await {
            Ok(_) => panic!("{host} {more}: was believed"),
            Err(refusal) => assert!(refusal.contains(why), "{host} {more}: {refusal}"),
        }
    }
}
