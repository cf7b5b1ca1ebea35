//! Handlers: typed functions that run the jobs of one name.

use super::wire;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Job passed to its handler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Job<A> {
    /// Id of the job at the server.
    pub id: String,
    /// Name for which the handler was registered.
    pub name: String,
    /// Argument given at enqueueing.
    pub argument: A,
    /// Timeout of the attempt; then it has failed, and its handler is dropped.
    pub timeout: Duration,
    /// Number of the attempt; 1 for the first.
    pub attempt: u32,
}

impl<A> Job<A> {
    pub(super) fn with<B>(self, argument: B) -> Job<B> {
        Job { id: self.id, name: self.name, argument, timeout: self.timeout, attempt: self.attempt }
    }
}

/// Failure of an attempt.
///
/// Every error is converted to a retryable failure by `?`. Use [`Failure::give_up`] if a retry would be
/// useless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub(super) message: String,
    pub(super) should_retry: bool,
    pub(super) is_timeout: bool,
    pub(super) error: Option<Bytes>,
}

impl Failure {
    /// Failure that is retried, if the job has attempts left.
    pub fn retry(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), should_retry: true, is_timeout: false, error: None }
    }

    /// Failure that is not retried, even if the job has attempts left.
    pub fn give_up(message: impl Into<String>) -> Failure {
        Failure { should_retry: false, ..Failure::retry(message) }
    }

    /// Adds a value that the producer can read. If the value cannot be encoded as MessagePack, it is left
    /// out, and the message says so.
    #[must_use]
    pub fn with_error(mut self, error: &impl Serialize) -> Failure {
        match rmp_serde::to_vec_named(error) {
            Ok(bytes) => self.error = Some(bytes.into()),
            Err(why) => self.message.push_str(&format!(" (cannot encode its value: {why})")),
        }
        self
    }

    /// Error message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// True if the job is to be retried.
    #[must_use]
    pub fn should_retry(&self) -> bool {
        self.should_retry
    }

    pub(super) fn timeout(after: Duration) -> Failure {
        let message = format!("the handler did not finish within {} s", after.as_secs());
        Failure { is_timeout: true, ..Failure::retry(message) }
    }
}

/// The message includes the messages of all sources.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Failure::retry(message)
    }
}

/// Result of a handler, as MessagePack.
pub(super) type Answer = Result<Bytes, Failure>;
pub(super) type Running = Pin<Box<dyn Future<Output = Answer> + Send>>;
pub(super) type Handler = Arc<dyn Fn(Job<Bytes>) -> Running + Send + Sync>;

/// Handler that decodes the argument and encodes the result.
pub(super) fn typed<A, R, F, Fut>(handle: F) -> Handler
where
    A: DeserializeOwned + Send + 'static,
    R: Serialize,
    F: Fn(Job<A>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
{
    let handle = Arc::new(handle);
    Arc::new(move |job: Job<Bytes>| {
        let handle = Arc::clone(&handle);
        Box::pin(async move {
            // A retry would fail to decode the same bytes again.
            let argument: A = rmp_serde::from_slice(&job.argument).map_err(|why| {
                Failure::give_up(format!("the argument does not match {}: {why}", job.name))
            })?;
            let result = handle(job.with(argument)).await?;
            let bytes = rmp_serde::to_vec_named(&result)
                .map_err(|why| Failure::give_up(format!("cannot encode the result as MessagePack: {why}")))?;
            Ok(bytes.into())
        })
    })
}

/// Handler on encoded argument and result.
pub(super) fn raw<R, F, Fut>(handle: F) -> Handler
where
    R: Into<Bytes>,
    F: Fn(Job<Bytes>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
{
    let handle = Arc::new(handle);
    Arc::new(move |job: Job<Bytes>| {
        let handle = Arc::clone(&handle);
        Box::pin(async move {
            let result: Bytes = handle(job).await?.into();
            match wire::is_one_value(&result) {
                true => Ok(result),
                false => Err(Failure::give_up("the result of the handler is not a single MessagePack value")),
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(argument: &impl Serialize) -> Job<Bytes> {
        Job {
            id: "7".into(),
            name: "add".into(),
            argument: rmp_serde::to_vec_named(argument).unwrap().into(),
            timeout: Duration::from_secs(30),
            attempt: 2,
        }
    }

    #[derive(Serialize, serde::Deserialize)]
    struct Pair {
        a: i64,
        b: i64,
    }

    #[tokio::test]
    async fn arguments_and_results_are_types() {
        let add = typed(|job: Job<Pair>| async move {
            assert_eq!((job.id.as_str(), job.attempt), ("7", 2));
            Ok(Pair { a: job.argument.a + job.argument.b, b: 0 })
        });
        let bytes = add(job(&Pair { a: 1, b: 2 })).await.unwrap();
        let sum: Pair = rmp_serde::from_slice(&bytes).unwrap();
        assert_eq!((sum.a, sum.b), (3, 0));
        assert_eq!(bytes[0], 0x82, "a map, so that others can read it");
    }

    #[tokio::test]
    async fn an_argument_of_another_shape_is_not_tried_again() {
        let add = typed(|_: Job<Pair>| async move { Ok(()) });
        let failure = add(job(&"text")).await.unwrap_err();
        assert!(!failure.should_retry());
        assert!(failure.message().starts_with("the argument does not match add: "), "{failure:?}");
    }

    #[tokio::test]
    async fn bytes_go_through_as_they_are_and_have_to_be_one_value() {
        let echo = raw(|job: Job<Bytes>| async move { Ok(job.argument) });
        let given = job(&[1, 2, 3]);
        assert_eq!(echo(given.clone()).await.unwrap(), given.argument);
        let twice = raw(|_| async move { Ok(vec![1, 2]) });
        assert!(!twice(given).await.unwrap_err().should_retry());
    }

    #[tokio::test]
    async fn an_error_becomes_a_failure_that_is_tried_again() {
        let fails = typed(|_: Job<Pair>| async move {
            let number: i64 = "many".parse()?;
            Ok(number)
        });
        let failure = fails(job(&Pair { a: 1, b: 2 })).await.unwrap_err();
        assert_eq!(failure, Failure::retry("invalid digit found in string"));
        let failure = Failure::give_up("no").with_error(&7);
        assert_eq!(failure.error.as_deref(), Some(&[7_u8][..]));
    }
}
