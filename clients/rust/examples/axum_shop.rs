//! Web application with Axum that pushes jobs and works on them in the same process.
//!
//! ```sh
//! windlass serve &
//! cargo run -p windlass-client --example axum_shop
//! curl -s localhost:3000/orders --json '{"item":"lamp","email":"ann@example.org"}'      # {"job":1}
//! curl -s localhost:3000/orders/1                                                       # {"state":"completed"}
//! ```

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpListener;
use windlass_client::{BoxError, Context, Error, Task, Windlass};

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    item: String,
    email: String,
}

#[derive(Clone)]
pub(crate) struct Shop {
    confirm: Task<Order, String>,
}

impl Shop {
    pub(crate) fn new(app: &Windlass) -> Shop {
        let confirm = app.task("order.confirm", confirm).queue("mail").retry(5);
        Shop { confirm: confirm.timeout(Duration::from_secs(60)).register() }
    }
}

async fn confirm(order: Order, ctx: Context) -> Result<String, BoxError> {
    ctx.log(format!("mail to {}", order.email));
    Ok(format!("confirmed {}", order.item))
}

/// Routes of the web application. Requests end when the job is stored; they do not wait for it.
pub(crate) fn routes(shop: Shop) -> Router {
    Router::new().route("/orders", post(place)).route("/orders/{job}", get(state)).with_state(shop)
}

async fn place(State(shop): State<Shop>, Json(order): Json<Order>) -> Result<Json<Value>, Failed> {
    let job = shop.confirm.push(&order).await?;
    Ok(Json(json!({"job": job.id()})))
}

async fn state(State(shop): State<Shop>, Path(job): Path<u64>) -> Result<Json<Value>, Failed> {
    Ok(Json(json!({"state": shop.confirm.job(job).state().await?})))
}

/// Error of a call as a response: 503 if the caller may try again.
struct Failed(Error);

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed(error)
    }
}

impl axum::response::IntoResponse for Failed {
    fn into_response(self) -> axum::response::Response {
        let status = match &self.0 {
            Error::NotFound { .. } => StatusCode::NOT_FOUND,
            error if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, self.0.to_string()).into_response()
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let app = Windlass::from_env()?;
    let routes = routes(Shop::new(&app));
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    tokio::spawn(async move { axum::serve(listener, routes).await });
    app.work(20).await?; // until Ctrl-C or SIGTERM
    Ok(())
}
