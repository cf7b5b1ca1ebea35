//! Examples of docs/push-from-sql.md, run unchanged.

use crate::postgres_server::{PostgresServer, psql};
use crate::postgres_several::{ask, now};
use std::path::{Path, PathBuf};
use std::process::Command;
use windlass_store::Store;
use windlass_store::postgres::PostgresStore;

const PAGE: &str = include_str!("../../../../docs/push-from-sql.md");

/// First code block in this language.
fn example(language: &str) -> &'static str {
    let begin = format!("```{language}\n");
    let (_, rest) = PAGE.split_once(&begin).unwrap_or_else(|| panic!("no example in {language}"));
    rest.split_once("```").unwrap().0
}

/// Folder in which `./test` installs the dependencies of the examples.
fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target")
}

fn run(command: &mut Command, what: &str, missing: &str) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{what}: {error}; {missing}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{what}: {}\n{missing}", text(&output.stderr));
    text(&output.stdout)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_push_in_their_own_transactions() {
    let url = PostgresServer::shared().new_database_url();
    let store = PostgresStore::open(&url, &crate::not_safe()).await.unwrap();
    psql(&url, example("sql"));

    let python = target().join("python-psycopg/bin/python");
    let missing = "./test makes target/python-psycopg: python3 -m venv, then pip install 'psycopg[binary]'";
    let mut python = Command::new(python);
    let said = run(python.args(["-c", example("python")]).env("DATABASE_URL", &url), "Python", missing);
    assert!(said.starts_with("job "), "{said}");

    let modules = target().join("node-pg/node_modules");
    let missing = "./test makes target/node-pg: npm install --prefix target/node-pg pg";
    let mut node = Command::new("node");
    node.args(["-e", example("js")]).env("NODE_PATH", modules).env("DATABASE_URL", &url);
    let said = run(&mut node, "Node", missing);
    assert!(said.starts_with("job "), "{said}");

    assert_eq!(psql(&url, "SELECT string_agg(item, ' ' ORDER BY id) FROM orders"), "lamp chair table");
    let claimed = store.claim(ask(10), now().plus_ms(1_000)).await.unwrap();
    let payloads: Vec<String> =
        claimed.iter().map(|job| String::from_utf8(job.spec.payload.bytes.to_vec()).unwrap()).collect();
    assert_eq!(payloads, [r#"{"item": "lamp"}"#, r#"{"item": "chair"}"#, r#"{"item": "table"}"#]);
    assert!(claimed.iter().all(|job| &*job.spec.queue == "mail"));
}
