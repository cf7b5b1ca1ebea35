//! Port operations. Each function is one call and runs inside a transaction.

use super::errors::Problem;
use super::log::PortEvents;
use super::runs::{self, Ran};
use super::tx::{Reply, Stop, Tx};
use super::wire::{Context, PortAt, Write};
use crate::codec::{Encoding, Out};
use windlass_core::ports::{Declared, ForInputs, Moved, Port, Ports, RawJson, Side};
use windlass_core::{Holder, Job, JobId, JobState, Token};

/// Port of a job.
#[derive(Clone, Debug)]
pub(super) struct At {
    pub job: JobId,
    pub side: Side,
    pub port: String,
}

impl At {
    pub(super) fn of(place: &PortAt, job: JobId) -> At {
        At { job: place.job.unwrap_or(job), side: place.side, port: place.port.clone() }
    }

    fn place(&self) -> (Side, &str) {
        (self.side, &self.port)
    }
}

/// Reads a value: `{"data": 5}`, or `{}` if there is none.
pub(super) fn read(tx: &mut Tx<'_, '_>, at: &At, events: &mut PortEvents) -> Result<Reply, Stop> {
    let mut ports = tx.ports(at.job)?;
    let before = ports.existing(at.place()).map(Port::size);
    let value = ports.read(at.place()).map_err(|error| Problem::port(at.job, &error))?;
    // Reading a default does not change the port, so nothing is written.
    if before != Some(0) {
        tx.set_ports(at.job, ports)?;
    }
    let Some(value) = value else { return Ok(Reply::new("{}")) };
    let reply = Reply::new(format!("{{\"data\":{value}}}"));
    events.read(at.job, at.place(), vec![value]);
    Ok(reply)
}

/// Reads all values and empties the port.
pub(super) fn entries(tx: &mut Tx<'_, '_>, at: &At, events: &mut PortEvents) -> Result<Reply, Stop> {
    let values = tx.with_ports(at.job, |ports| ports.entries(at.place()))?;
    let reply = Reply::new(format!("{{\"entries\":{}}}", listed(&values)));
    events.read(at.job, at.place(), values);
    Ok(reply)
}

/// Destination of written values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing {
    Queue,
    /// The last value becomes the default.
    Default,
}

pub(super) fn write(
    tx: &mut Tx<'_, '_>,
    at: &At,
    values: &[RawJson],
    writing: Writing,
    events: &mut PortEvents,
) -> Result<Ran, Stop> {
    tx.with_ports(at.job, |ports| match (writing, values.last()) {
        (Writing::Default, Some(last)) => ports.set_default(at.place(), Some(last.clone())),
        (Writing::Queue, _) | (Writing::Default, None) => ports.write(at.place(), values.to_vec()),
    })?;
    events.wrote(at.job, at.place(), values.to_vec());
    if values.is_empty() {
        return Ok(Ran::default());
    }
    runs::after_write(tx, at.job, at.side)
}

/// Sets the default of a port. Starts no run and logs nothing.
pub(super) fn set_default(tx: &mut Tx<'_, '_>, at: &At, default: Option<RawJson>) -> Result<Reply, Stop> {
    tx.with_ports(at.job, |ports| ports.set_default(at.place(), default))?;
    Ok(Reply::null())
}

/// Moves all values of a port to other ports, in one transaction.
pub(super) fn connect(
    tx: &mut Tx<'_, '_>,
    from: &At,
    to: &[PortAt],
    context: &Context,
) -> Result<Reply, Stop> {
    if to.is_empty() {
        return Err(Problem::port(from.job, &windlass_core::ports::PortError::NoDestination).into());
    }
    let moved: Moved = tx.with_ports(from.job, |ports| ports.take_all(from.place()))?;
    let mut events = PortEvents::default();
    events.read(from.job, from.place(), moved.items.clone());
    let mut changed = Vec::new();
    for to in to.iter().map(|to| At::of(to, from.job)) {
        let is_new = tx.with_ports(to.job, |ports| ports.receive(to.place(), &moved))?;
        events.wrote(to.job, to.place(), moved.items.clone());
        if is_new {
            changed.push(to);
        }
    }
    // All values are in place before any job is run because of them.
    let mut ran = Ran::default();
    for to in changed {
        ran = ran.and(runs::after_write(tx, to.job, to.side)?);
    }
    tx.log_ports(&events, context);
    Ok(Reply::new(format!("{{\"data\":{}}}", listed(&moved.items))).with_error(ran.trouble))
}

/// Replaces the ports of a job by these and the ports of its class; a side that is not given stays unchanged.
pub(super) fn set(
    tx: &mut Tx<'_, '_>,
    id: JobId,
    inports: Option<Declared>,
    outports: Option<Declared>,
) -> Result<Reply, Stop> {
    let job = tx.job(id)?;
    let Some(class) = tx.queues.class_of(&job) else {
        return Err(Problem::no_longer_registered(&job.spec.name, &job.spec.queue).into());
    };
    let (has_in, has_out) = (inports.is_some(), outports.is_some());
    let (inports, outports) = class.with(inports.unwrap_or_default(), outports.unwrap_or_default());
    tx.with_ports(id, |ports| {
        if has_in {
            ports.set_ports(Side::In, inports)?;
        }
        if has_out {
            ports.set_ports(Side::Out, outports)?;
        }
        Ok(())
    })?;
    Ok(Reply::null())
}

