//! Functions that run around every handler.

use crate::context::Context;
use crate::error::{BoxError, Error, chain};
use crate::outcome::HandlerError;
use crate::run::{Run, Running};
use crate::task::Registered;
use std::pin::Pin;
use std::sync::Arc;

pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pub(crate) fn boxed<T>(future: impl Future<Output = T> + Send + 'static) -> Boxed<T> {
    Box::pin(future)
}

type Before = Arc<dyn Fn(Context) -> Boxed<Result<(), BoxError>> + Send + Sync>;
type After = Arc<dyn Fn(Context) -> Boxed<()> + Send + Sync>;
type OnError = Arc<dyn Fn(Context, String) -> Boxed<()> + Send + Sync>;

#[derive(Clone, Default)]
pub(crate) struct Hooks {
    pub(crate) before: Vec<Before>,
    pub(crate) after: Vec<After>,
    pub(crate) error: Vec<OnError>,
}

/// Future of a handler with its hooks, within a span if traces are recorded.
pub(crate) fn start(task: &Registered, run: &Arc<Run>, hooks: &Hooks) -> Running {
    let running = hooked(task, run, hooks);
    #[cfg(feature = "opentelemetry")]
    let running = crate::otel::traced(&run.job, Context::new(Arc::clone(run)).traceparent(), running);
    running
}

fn hooked(task: &Registered, run: &Arc<Run>, hooks: &Hooks) -> Running {
    let ctx = Context::new(Arc::clone(run));
    if hooks.before.is_empty() && hooks.after.is_empty() && hooks.error.is_empty() {
        return (task.handler)(ctx);
    }
    let (handler, hooks, run) = (Arc::clone(&task.handler), hooks.clone(), Arc::clone(run));
    Box::pin(async move {
        let ended = async {
            for before in &hooks.before {
                before(ctx.clone()).await.map_err(|error| HandlerError { error, class: None })?;
            }
            crate::run::caught(handler(ctx.clone())).await
        }
        .await;
        match &ended {
            _ if run.is_suspended() => {}
            Ok(_) => {
                for after in &hooks.after {
                    after(ctx.clone()).await;
                }
            }
            Err(failed) if !matches!(failed.error.downcast_ref::<Error>(), Some(Error::Suspended)) => {
                for error in &hooks.error {
                    error(ctx.clone(), chain(&*failed.error)).await;
                }
            }
            Err(_) => {}
        }
        ended
    })
}
