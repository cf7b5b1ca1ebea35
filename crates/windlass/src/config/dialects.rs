//! The settings of dialects, from their keys.

use super::Found;
use windlass_dialects::{queuey, sidejob};
use windlass_engine::blob::AddrForm;

impl Found<'_> {
    pub(super) fn queuey(&self) -> queuey::Settings {
        let addresses = AddrForm::parse(self.text("blobs.address")).unwrap_or_default();
        let keep_ms = Some(self.whole("queuey.keep_s")).filter(|seconds| *seconds > 0);
        queuey::Settings {
            addresses,
            abandoned_age_ms: self.whole("queuey.abandoned_age_s").saturating_mul(1_000),
            max_attempts: u32::try_from(self.whole("queuey.max_attempts")).unwrap_or(u32::MAX),
            counting: match self.text("queuey.attempt_counting") {
                "claims-only" => queuey::Counting::ClaimsOnly,
                _ => queuey::Counting::Literal,
            },
            keep_ms: keep_ms.map(|seconds| seconds.saturating_mul(1_000)),
        }
    }

    pub(super) fn queuey_port(&self) -> Option<u16> {
        u16::try_from(self.whole("queuey.port")).ok().filter(|port| *port > 0)
    }

    pub(super) fn sidejob(&self) -> sidejob::Settings {
        sidejob::Settings {
            // Without any time no run could end.
            lease_ms: self.whole("sidejob.lease_s").max(1).saturating_mul(1_000),
            grace_ms: self.whole("sidejob.grace_s").max(0).saturating_mul(1_000),
            runs_per_minute: u32::try_from(self.whole("sidejob.runs_per_minute")).unwrap_or(u32::MAX),
            origins: self.text("sidejob.origins").split_whitespace().map(str::to_owned).collect(),
        }
    }
}
