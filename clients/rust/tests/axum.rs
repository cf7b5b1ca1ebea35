//! The example with Axum: requests push jobs, in the test mode.

#![allow(clippy::unwrap_used, reason = "a test ends at the first error")]

#[path = "../examples/axum_shop.rs"]
#[allow(dead_code, reason = "the example's `main`")]
mod axum_shop;

use std::io::{Read, Write};
use tokio::net::TcpListener;
use windlass_client::Windlass;

/// Status and body of a request.
async fn request(
    address: std::net::SocketAddr,
    method: &'static str,
    path: String,
    body: &'static str,
) -> String {
    let asking = tokio::task::spawn_blocking(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = asking.await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    format!("{} {body}", head.split(' ').nth(1).unwrap())
}

#[tokio::test]
async fn an_order_becomes_a_job() {
    let app = Windlass::new("http://127.0.0.1:9").unwrap();
    let test = app.testing();
    let shop = axum_shop::Shop::new(&app);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, axum_shop::routes(shop)).await });
    let order = r#"{"item":"lamp","email":"ann@example.org"}"#;
    assert_eq!(request(address, "POST", "/orders".into(), order).await, r#"200 {"job":1}"#);
    assert_eq!(request(address, "GET", "/orders/1".into(), "").await, r#"200 {"state":"ready"}"#);
    test.run().await;
    assert_eq!(request(address, "GET", "/orders/1".into(), "").await, r#"200 {"state":"completed"}"#);
    assert_eq!(test.job(1).result, Some("confirmed lamp".into()));
    assert!(request(address, "GET", "/orders/2".into(), "").await.starts_with("404 "));
    serving.abort();
}