/// Checks that the token is that of the current run.
pub(super) fn check_run(
    tx: &mut Tx<'_, '_>,
    id: JobId,
    token: &str,
) -> Result<(std::sync::Arc<Job>, Holder), Stop> {
    let job = tx.job(id)?;
    let token = token.parse().ok().map(Token::from_number);
    match (job.state(), token) {
        (JobState::Running(lease), Some(token)) if lease.token == token && !lease.has_ended(tx.now()) => {
            Ok((job, Holder::Token(token)))
        }
        _ => Err(Problem::stale(id).into()),
    }
}

/// Ends an iteration: applies its writes, and logs its inputs and writes as one entry.
pub(super) fn end_iteration(
    tx: &mut Tx<'_, '_>,
    id: JobId,
    writes: &[Write],
    context: &Context,
) -> Result<Ran, Stop> {
    let mut events = PortEvents::default();
    let ports = tx.ports(id)?;
    let in_hand = ports.in_hand().cloned().unwrap_or_default();
    for handed in &in_hand.inputs {
        events.read(id, (Side::In, &handed.port), vec![handed.value.clone()]);
    }
    let mut ran = Ran::default();
    for Write { to, values } in writes {
        let at = At::of(to, id);
        let to_default = in_hand.are_defaults && at.job == id && at.side == Side::Out;
        let writing = if to_default { Writing::Default } else { Writing::Queue };
        ran = ran.and(write(tx, &at, values, writing, &mut events)?);
    }
    tx.log_ports(&events, context);
    Ok(ran)
}

/// Takes the next set of inputs.
pub(super) fn for_inputs(
    tx: &mut Tx<'_, '_>,
    id: JobId,
    names: &[String],
    in_run: bool,
    context: &Context,
) -> Result<Reply, Stop> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let step = tx.with_ports(id, |ports| ports.hand_out(&names, in_run))?;
    let (values, defaults) = match step {
        ForInputs::Nothing => return Ok(Reply::new("{\"next\":\"return\"}")),
        ForInputs::Suspend => return Ok(Reply::new("{\"next\":\"suspend\"}")),
        ForInputs::Values(values) => (values, false),
        ForInputs::Defaults(values) => (values, true),
    };
    if !in_run {
        // Without a run there is no report later, so the inputs are logged now.
        let mut events = PortEvents::default();
        for (name, value) in names.iter().zip(&values) {
            events.read(id, (Side::In, name), vec![value.clone()]);
        }
        tx.log_ports(&events, context);
    }
    let values = listed(&values);
    Ok(Reply::new(format!("{{\"next\":\"call\",\"values\":{values},\"defaults\":{defaults}}}")))
}

/// Operation of a group. A group is one transaction and one log entry.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Read(At),
    Entries(At),
    Write(At, Vec<RawJson>),
}

impl Operation {
    pub(super) fn job(&self) -> JobId {
        match self {
            Operation::Read(at) | Operation::Entries(at) | Operation::Write(at, _) => at.job,
        }
    }
}

pub(super) fn group(tx: &mut Tx<'_, '_>, operations: &[Operation], context: &Context) -> Result<Reply, Stop> {
    let mut events = PortEvents::default();
    let mut ran = Ran::default();
    let mut results = Vec::with_capacity(operations.len());
    for operation in operations {
        results.push(match operation {
            Operation::Read(at) => read(tx, at, &mut events)?.text,
            Operation::Entries(at) => entries(tx, at, &mut events)?.text,
            Operation::Write(at, values) => {
                ran = ran.and(write(tx, at, values, Writing::Queue, &mut events)?);
                "null".to_owned()
            }
        });
    }
    tx.log_ports(&events, context);
    Ok(Reply::new(format!("{{\"results\":[{}]}}", results.join(","))).with_error(ran.trouble))
}

/// Writes `{"size": 0, "default": 5}`; the default only if there is one.
pub(super) fn write_port(out: &mut Out, port: &Port) {
    out.begin_map();
    out.key("size");
    out.uint(port.size() as u64);
    if let Some(default) = port.default_value() {
        out.key("default");
        out.json(default.as_str());
    }
    out.end_map();
}

pub(super) fn all_shown(out: &mut Out, ports: Option<&Ports>, side: Side) {
    out.begin_map();
    for (name, port) in ports.into_iter().flat_map(|ports| ports.iter(side)) {
        out.key(name);
        write_port(out, port);
    }
    out.end_map();
}

fn listed(values: &[RawJson]) -> String {
    let mut out = Out::new(Encoding::Json, 64);
    out.begin_array();
    values.iter().for_each(|value| out.json(value.as_str()));
    out.end_array();
    String::from_utf8(out.into_bytes()).unwrap_or_default()
}
