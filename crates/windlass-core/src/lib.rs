//! Job rules as pure functions: no I/O, no clock, no source of randomness.
//!
//! | module | contents |
//! |---|---|
//! | [`job`] | a job: its specification, policy, progress and outcome |
//! | [`state`] | job states, with the state diagram |
//! | [`state_word`] | word by which a state is shown |
//! | [`transition`] | `created` and `apply`: the only code that changes a state |
//! | [`event`] | events that `apply` accepts |
//! | [`actions`] | what a person may do to a job in its state |
//! | [`refused`] | reasons why an event is refused |
//! | [`keep`], [`lease`], [`retry`], [`unique`], [`family`], [`limits`] | policies that a dialect sets on a job |
//! | [`handler`] | source and options of a handler |
//! | [`fair`] | fair sharing of worker slots between groups: next group, preemption |
//! | [`failure`] | what is kept of a failure, within bounds; groups of failures |
//! | [`matching`] | name patterns of a claim |
//! | [`scope`] | which jobs of a tenant a caller may reach |
//! | [`repeat`], [`turn`] | next run of a repeating job; its turns and their outcomes |
//! | [`history`] | job log and history of outside actions |
//! | [`ports`] | values that flow between long-lived jobs |
//! | [`trace`] | trace context of a job, and the ids of the spans about it |
//! | [`names`], [`time`] | validated names; timestamps |

pub mod actions;
pub mod event;
pub mod failure;
pub mod fair;
pub mod family;
pub mod handler;
pub mod history;
pub mod job;
pub mod keep;
pub mod lease;
pub mod limits;
pub mod matching;
pub mod names;
pub mod ports;
pub mod refused;
pub mod repeat;
pub mod retry;
pub mod scope;
pub mod state;
pub mod state_word;
pub mod steps;
pub mod time;
pub mod trace;
pub mod transition;
pub mod turn;
pub mod unique;

pub use actions::Action;
pub use event::Event;
pub use job::ResultPolicy;
pub use job::{Body, Extras, Format, Job, JobId, JobSpec, Keep, KeepFor, Outcome, Payload, Policy, Progress};
pub use lease::{Holder, Lease, Token};
pub use matching::NameMatch;
pub use names::{BadName, Name, Queue, Tenant};
pub use refused::Refused;
pub use scope::Scope;
pub use state::{JobState, StateName};
pub use state_word::StateWord;
pub use time::Timestamp;
pub use transition::{Effects, Transition, apply, apply_for, created};
