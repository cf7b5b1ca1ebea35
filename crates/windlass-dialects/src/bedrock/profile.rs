//! Which Bedrock is spoken. Everything the profiles do differently asks one of these questions.

use windlass_core::family::FamilyRule;
use windlass_core::repeat::modifiers::{Missed, Style, Words};

/// Hand-outs of a job with `retryAfter` in today's Bedrock; the next one fails it.
const HAND_OUTS_MAX: u32 = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// The rules Bedrock::Jobs was first described with.
    #[default]
    Seed,
    /// What the public server does today.
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

    /// GetJob waits when it is asked to.
    pub fn waits(self) -> bool {
        self.is_seed()
    }

    /// `retryAfter` goes together with `repeat` and `unique`.
    pub fn combines_retry_after(self) -> bool {
        !self.is_seed()
    }

    /// How often a job with `retryAfter` is handed out before it fails.
    pub fn hand_outs_max(self) -> Option<u32> {
        if self.is_seed() { None } else { Some(HAND_OUTS_MAX) }
    }

    /// Creating a unique job again leaves alone what is not given, and replaces the data.
    pub fn unique_replaces(self) -> bool {
        self.is_seed()
    }

    pub fn repeat_style(self) -> Style {
        match self {
            Profile::Seed => Style { words: Words::AfterFinish, missed: Missed::CatchUp },
            Profile::Current => Style { words: Words::Snap, missed: Missed::JumpOver },
        }
    }

    /// `repeat` as it is kept.
    pub fn repeat_text(self, entered: &str) -> String {
        if self.is_seed() { entered.to_owned() } else { entered.to_ascii_uppercase() }
    }

    /// A retry moves the slots of a SCHEDULED job, and the data says from where they are counted.
    pub fn retry_moves_slot(self) -> bool {
        !self.is_seed()
    }

    /// A failed child is as good as a finished one to its parent, or the parent goes on waiting.
    pub fn family_rule(self) -> FamilyRule {
        FamilyRule::ParentWaits { failure_settles: self.is_seed() }
    }

    /// A job that was handed out with `retryAfter` can be cancelled under its worker.
    pub fn cancels_runqueued(self) -> bool {
        !self.is_seed()
    }

    /// `CancelJob` with an HTTP tail is answered and does nothing.
    pub fn cancel_minds_its_line(self) -> bool {
        !self.is_seed()
    }

    /// A name like `123` is written as the number it looks like.
    pub fn guesses_names(self) -> bool {
        !self.is_seed()
    }

    /// How a `SELECT` is answered when no format is asked for: one JSON array per row, or lines.
    pub fn query_answers_arrays(self) -> bool {
        self.is_seed()
    }
}
