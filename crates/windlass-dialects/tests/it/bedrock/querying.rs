//! `Query` over the wire: its headers. The supported SQL is tested in [`crate::bedrock_query`].

use super::*;

#[tokio::test]
async fn parameters_are_bound_by_headers() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let odd = c.create("it's; --", &[]).await;
        c.create("other", &[]).await;
        let sql = "SELECT jobID FROM jobs WHERE name = :Name AND jobID = @id;";
        let id = odd.to_string();
        let headers =
            [("query", sql), ("sql-param-NAME", "it's; --"), ("sql-param-id", &id), ("Format", "json")];
        let reply = c.ask("Query", &headers).await.ok();
        assert_eq!(reply.json()["rows"], serde_json::json!([[odd]]));
        let line = "Query: SELECT name FROM jobs WHERE jobID IN (?1, ?2);";
        let headers = [("sql-param-1", "77"), ("sql-param-2", &*id), ("ReadDBFlags", "-noheader")];
        assert_eq!(c.ask(line, &headers).await.ok().body, "it's; --\n");
        let missing = c.ask("Query", &[("query", "SELECT :other;"), ("sql-param-id", "1")]).await;
        assert_eq!(missing.status, "402 Bad query");
        assert!(missing.header("error").unwrap().contains("sql-param-other"), "{missing:?}");
    }
}

#[tokio::test]
async fn a_result_may_be_unwanted_or_html() {
    let server = Bedrock::current().await;
    let mut c = server.connect().await;
    let sql = ("query", "SELECT '<b>' AS x;");
    assert_eq!(c.ask("Query", &[sql, ("SuppressResult", "1")]).await.ok().body, "");
    assert_ne!(c.ask("Query", &[sql, ("SuppressResult", "1"), ("Format", "json")]).await.ok().body, "");
    let html = c.ask("Query", &[sql, ("SQLiteArgs", "-html")]).await.ok().body;
    assert_eq!(html, "<TR>\n<TH>x\n</TR>\n<TR>\n<TD>&lt;b&gt;\n</TR>\n");
}
