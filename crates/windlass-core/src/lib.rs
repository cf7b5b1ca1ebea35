//! Job rules as pure functions: no I/O, no clock, no source of randomness.
//!
//! | module | contents |
//! |---|---|
//! | [`job`] | what a job is: what was asked, what moves |
//! | [`state`] | where a job stands, with the diagram |
//! | [`transition`] | `created` and `apply`: the only place where a state changes |
//! | [`event`] | what can happen to a job |
//! | [`refused`] | why something may not happen now |
//! | [`lease`], [`retry`], [`unique`], [`family`], [`limits`] | the policies a dialect puts a job under |
//! | [`fair`] | places that several groups want: whose turn it is, whose work is cut short |
//! | [`matching`] | which names a worker asks for |
//! | [`scope`] | which jobs of a tenant a caller may reach |
//! | [`repeat`] | when a repeating job runs next |
//! | [`trail`] | what a job leaves behind: the words of its runs, what others did to it |
//! | [`ports`] | values that flow between long-lived jobs |
//! | [`names`], [`time`] | validated names; timestamps |

pub mod event;
pub mod fair;
pub mod family;
pub mod job;
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
pub mod time;
pub mod trail;
pub mod transition;
pub mod unique;

pub use event::Event;
pub use job::ResultPolicy;
pub use job::{Body, Extras, Format, Job, JobId, JobSpec, Keep, KeepFor, Outcome, Payload, Policy, Progress};
pub use lease::{Holder, Lease, Token};
pub use matching::NameMatch;
pub use names::{BadName, Name, Queue, Tenant};
pub use refused::Refused;
pub use scope::Scope;
pub use state::{JobState, StateName};
pub use time::Timestamp;
pub use transition::{Effects, Transition, apply, apply_for, created};
