//! The application: connection to a server, and its tasks.

use crate::api::Api;
use crate::backend::Backend;
use crate::context::Context;
use crate::error::{BoxError, Error};
use crate::hooks::{Hooks, boxed};
use crate::push::JobHandle;
use crate::run::lock;
use crate::task::{Registered, Task, TaskBuilder, handler};
use crate::testing::{TestStore, Testing};
use crate::worker::WorkerBuilder;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Environment variable with the URL of the server.
const SERVER: &str = "WINDLASS_SERVER";
/// Environment variable with the access token.
const TOKEN: &str = "WINDLASS_TOKEN";
const SERVER_DEFAULT: &str = "http://127.0.0.1:7373";

/// Application: a server and the tasks that run on it. Cheap to clone; clones share tasks and connections.
#[derive(Clone)]
pub struct Windlass {
    inner: Arc<Inner>,
}

struct Inner {
    api: Arc<Api>,
    tasks: Mutex<BTreeMap<String, Arc<Registered>>>,
    hooks: Mutex<Hooks>,
    test: Mutex<Option<Arc<TestStore>>>,
}

impl Windlass {
    /// Application on the server named by `WINDLASS_SERVER` (`http://127.0.0.1:7373` if it is not set), with the
    /// token in `WINDLASS_TOKEN`, if there is one. Makes no call yet.
    ///
    /// # Errors
    /// If the address or the token is invalid.
    pub fn from_env() -> Result<Windlass, Error> {
        let var = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let server = var(SERVER).unwrap_or_else(|| SERVER_DEFAULT.to_owned());
        Windlass::connect(&server, var(TOKEN).as_deref())
    }

    /// Application on the server at this address, such as `http://127.0.0.1:7373`.
    ///
    /// # Errors
    /// If the address is invalid.
    pub fn new(server: &str) -> Result<Windlass, Error> {
        Windlass::connect(server, None)
    }

    /// Application with an access token.
    ///
    /// # Errors
    /// If the address is invalid, or the token contains characters that are not allowed in a header.
    pub fn with_token(server: &str, token: &str) -> Result<Windlass, Error> {
        Windlass::connect(server, Some(token))
    }

    fn connect(server: &str, token: Option<&str>) -> Result<Windlass, Error> {
        let api = Arc::new(Api::new(server, token)?);
        let inner = Inner { api, tasks: Mutex::default(), hooks: Mutex::default(), test: Mutex::default() };
        Ok(Windlass { inner: Arc::new(inner) })
    }

    /// Address of the server.
    #[must_use]
    pub fn server(&self) -> &str {
        self.inner.api.url()
    }

    /// Task with its handler: a function of the payload and the [`Context`]. Finish with
    /// [`TaskBuilder::register`].
    ///
    /// ```no_run
    /// use windlass_client::{BoxError, Context, Windlass};
    ///
    /// async fn resize(path: String, ctx: Context) -> Result<u64, BoxError> {
    ///     ctx.log(format!("attempt {}", ctx.attempt));
    ///     Ok(std::fs::metadata(path)?.len())
    /// }
    ///
    /// # fn example() -> Result<(), windlass_client::Error> {
    /// let app = Windlass::from_env()?;
    /// let resize = app.task("resize", resize).queue("images").retry(3).register();
    /// # Ok(())
    /// # }
    /// ```
    pub fn task<A, R, E, F, Fut>(&self, name: &str, handle: F) -> TaskBuilder<A, R>
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
        E: Into<BoxError> + Send + 'static,
        F: Fn(A, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        TaskBuilder::new(self, name, Some(handler(handle)))
    }

    /// Task whose handler is in another program: its jobs can be pushed, and workers of this application do not
    /// claim them.
    pub fn declare<A, R>(&self, name: &str) -> TaskBuilder<A, R> {
        TaskBuilder::new(self, name, None)
    }

    /// Task that runs by a cron rule in a time zone (UTC if empty). A worker creates the schedule when it starts;
    /// a second worker finds it, and a changed rule takes effect after the next run. For more options use
    /// [`TaskBuilder::cron`].
    pub fn cron<E, F, Fut>(&self, name: &str, rule: &str, time_zone: &str, handle: F) -> Task<(), ()>
    where
        E: Into<BoxError> + Send + 'static,
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
    {
        self.task(name, move |(): (), _| handle()).cron(rule, time_zone).register()
    }

    /// Handle of an existing job.
    #[must_use]
    pub fn job<R>(&self, id: u64) -> JobHandle<R> {
        JobHandle::new(self, id)
    }

    /// Adds a function that runs before each handler. If it returns an error, the handler does not run, and the
    /// attempt ends with this error.
    pub fn before<F, Fut>(&self, hook: F)
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        lock(&self.inner.hooks).before.push(Arc::new(move |ctx| boxed(hook(ctx))));
    }

    /// Adds a function that runs after each handler that succeeded.
    pub fn after<F, Fut>(&self, hook: F)
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        lock(&self.inner.hooks).after.push(Arc::new(move |ctx| boxed(hook(ctx))));
    }

    /// Adds a function that runs after each handler that returned an error or panicked, with the error message. A
    /// suspension is no error.
    pub fn on_error<F, Fut>(&self, hook: F)
    where
        F: Fn(Context, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        lock(&self.inner.hooks).error.push(Arc::new(move |ctx, error| boxed(hook(ctx, error))));
    }

    /// Works on the jobs of all tasks, this many at once, until Ctrl-C or SIGTERM. Then running jobs have 30
    /// seconds to finish; jobs that still run after that are released. A second signal releases them at once.
    ///
    /// # Errors
    /// If no task has a handler, or the server refuses the worker. An unavailable server is waited for.
    pub async fn work(&self, concurrency: usize) -> Result<(), Error> {
        self.worker().concurrency(concurrency).run().await
    }

    /// Builder of a worker with options.
    pub fn worker(&self) -> WorkerBuilder {
        WorkerBuilder::new(self)
    }

    /// Replaces the server by memory, for tests: pushed jobs are collected, and run when the test says so. Lasts
    /// until the returned value is dropped.
    pub fn testing(&self) -> Testing {
        let store = TestStore::new(self);
        *lock(&self.inner.test) = Some(Arc::clone(&store));
        Testing::new(self.clone(), store)
    }

    pub(crate) fn end_testing(&self, store: &Arc<TestStore>) {
        let mut test = lock(&self.inner.test);
        if test.as_ref().is_some_and(|current| Arc::ptr_eq(current, store)) {
            *test = None;
        }
    }

    pub(crate) fn backend(&self) -> Backend {
        match &*lock(&self.inner.test) {
            Some(test) => Backend::Test(Arc::clone(test)),
            None => Backend::Server(Arc::clone(&self.inner.api)),
        }
    }

    pub(crate) fn api(&self) -> &Arc<Api> {
        &self.inner.api
    }

    pub(crate) fn add(&self, task: Registered) {
        lock(&self.inner.tasks).insert(task.name.clone(), Arc::new(task));
    }

    pub(crate) fn registered(&self, name: &str) -> Option<Arc<Registered>> {
        lock(&self.inner.tasks).get(name).cloned()
    }

    pub(crate) fn all_registered(&self) -> Vec<Arc<Registered>> {
        lock(&self.inner.tasks).values().cloned().collect()
    }

    pub(crate) fn hooks(&self) -> Hooks {
        lock(&self.inner.hooks).clone()
    }
}
