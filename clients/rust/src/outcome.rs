//! Outcomes that a handler asks for with an error value, and the settlement of a run that follows from its end.

use crate::error::{BoxError, Error, chain};
use serde_json::value::RawValue;
use std::error::Error as StdError;
use std::time::Duration;

/// Delay before a run that ended because the server was unavailable is tried again.
const AFTER_OUTAGE: Duration = Duration::from_secs(1);

/// Failed attempt; the next one starts after the given time, if attempts are left.
///
/// ```
/// # use windlass_client::{BoxError, Retry}; use std::time::Duration;
/// fn send() -> Result<(), BoxError> {
///     Err(Retry::after(Duration::from_secs(60)).because("mailbox busy"))?
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Retry {
    after: Duration,
    message: String,
}

/// Failure for good: no further attempt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fail {
    message: String,
    class: Option<String>,
}

/// The job is tried again after the given time; the run does not count as an attempt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("snoozed for {} ms", for_.as_millis())]
pub struct Snooze {
    for_: Duration,
}

impl Retry {
    /// Next attempt after this time.
    #[must_use]
    pub fn after(after: Duration) -> Retry {
        Retry { after, message: "retry requested".to_owned() }
    }

    /// Message of the failed attempt.
    #[must_use]
    pub fn because(mut self, message: impl Into<String>) -> Retry {
        self.message = message.into();
        self
    }
}

impl Fail {
    /// Failure with this message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Fail {
        Fail { message: message.into(), class: None }
    }

    /// Class of the failure, by which failures are grouped; `Fail` unless given.
    #[must_use]
    pub fn class(mut self, class: impl Into<String>) -> Fail {
        self.class = Some(class.into());
        self
    }
}

impl Snooze {
    /// Next run after this time.
    #[must_use]
    pub fn new(for_: Duration) -> Snooze {
        Snooze { for_ }
    }
}

/// Error of a handler, with the name of its type if the type says something.
#[derive(Debug)]
pub(crate) struct HandlerError {
    pub(crate) error: BoxError,
    pub(crate) class: Option<String>,
}

impl HandlerError {
    pub(crate) fn of<E: Into<BoxError> + 'static>(error: E) -> HandlerError {
        HandlerError { error: error.into(), class: class_of(std::any::type_name::<E>()) }
    }
}

/// Last segment of a type's path; nothing for types that box any error.
fn class_of(type_name: &str) -> Option<String> {
    let is_box = ["Box<", "anyhow::", "eyre::", "String", "&str", "str"]
        .iter()
        .any(|start| type_name.trim_start_matches("alloc::boxed::").starts_with(start));
    let plain = type_name.split('<').next().unwrap_or(type_name);
    let class = plain.rsplit("::").next().unwrap_or(plain);
    (!is_box && !matches!(class, "String" | "Error")).then(|| class.to_owned())
}

/// Wait of a suspended run. The first of the given events wakes the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suspension {
    /// Step under which the server keeps the end of the wait.
    pub(crate) step: String,
    /// Time to wait, in milliseconds.
    pub(crate) delay_ms: Option<u64>,
    /// Time to wait until, in milliseconds since 1970.
    pub(crate) until_ms: Option<u64>,
    pub(crate) signal: Option<String>,
    pub(crate) children: bool,
}

/// Way in which a run is reported to the server.
#[derive(Debug)]
pub(crate) enum Settlement {
    Finish(Box<RawValue>),
    Fail {
        class: String,
        message: String,
        retry: RetryWish,
    },
    Release {
        delay: Duration,
    },
    Suspend(Suspension),
    /// The lease is lost: no report.
    Drop,
}

/// Wish for the next attempt after a failed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryWish {
    /// By the policy of the job.
    Policy,
    After(Duration),
    Never,
}

impl Settlement {
    pub(crate) fn failed(class: &str, message: impl Into<String>, retry: RetryWish) -> Settlement {
        Settlement::Fail { class: class.to_owned(), message: message.into(), retry }
    }

    /// Settlement of a run whose handler returned an error.
    pub(crate) fn of(failed: &HandlerError, is_cancelled: bool) -> Settlement {
        let error: &(dyn StdError + 'static) = &*failed.error;
        let mut link = Some(error);
        while let Some(error) = link {
            if let Some(settlement) = asked_for(error, is_cancelled) {
                return settlement;
            }
            link = inner(error);
        }
        let class = failed.class.clone().unwrap_or_else(|| "Error".to_owned());
        Settlement::Fail { class, message: chain(error), retry: RetryWish::Policy }
    }
}

/// Next error in the chain, also inside the wrappers of [`Error`], whose sources skip a link.
fn inner<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    match error.downcast_ref::<Error>() {
        Some(Error::Retry(retry)) => Some(retry),
        Some(Error::Fail(fail)) => Some(fail),
        Some(Error::Snooze(snooze)) => Some(snooze),
        Some(Error::Other(other)) => Some(&**other),
        Some(Error::Step { source, .. }) => Some(&**source),
        _ => error.source(),
    }
}

