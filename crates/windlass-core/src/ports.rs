//! Ports and state of a long-lived job: values that flow in, flow out, and stay with the job.
//!
//! A port is a queue of JSON values with an optional default that is read while the queue is empty. The name
//! `*` is not a port: where it is declared, any other name becomes a port at its first use, with the default
//! of `*`. The caller decides which job runs after a write and what is logged.

mod inputs;
mod raw_json;
mod state;
#[cfg(test)]
mod tests;
mod values;

pub use inputs::{Handed, InHand};
pub use raw_json::{RawJson, VALUE_BYTES_MAX, VALUE_DEPTH_MAX};

use PortError::{BadName, Missing, NoDestination, TooLarge, TooManyItems, TooManyPorts};
use serde::{Deserialize, Serialize};
use state::State;
use std::collections::BTreeMap;
use std::fmt;
use values::Values;

/// Values queued in one port. A store keeps all ports of a job in one record that every write replaces, so
/// ports are for data in transit, not for storage; in memory a new version shares its unchanged parts with
/// the previous one.
pub const PORT_ITEMS_MAX: usize = 10_000;
/// Ports of a job on one side. Names of ports created on demand come from data, so they need a bound.
pub const PORTS_MAX: usize = 1_000;
/// Longest port name in bytes, the same as for other names.
pub const PORT_NAME_BYTES_MAX: usize = crate::names::NAME_BYTES_MAX;
/// Bytes of all values, names and state of one job: the size of the record, and so the cost of writing one
/// value.
pub const PORTS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Overhead of a value beside its text, so that many tiny values count for the memory they take.
const ITEM_BYTES: usize = 32;

/// Declares that any name becomes a port at its first use.
const ON_DEMAND: &str = "*";

/// Direction of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    In,
    Out,
}

/// Address of a port: side and name.
pub type At<'a> = (Side, &'a str);

/// Declaration of the ports of one side: name (or `*`) and default.
pub type Declared = BTreeMap<String, Option<RawJson>>;

/// The ports and the custom state of one job. Empty for a job that has neither.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ports {
    inports: BTreeMap<String, Port>,
    outports: BTreeMap<String, Port>,
    state: State,
    /// Defaults that were last handed to a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_defaults: Option<Vec<RawJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_hand: Option<InHand>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    queue: Values,
    default: Option<RawJson>,
}

/// Reasons why an operation on ports is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    #[error("invalid port name: {name}")]
    BadName { name: String },
    #[error("{side} {name} not found")]
    Missing { side: Side, name: String },
    #[error("not JSON: {reason}")]
    NotJson { reason: String },
    #[error("a value is nested deeper than {max} levels")]
    TooDeep { max: usize },
    #[error("a value is {bytes} bytes long; the maximum is {max}")]
    ValueTooLong { bytes: usize, max: usize },
    #[error("{side} {name} would contain {items} values; the maximum is {max}")]
    TooManyItems { side: Side, name: String, items: usize, max: usize },
    #[error("the job would have {ports} {side}s; the maximum is {max}")]
    TooManyPorts { side: Side, ports: usize, max: usize },
    #[error("ports and state would have {bytes} bytes; the maximum is {max}")]
    TooLarge { bytes: usize, max: usize },
    #[error("no port to connect to")]
    NoDestination,
}

/// Values moved out of a port, and a copy of its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    pub items: Vec<RawJson>,
    pub default: Option<RawJson>,
}

/// Result of reading a set of inputs together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForInputs {
    /// Nothing to do.
    Nothing,
    /// Some ports have values, others neither values nor a default: wait for those.
    Suspend,
    /// A value from each port, removed from its queue. Ask again afterwards: more may be queued.
    Values(Vec<RawJson>),
    /// Only defaults, changed since the last time. The caller stores them before using them.
    Defaults(Vec<RawJson>),
}

/// Accepts letters, digits and underscores only.
pub fn check_port_name(name: &str) -> Result<(), PortError> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.len() > PORT_NAME_BYTES_MAX || !name.chars().all(good) {
        // The name may be of any length; the error repeats only its beginning.
        return Err(BadName { name: name.chars().take(PORT_NAME_BYTES_MAX).collect() });
    }
    Ok(())
}

