//! Profile: the version of Bedrock::Jobs that is spoken. Each difference between the profiles is a method
//! here.

use windlass_core::family::FamilyRule;
use windlass_core::repeat::modifiers::{Missed, Style, Words};

/// Claims of a job with `retryAfter` in the `current` profile; the next claim fails the job.
const HAND_OUTS_MAX: u32 = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// The rules in the original description of Bedrock::Jobs.
    #[default]
    Seed,
    /// The behavior of the current public Bedrock server.
    Current,
}

impl Profile {
    pub fn parse(word: &str) -> Option<Profile> {
        match word {
            "seed" => Some(Profile::Seed),
            "current" => Some(Profile::Current),
            _ => None,
        }
    }

    fn is_seed(self) -> bool {
        self == Profile::Seed
    }

    /// GetJob honors `Connection: wait`.
    pub fn waits(self) -> bool {
        self.is_seed()
    }

    /// `retryAfter` may be combined with `repeat` and `unique`.
    pub fn combines_retry_after(self) -> bool {
        !self.is_seed()
    }

    /// Claims of a job with `retryAfter` before it fails; `None`: no bound.
    pub fn hand_outs_max(self) -> Option<u32> {
        if self.is_seed() { None } else { Some(HAND_OUTS_MAX) }
    }

    /// A repeated CreateJob of a unique job replaces the data and keeps the fields that are not sent.
    /// Otherwise the data is merged, and fields that are not sent return to their defaults.
    pub fn unique_replaces(self) -> bool {
        self.is_seed()
    }

    pub fn repeat_style(self) -> Style {
        match self {
            Profile::Seed => Style { words: Words::AfterFinish, missed: Missed::CatchUp },
            Profile::Current => Style { words: Words::Snap, missed: Missed::JumpOver },
        }
    }

    /// Stored form of `repeat`.
    pub fn repeat_text(self, entered: &str) -> String {
        if self.is_seed() { entered.to_owned() } else { entered.to_ascii_uppercase() }
    }

    /// A retry moves the schedule of a SCHEDULED job; the data carries the original `nextRun`.
    pub fn retry_moves_slot(self) -> bool {
        !self.is_seed()
    }

    /// Rule for failed children: a failed child counts as finished, or its parent keeps waiting.
    pub fn family_rule(self) -> FamilyRule {
        FamilyRule::ParentWaits { failure_settles: self.is_seed() }
    }

    /// A RUNQUEUED job can be cancelled while a worker has it.
    pub fn cancels_runqueued(self) -> bool {
        !self.is_seed()
    }

    /// `CancelJob` with text after the verb in its method line succeeds and does nothing.
    pub fn ignores_cancel_with_tail(self) -> bool {
        !self.is_seed()
    }

    /// A name that looks like a number is written as a JSON number.
    pub fn guesses_names(self) -> bool {
        !self.is_seed()
    }

    /// A `SELECT` without a format returns one JSON array per row; otherwise lines of text.
    pub fn query_answers_arrays(self) -> bool {
        self.is_seed()
    }
}