fn asked_for(error: &(dyn StdError + 'static), is_cancelled: bool) -> Option<Settlement> {
    if let Some(retry) = error.downcast_ref::<Retry>() {
        return Some(Settlement::failed("Retry", &retry.message, RetryWish::After(retry.after)));
    }
    if let Some(fail) = error.downcast_ref::<Fail>() {
        let class = fail.class.as_deref().unwrap_or("Fail");
        return Some(Settlement::failed(class, &fail.message, RetryWish::Never));
    }
    if let Some(snooze) = error.downcast_ref::<Snooze>() {
        return Some(Settlement::Release { delay: snooze.for_ });
    }
    match error.downcast_ref::<Error>()? {
        error if error.is_outage() => Some(Settlement::Release { delay: AFTER_OUTAGE }),
        Error::LeaseLost { .. } => Some(Settlement::Drop),
        Error::Cancelled if is_cancelled => Some(Settlement::Release { delay: Duration::ZERO }),
        Error::StepsChanged(message) => Some(Settlement::failed("StepsChanged", message, RetryWish::Never)),
        Error::ChildFailed { .. } => Some(Settlement::failed("ChildFailed", chain(error), RetryWish::Policy)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(error: impl Into<BoxError>) -> Settlement {
        Settlement::of(&HandlerError { error: error.into(), class: None }, false)
    }

    fn wrapped(error: impl Into<BoxError>) -> Error {
        Error::Step { name: "s".into(), source: Box::new(Error::Other(error.into())) }
    }

    #[test]
    fn outcomes_are_found_at_any_depth() {
        let minute = Duration::from_secs(60);
        let retry = Retry::after(minute).because("busy");
        for error in [Error::from(retry.clone()), Error::Other(retry.clone().into()), wrapped(retry)] {
            let Settlement::Fail { message, retry, .. } = settled(error) else { panic!("no failure") };
            assert_eq!((message.as_str(), retry), ("busy", RetryWish::After(minute)));
        }
        for error in [Error::from(Fail::new("no")), wrapped(Fail::new("no"))] {
            let Settlement::Fail { class, retry, .. } = settled(error) else { panic!("no failure") };
            assert_eq!((class.as_str(), retry), ("Fail", RetryWish::Never));
        }
        assert!(
            matches!(settled(wrapped(Snooze::new(minute))), Settlement::Release { delay } if delay == minute)
        );
        let lost = Error::LeaseLost { message: String::new() };
        assert!(matches!(settled(wrapped(lost)), Settlement::Drop));
    }

    #[test]
    fn an_outage_releases_the_run() {
        let outage = Error::Unreachable { server: "s".into(), why: "refused".into() };
        assert!(matches!(settled(wrapped(outage)), Settlement::Release { .. }));
        let refused = |status| Error::refused(status, "x".to_owned(), "no".to_owned());
        for status in [408, 429, 500, 502, 503, 507] {
            assert!(matches!(settled(wrapped(refused(status))), Settlement::Release { .. }), "{status}");
        }
        for status in [400, 401, 403, 409, 413] {
            assert!(matches!(settled(wrapped(refused(status))), Settlement::Fail { .. }), "{status}");
        }
    }

    #[test]
    fn an_ordinary_error_is_a_failed_attempt_by_the_policy() {
        let number = "many".parse::<i64>().unwrap_err();
        let Settlement::Fail { class, message, retry } = Settlement::of(&HandlerError::of(number), false)
        else {
            panic!("no failure")
        };
        assert_eq!((class.as_str(), retry), ("ParseIntError", RetryWish::Policy));
        assert_eq!(message, "invalid digit found in string");
        let Settlement::Fail { class, .. } = settled("text") else { panic!("no failure") };
        assert_eq!(class, "Error");
    }

    #[test]
    fn only_a_cancelled_job_ends_as_cancelled() {
        let error = || HandlerError::of(Error::Cancelled);
        assert!(matches!(Settlement::of(&error(), true), Settlement::Release { .. }));
        assert!(matches!(Settlement::of(&error(), false), Settlement::Fail { .. }));
    }

    #[test]
    fn a_class_is_the_name_of_a_telling_type() {
        for (name, class) in [
            ("core::num::error::ParseIntError", Some("ParseIntError")),
            ("my::CardError<alloc::string::String>", Some("CardError")),
            ("alloc::boxed::Box<dyn core::error::Error>", None),
            ("windlass_client::error::Error", None),
            ("alloc::string::String", None),
            ("anyhow::Error", None),
            ("&str", None),
        ] {
            assert_eq!(class_of(name).as_deref(), class, "{name}");
        }
    }
}
