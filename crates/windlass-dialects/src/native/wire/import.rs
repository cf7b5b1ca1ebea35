//! `POST /api/v1/import`: jobs that were made elsewhere, as they stand there.

use super::When;
use crate::codec::{Raw, Text};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::event::Stands;
use windlass_core::{Format, JobId, Policy};

#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportAsk<'a> {
    #[serde(borrow)]
    pub jobs: Vec<ImportEntry<'a>>,
    #[serde(borrow, default)]
    pub tenant: Option<Text<'a>>,
}

#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportEntry<'a> {
    /// Says which job it was; sent again, it makes no second one.
    #[serde(borrow)]
    pub alias: Text<'a>,
    #[serde(borrow)]
    pub name: Text<'a>,
    #[serde(borrow, default)]
    pub queue: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub payload: Option<Raw<'a>>,
    #[serde(borrow, default)]
    pub payload_base64: Option<Text<'a>>,
    #[serde(default)]
    pub format: Option<Format>,
    #[serde(default)]
    pub priority: i32,
    pub stands: StandsWord,
    pub created_at: When,
    /// When its present or next run is or was due.
    pub due_at: When,
    #[serde(default)]
    pub started_at: Option<When>,
    /// A job that was imported before, and waits.
    #[serde(default)]
    pub parent: Option<JobId>,
    /// Whether its failure is an end to its parent.
    #[serde(default = "yes")]
    pub failure_settles: bool,
    /// The rules it lives by, as the engine writes them.
    #[serde(default)]
    pub policy: Option<Policy>,
    #[serde(borrow, default)]
    pub origin: Option<Text<'a>>,
    #[serde(default)]
    pub facts: BTreeMap<Arc<str>, Arc<str>>,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StandsWord {
    Ready,
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

impl From<StandsWord> for Stands {
    fn from(word: StandsWord) -> Stands {
        match word {
            StandsWord::Ready => Stands::Ready,
            StandsWord::Waiting => Stands::Waiting,
            StandsWord::Completed => Stands::Completed,
            StandsWord::Failed => Stands::Failed,
            StandsWord::Cancelled => Stands::Cancelled,
        }
    }
}
