use std::collections::BTreeMap;
use windlass_client::jq::{Client, Error, NewJob};

/// The job belongs to the tenant of the token.
pub async fn send(jq: &str, token: &str) -> Result<String, Error> {
    let mail = BTreeMap::from([("to", "ann@example.org")]);
    Client::with_token(jq, token)?.enqueue(&NewJob::new("mail", mail)).await
}
