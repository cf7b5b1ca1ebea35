//! Reading a set of inputs together, such that no value is lost with a run that fails.

use super::{ForInputs, ITEM_BYTES, PortError, Ports, RawJson, Side};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Value that was handed to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handed {
    pub port: String,
    pub value: RawJson,
    /// Taken from the port's queue; false for the default, which stays.
    pub queued: bool,
}

/// Inputs handed to a run that has not ended; returned to their ports if the run is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InHand {
    pub inputs: Vec<Handed>,
    /// The inputs are the defaults of all ports.
    pub are_defaults: bool,
    /// With `are_defaults`: the defaults that were handed out the time before.
    defaults_before: Option<Vec<RawJson>>,
}

impl InHand {
    pub(super) fn bytes(&self) -> usize {
        let inputs = self.inputs.iter().map(|handed| handed.port.len() + ITEM_BYTES + handed.value.cost());
        let before = self.defaults_before.iter().flatten().map(RawJson::cost);
        inputs.sum::<usize>() + before.sum::<usize>()
    }
}

/// Number of earlier occurrences of each name.
pub(super) fn earlier(names: &[&str]) -> Vec<usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut earlier = Vec::with_capacity(names.len());
    for name in names {
        let count = counts.entry(name).or_default();
        earlier.push(*count);
        *count += 1;
    }
    earlier
}

impl Ports {
    /// Reads the inputs once, like [`Ports::for_inputs`], and stores the defaults. `to_run`: the inputs of
    /// the previous call count as consumed, and the new ones can be returned. For any other reader a value is
    /// gone once read, and the inputs in the hands of the run stay there.
    pub fn hand_out(&mut self, names: &[&str], to_run: bool) -> Result<ForInputs, PortError> {
        let mut after = self.clone();
        if to_run {
            after.in_hand = None;
        }
        for name in names {
            after.size((Side::In, name))?;
        }
        let is_queued = |(name, earlier): (&&str, usize)| {
            after.inports.get(*name).is_some_and(|port| port.size() > earlier)
        };
        let queued: Vec<bool> = names.iter().zip(earlier(names)).map(is_queued).collect();
        let step = after.for_inputs(names, after.last_defaults.clone().as_deref())?;
        let handed = |values: &[RawJson]| -> Vec<Handed> {
            let inputs = names.iter().zip(values).zip(&queued);
            inputs
                .map(|((port, value), queued)| Handed {
                    port: (*port).to_owned(),
                    value: value.clone(),
                    queued: *queued,
                })
                .collect()
        };
        let in_hand = match &step {
            ForInputs::Values(values) => Some(InHand { inputs: handed(values), ..InHand::default() }),
            ForInputs::Defaults(values) => {
                let defaults_before = after.last_defaults.replace(values.clone());
                Some(InHand { inputs: handed(values), are_defaults: true, defaults_before })
            }
            ForInputs::Nothing | ForInputs::Suspend => None,
        };
        if to_run {
            after.in_hand = in_hand;
        }
        after.check_room_for(0)?;
        *self = after;
        Ok(step)
    }

    pub fn in_hand(&self) -> Option<&InHand> {
        self.in_hand.as_ref()
    }

    /// The run has consumed its inputs.
    pub fn inputs_used(&mut self) {
        self.in_hand = None;
    }

    /// Returns the inputs to the front of their queues. A port that was deleted meanwhile takes nothing back.
    pub fn inputs_returned(&mut self) {
        let Some(InHand { inputs, are_defaults, defaults_before }) = self.in_hand.take() else { return };
        if are_defaults {
            self.last_defaults = defaults_before;
        }
        for Handed { port, value, .. } in inputs.into_iter().rev().filter(|handed| handed.queued) {
            if let Some(port) = self.inports.get_mut(&port) {
                port.queue.push_front(value);
            }
        }
    }
}
