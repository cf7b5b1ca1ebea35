//! A job's life over HTTP.

use crate::support::TestServer;
use serde_json::json;

#[tokio::test]
async fn a_job_is_pushed_claimed_and_finished() {
    let server = TestServer::open().await;
    let pushed = server.post("/api/v1/jobs", r#"{"name":"mail","payload":{"to":"ann"}}"#).await;
    assert_eq!(pushed.status, 201);
    assert_eq!(pushed.text(), r#"{"ids":[1],"id":1,"existing":[]}"#);

    let claimed = server.post("/api/v1/claim", r#"{"worker":"w1"}"#).await;
    let job = &claimed.json()["jobs"][0];
    assert_eq!(job["payload"], json!({"to":"ann"}));
    assert_eq!((&job["attempt"], &job["name"]), (&json!(1), &json!("mail")));

    let settle = json!({"settle":[{"id":1,"token":job["token"],"outcome":"finish","result":[1,2]}]});
    let settled = server.post("/api/v1/settle", &settle.to_string()).await;
    assert_eq!(settled.text(), r#"{"settled":[{"id":1,"ok":true,"state":"completed"}]}"#);

    let view = server.get("/api/v1/jobs/1").await.json();
    assert_eq!(view["state"], "completed");
    assert_eq!(view["result"], json!([1, 2]));
    let result = server.get("/api/v1/jobs/1/result").await;
    assert_eq!((result.status, result.json()["result"].clone()), (200, json!([1, 2])));
}