/// Moves everything from a port of one job to ports of another, or fails and moves nothing. Returns for each
/// destination whether it changed.
pub fn connect(
    source: &mut Ports,
    from: At<'_>,
    destination: &mut Ports,
    to: &[At<'_>],
) -> Result<(Moved, Vec<bool>), PortError> {
    let (mut source_after, mut destination_after) = (source.clone(), destination.clone());
    let moved = source_after.take_all(from)?;
    let changed = destination_after.receive_all(to, &moved)?;
    (*source, *destination) = (source_after, destination_after);
    Ok((moved, changed))
}

impl Ports {
    pub fn new(inports: Declared, outports: Declared) -> Result<Ports, PortError> {
        let mut ports = Ports::default();
        ports.set_ports(Side::In, inports)?;
        ports.set_ports(Side::Out, outports)?;
        Ok(ports)
    }

    /// Ports of one side by name, without `*`.
    pub fn iter(&self, side: Side) -> impl Iterator<Item = (&str, &Port)> {
        self.side(side)
            .iter()
            .map(|(name, port)| (name.as_str(), port))
            .filter(|(name, _)| *name != ON_DEMAND)
    }

    /// Looks up a port without creating it; a port that would be created on demand is shown as `*`.
    pub fn port(&self, (side, name): At<'_>) -> Result<&Port, PortError> {
        check_port_name(name)?;
        let ports = self.side(side);
        ports.get(name).or_else(|| ports.get(ON_DEMAND)).ok_or_else(|| missing(side, name))
    }

    /// Port of exactly this name, if it exists already.
    pub fn existing(&self, (side, name): At<'_>) -> Option<&Port> {
        self.side(side).get(name)
    }

    /// Oldest value, else the default (any number of times), else nothing.
    pub fn read(&mut self, at: At<'_>) -> Result<Option<RawJson>, PortError> {
        Ok(self.open(at)?.read())
    }

    /// Appends all values in order, or none.
    pub fn write(&mut self, at: At<'_>, items: Vec<RawJson>) -> Result<(), PortError> {
        self.open(at)?;
        let bytes = items.iter().map(RawJson::cost).sum();
        self.check_room_for(bytes)?;
        let port = self.open(at)?;
        let (items_after, max) = (port.size() + items.len(), PORT_ITEMS_MAX);
        if items_after > max {
            return Err(TooManyItems { side: at.0, name: at.1.into(), items: items_after, max });
        }
        port.queue.extend(items);
        Ok(())
    }

    /// Removes and returns all values, oldest first; never the default.
    pub fn entries(&mut self, at: At<'_>) -> Result<Vec<RawJson>, PortError> {
        Ok(self.open(at)?.queue.take())
    }

    pub fn size(&mut self, at: At<'_>) -> Result<usize, PortError> {
        Ok(self.open(at)?.size())
    }

    pub fn has_data(&mut self, at: At<'_>) -> Result<bool, PortError> {
        Ok(self.open(at)?.has_data())
    }

    pub fn default_value(&mut self, at: At<'_>) -> Result<Option<RawJson>, PortError> {
        Ok(self.open(at)?.default.clone())
    }

    /// Sets the default; `None` clears it. Null is a default like any other value.
    pub fn set_default(&mut self, at: At<'_>, default: Option<RawJson>) -> Result<(), PortError> {
        let before = self.open(at)?.default.take();
        let room = self.check_room_for(default.as_ref().map_or(0, RawJson::cost));
        self.open(at)?.default = if room.is_ok() { default } else { before };
        room
    }

    /// Replaces the ports of a side: ports not in `declared` are deleted with their values, including ports
    /// created on demand; other ports keep their values; all defaults are the new ones.
    ///
    /// `declared` must include the worker's own ports.
    pub fn set_ports(&mut self, side: Side, declared: Declared) -> Result<(), PortError> {
        for name in declared.keys().filter(|name| *name != ON_DEMAND) {
            check_port_name(name)?;
        }
        check_number_of_ports(side, declared.len())?;
        let mut after = self.clone();
        let mut before = std::mem::take(after.side_mut(side));
        for (name, default) in declared {
            let queue = before.remove(&name).unwrap_or_default().queue;
            after.side_mut(side).insert(name, Port { queue, default });
        }
        after.check_room_for(0)?;
        *self = after;
        Ok(())
    }

    /// Removes all values for [`Ports::receive`]; [`connect`] does both for two jobs.
    pub fn take_all(&mut self, from: At<'_>) -> Result<Moved, PortError> {
        let port = self.open(from)?;
        Ok(Moved { items: port.queue.take(), default: port.default.clone() })
    }

    /// Appends moved values and takes over the default, if there is one. Returns whether the port changed.
    pub fn receive(&mut self, to: At<'_>, moved: &Moved) -> Result<bool, PortError> {
        let differs = moved.default.is_some() && self.open(to)?.default != moved.default;
        if differs {
            self.set_default(to, moved.default.clone())?;
        }
        self.write(to, moved.items.clone())?;
        Ok(differs || !moved.items.is_empty())
    }

    /// Same as [`connect`], within one job; a port may be its own destination.
    pub fn connect_within(&mut self, from: At<'_>, to: &[At<'_>]) -> Result<(Moved, Vec<bool>), PortError> {
        let mut after = self.clone();
        let moved = after.take_all(from)?;
        let changed = after.receive_all(to, &moved)?;
        *self = after;
        Ok((moved, changed))
    }

    /// Reads the inputs once; `last_defaults` are the values of the last [`ForInputs::Defaults`].
    ///
    /// | values in any? | value or default in all? | default in all? | answer |
    /// |---|---|---|---|
    /// | yes | yes | | `Values` |
    /// | yes | no | | `Suspend` |
    /// | no | | yes, other than last time | `Defaults` |
    /// | no | | no, or as last time | `Nothing` |
    pub fn for_inputs(
        &mut self,
        names: &[&str],
        last_defaults: Option<&[RawJson]>,
    ) -> Result<ForInputs, PortError> {
        for name in names {
            self.open((Side::In, name))?;
        }
        let ports: Vec<&Port> = names.iter().filter_map(|name| self.inports.get(*name)).collect();
        if ports.iter().all(|port| port.size() == 0) {
            let defaults: Option<Vec<RawJson>> = ports.iter().map(|port| port.default.clone()).collect();
            return Ok(match defaults {
                Some(defaults) if !names.is_empty() && last_defaults != Some(&*defaults) => {
                    ForInputs::Defaults(defaults)
                }
                Some(_) | None => ForInputs::Nothing,
            });
        }
        // A port named twice is read twice, so it needs two values or a default.
        let ready = |(port, earlier): (&&Port, usize)| port.size() > earlier || port.default.is_some();
        if !ports.iter().zip(inputs::earlier(names)).all(ready) {
            return Ok(ForInputs::Suspend);
        }
        let ports = names.iter().map(|name| self.inports.get_mut(*name)?.read());
        Ok(ports.collect::<Option<_>>().map_or(ForInputs::Suspend, ForInputs::Values))
    }

    pub fn state(&self) -> &BTreeMap<String, RawJson> {
        self.state.values()
    }

    /// Adds and replaces keys; other keys stay.
    pub fn set_state(&mut self, values: BTreeMap<String, RawJson>) -> Result<(), PortError> {
        let mut after = self.clone();
        after.state.set(values);
        after.check_room_for(0)?;
        *self = after;
        Ok(())
    }

    pub fn unset_state(&mut self, keys: &[&str]) {
        for key in keys {
            self.state.unset(key);
        }
    }

    /// Size including overhead; checked against [`PORTS_BYTES_MAX`].
    pub fn bytes(&self) -> usize {
        let sides = self.inports.iter().chain(&self.outports);
        let ports: usize = sides.map(|(name, port)| name.len() + ITEM_BYTES + port.bytes()).sum();
        let defaults = self.last_defaults.iter().flatten().map(RawJson::cost).sum::<usize>();
        ports + self.state.bytes() + defaults + self.in_hand.as_ref().map_or(0, InHand::bytes)
    }

    /// Returns the port, creating it if `*` is declared.
    fn open(&mut self, (side, name): At<'_>) -> Result<&mut Port, PortError> {
        check_port_name(name)?;
        if !self.side(side).contains_key(name) {
            let on_demand = self.side(side).get(ON_DEMAND).ok_or_else(|| missing(side, name))?;
            let port = Port { queue: Values::default(), default: on_demand.default.clone() };
            check_number_of_ports(side, self.side(side).len() + 1)?;
            self.check_room_for(name.len() + ITEM_BYTES + port.bytes())?;
            self.side_mut(side).insert(name.into(), port);
        }
        self.side_mut(side).get_mut(name).ok_or_else(|| missing(side, name))
    }

    fn receive_all(&mut self, to: &[At<'_>], moved: &Moved) -> Result<Vec<bool>, PortError> {
        if to.is_empty() {
            return Err(NoDestination);
        }
        to.iter().map(|at| self.receive(*at, moved)).collect()
    }

    fn check_room_for(&self, more_bytes: usize) -> Result<(), PortError> {
        let (bytes, max) = (self.bytes() + more_bytes, PORTS_BYTES_MAX);
        if bytes > max { Err(TooLarge { bytes, max }) } else { Ok(()) }
    }

    fn side(&self, side: Side) -> &BTreeMap<String, Port> {
        match side {
            Side::In => &self.inports,
            Side::Out => &self.outports,
        }
    }

    fn side_mut(&mut self, side: Side) -> &mut BTreeMap<String, Port> {
        match side {
            Side::In => &mut self.inports,
            Side::Out => &mut self.outports,
        }
    }
}

impl Port {
    /// Queued values, without the default.
    pub fn size(&self) -> usize {
        self.queue.len()
    }

    pub fn has_data(&self) -> bool {
        !self.queue.is_empty() || self.default.is_some()
    }

    pub fn default_value(&self) -> Option<&RawJson> {
        self.default.as_ref()
    }

    /// Values, oldest first.
    pub fn items(&self) -> impl Iterator<Item = &RawJson> {
        self.queue.iter()
    }

    fn read(&mut self) -> Option<RawJson> {
        self.queue.pop_front().or_else(|| self.default.clone())
    }

    fn bytes(&self) -> usize {
        self.queue.bytes() + self.default.as_ref().map_or(0, RawJson::cost)
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::In => "inport",
            Side::Out => "outport",
        })
    }
}

fn missing(side: Side, name: &str) -> PortError {
    Missing { side, name: name.into() }
}

fn check_number_of_ports(side: Side, ports: usize) -> Result<(), PortError> {
    let max = PORTS_MAX;
    if ports > max { Err(TooManyPorts { side, ports, max }) } else { Ok(()) }
}
