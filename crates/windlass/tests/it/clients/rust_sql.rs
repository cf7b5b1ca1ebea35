//! Pushes of the Rust library in a transaction of the application, with tokio-postgres.

use crate::rigs::cluster::postgres_server::PostgresServer;
use crate::server::{PATIENCE, Server};
use std::time::Duration;
use tokio_postgres::NoTls;
use windlass_client::{Context, Error, Windlass};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_exists_if_and_only_if_the_transaction_commits() {
    let url = PostgresServer::shared().new_database_url();
    let server = Server::start(&["--store", &url, "--durability", "relaxed"]);
    let app = Windlass::new(&server.url()).unwrap();
    let greet = |name: String, _: Context| async move { Ok::<_, Error>(format!("hello {name}")) };
    let greet =
        app.task("greet", greet).queue("mail").retry(3).unique(|name: &String| name.clone()).register();
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);

    let mut pushed = Vec::new();
    for (name, is_committed) in [("ann", true), ("bob", false)] {
        let push = greet.with().tag("x").priority(-1).sql(&name.to_owned()).unwrap();
        let transaction = client.transaction().await.unwrap();
        let row = transaction.query_one(&push.statement(), &[&push.name, &push.payload, &push.options]).await;
        let id = u64::try_from(row.unwrap().get::<_, i64>(0)).unwrap();
        let path = format!("/api/v1/jobs/{id}");
        assert_eq!(server.call("GET", &path, None).0, 404, "not before the commit");
        match is_committed {
            true => transaction.commit().await.unwrap(),
            false => transaction.rollback().await.unwrap(),
        }
        assert_eq!(server.call("GET", &path, None).0 == 200, is_committed);
        pushed.push(id);
    }
    let (_, job) = server.call("GET", &format!("/api/v1/jobs/{}", pushed[0]), None);
    assert_eq!((&job["queue"], &job["priority"]), (&"mail".into(), &(-1).into()));
    assert_eq!((&job["max_attempts"], &job["unique"]["key"]), (&3.into(), &"greet:ann".into()));

    let worker = app.worker().concurrency(2).lease(Duration::from_secs(5)).start().unwrap();
    let said = tokio::time::timeout(PATIENCE, app.job::<String>(pushed[0]).wait()).await.unwrap();
    assert_eq!(said.unwrap(), "hello ann");
    worker.shutdown().await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
}
