//! Parts of a job's view.

use crate::codec::{Encoding, Kept, Shown};
use crate::native::schema::FormatWord;
use crate::native::wire::Time;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use windlass_core::job::AttemptError;
use windlass_core::ports::{Port, Side};
use windlass_core::{Job, Lease, Outcome, Payload};

/// Values shown of one port. The dialect that has ports can read all of them.
const PORT_VALUES_SHOWN: usize = 100;
/// Bytes of values shown of one port.
const PORT_BYTES_SHOWN: usize = 64 << 10;

/// Defines the three fields of a payload. [`Shown`] documents which of them are present.
macro_rules! payload_fields {
    ($name:ident: $value:ident, $base64:ident, $format:ident) => {
        #[derive(Default, Serialize, JsonSchema)]
        pub(super) struct $name<'a> {
            /// Value.
            $value: Option<Kept<'a>>,
            /// Bytes in base64, if they cannot be written as JSON.
            #[schemars(with = "Option<String>")]
            $base64: Option<Kept<'a>>,
            #[schemars(with = "Option<FormatWord>")]
            $format: Option<&'static str>,
        }

        impl<'a> $name<'a> {
            pub(super) fn new(payload: &'a Payload, encoding: Encoding) -> $name<'a> {
                let Shown { value, base64, format } = Shown::new(payload, encoding);
                $name { $value: value, $base64: base64, $format: format }
            }
        }
    };
}

payload_fields!(PayloadFields: payload, payload_base64, format);
payload_fields!(ResultFields: result, result_base64, result_format);
payload_fields!(ErrorFields: error, error_base64, error_format);

#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct OutcomeFields<'a> {
    #[serde(flatten)]
    result: ResultFields<'a>,
    #[serde(flatten)]
    error: ErrorFields<'a>,
    /// Message for people.
    message: Option<&'a str>,
    /// Kind of error, such as the name of an exception.
    class: Option<&'a str>,
    /// Lines of the backtrace; not in lists.
    backtrace: Option<Vec<&'a str>>,
    /// Code for programs.
    code: Option<&'a str>,
    /// Exit code of a process.
    exit_code: Option<i32>,
}

impl<'a> OutcomeFields<'a> {
    pub(crate) fn new(outcome: Option<&'a Outcome>, encoding: Encoding) -> OutcomeFields<'a> {
        let Some(outcome) = outcome else { return OutcomeFields::default() };
        let Outcome { result, error, .. } = outcome;
        OutcomeFields {
            result: result.as_ref().map_or_else(Default::default, |it| ResultFields::new(it, encoding)),
            error: error.as_ref().map_or_else(Default::default, |it| ErrorFields::new(it, encoding)),
            message: outcome.message.as_deref(),
            class: outcome.class.as_deref(),
            backtrace: outcome.backtrace.as_deref().map(lines),
            code: outcome.code.as_deref(),
            exit_code: outcome.exit_code,
        }
    }

    /// Shorter form for lists.
    pub(super) fn without_backtrace(self) -> OutcomeFields<'a> {
        OutcomeFields { backtrace: None, ..self }
    }
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

/// Progress of the run.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Progress<'a> {
    /// Percent done.
    #[schemars(range(max = 100))]
    percent: Option<u8>,
    /// Note for people.
    note: Option<&'a str>,
}

impl<'a> Progress<'a> {
    pub(crate) fn of(job: &'a Job) -> Option<Progress<'a>> {
        let body = job.body.as_ref().filter(|body| body.percent.is_some() || body.note.is_some())?;
        Some(Progress { percent: body.percent, note: body.note.as_deref() })
    }
}

/// Lease of the current run.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct LeaseView<'a> {
    /// Name of the worker, as it sent it.
    worker: Option<&'a str>,
    /// Start of the lease.
    granted_at: Time,
    /// Expiry of the lease without a heartbeat.
    until: Option<Time>,
    /// True if the worker was asked to stop.
    cancel_asked: bool,
}

impl<'a> LeaseView<'a> {
    pub(super) fn new(lease: &'a Lease) -> LeaseView<'a> {
        LeaseView {
            worker: lease.worker.as_deref(),
            granted_at: lease.granted_at.into(),
            until: lease.until.map(Time::from),
            cancel_asked: lease.cancel_asked,
        }
    }
}

/// Failed attempt.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct FailedAttempt<'a> {
    /// Number of the attempt.
    attempt: u32,
    /// Time of the failure.
    at: Time,
    /// Error message.
    message: &'a str,
    /// Kind of error, such as the name of an exception.
    class: Option<&'a str>,
    #[serde(flatten)]
    error: ErrorFields<'a>,
    /// Lines of the backtrace; not in lists.
    backtrace: Option<Vec<&'a str>>,
    /// Start of the attempt.
    started_at: Option<Time>,
    /// Name of the worker.
    worker: Option<&'a str>,
}

impl<'a> FailedAttempt<'a> {
    /// Failed attempt in a list, without its error and backtrace.
    pub(super) fn brief(error: &'a AttemptError) -> FailedAttempt<'a> {
        FailedAttempt {
            attempt: error.attempt,
            at: error.at.into(),
            message: &error.message,
            class: error.class.as_deref(),
            error: ErrorFields::default(),
            backtrace: None,
            started_at: error.started_at.map(Time::from),
            worker: error.worker.as_deref(),
        }
    }

    pub(super) fn new(error: &'a AttemptError, encoding: Encoding) -> FailedAttempt<'a> {
        FailedAttempt {
            error: error.error.as_ref().map_or_else(Default::default, |it| ErrorFields::new(it, encoding)),
            backtrace: error.backtrace.as_deref().map(lines),
            ..FailedAttempt::brief(error)
        }
    }
}

/// Ports of a long-lived job.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Ports<'a> {
    /// Inputs by name.
    inports: BTreeMap<&'a str, PortView<'a>>,
    /// Outputs by name.
    outports: BTreeMap<&'a str, PortView<'a>>,
}

impl<'a> Ports<'a> {
    pub(super) fn new(ports: &'a windlass_core::ports::Ports) -> Ports<'a> {
        let side = |side| ports.iter(side).map(|(name, port)| (name, PortView::new(port))).collect();
        Ports { inports: side(Side::In), outports: side(Side::Out) }
    }
}

/// Port.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct PortView<'a> {
    /// Number of queued values.
    size: usize,
    /// Value that is read when none is queued.
    default: Option<Kept<'a>>,
    /// First queued values.
    values: Vec<Kept<'a>>,
}

impl<'a> PortView<'a> {
    fn new(port: &'a Port) -> PortView<'a> {
        let mut bytes = 0;
        let fits = |text: &&str| {
            bytes += text.len();
            bytes <= PORT_BYTES_SHOWN
        };
        let texts = port.items().take(PORT_VALUES_SHOWN).map(|value| value.as_str());
        PortView {
            size: port.size(),
            default: port.default_value().map(|value| Kept::Json(value.as_str().as_bytes())),
            values: texts.take_while(fits).map(|text| Kept::Json(text.as_bytes())).collect(),
        }
    }
}
