//! Messages between the server and the process that runs a statement: frames of a length (four bytes,
//! little-endian), a kind (one byte) and a body. Both sides are the same program, so the format has no
//! version.

use super::format::Format;
use super::sandbox::{Accesses, COLUMNS, QueryError, Row, RowChange};
use rusqlite::types::Value;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// Largest frame accepted from the server, which sends rows in far smaller pieces.
const ORDER_BYTES_MAX: usize = 1 << 30;

/// Limits of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryLimits {
    /// Memory for the copied jobs, for sorting, and for values that functions produce.
    pub memory_bytes: u64,
}

impl Default for QueryLimits {
    fn default() -> QueryLimits {
        QueryLimits { memory_bytes: 512 << 20 }
    }
}

/// Statement to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    pub sql: String,
    pub format: Format,
    /// Time limit.
    pub left_ms: u64,
}

/// Result of a statement: its output, and the rows it changed, ordered by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    pub body: Vec<u8>,
    pub touched: Vec<RowChange>,
}

/// Message to the process.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    /// Sent once, as the first message.
    Begin(QueryLimits),
    Run(Run),
    /// Some of the jobs that the statement concerns, as written by [`put_row`].
    Rows(Vec<u8>),
    /// All rows are sent: run the statement.
    Go,
    /// Abandon the statement.
    GiveUp,
}

/// Message from the process.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    /// Ready for statements; lists the confinements in force besides SQLite's authorizer.
    Ready(Vec<String>),
    /// Columns that the statement reads and writes; requests the rows.
    Wants(Accesses),
    Found(Found),
    Trouble(QueryError),
}

impl Order {
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        match self {
            Order::Begin(limits) => frame(b'b', &serde_json::to_vec(limits)?),
            Order::Run(run) => frame(b'q', &serde_json::to_vec(run)?),
            Order::Rows(rows) => frame(b'r', rows),
            Order::Go => frame(b'g', &[]),
            Order::GiveUp => frame(b'x', &[]),
        }
    }

    /// `None` at the end of input.
    pub(super) fn read(from: &mut impl Read) -> io::Result<Option<Order>> {
        let mut head = [0; 5];
        match from.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let mut body = vec![0; length_of(&head, ORDER_BYTES_MAX)?];
        from.read_exact(&mut body)?;
        Ok(Some(match head[4] {
            b'b' => Order::Begin(json(&body)?),
            b'q' => Order::Run(json(&body)?),
            b'r' => Order::Rows(body),
            b'g' => Order::Go,
            b'x' => Order::GiveUp,
            kind => return Err(bad(&format!("an order of the kind {kind}"))),
        }))
    }
}

impl Reply {
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let bytes = match self {
            Reply::Ready(confined) => frame(b'y', &serde_json::to_vec(confined)?)?,
            Reply::Wants(wants) => frame(b'w', &serde_json::to_vec(wants)?)?,
            Reply::Trouble(trouble) => frame(b't', &serde_json::to_vec(trouble)?)?,
            Reply::Found(found) => {
                let mut head = Vec::new();
                head.extend_from_slice(&u32_of(found.body.len())?);
                for touched in &found.touched {
                    put_touched(touched, &mut head)?;
                }
                let length = u32_of(head.len() + found.body.len())?;
                to.write_all(&length)?;
                to.write_all(b"f")?;
                to.write_all(&head[..4])?;
                to.write_all(&found.body)?;
                head.drain(..4);
                head
            }
        };
        to.write_all(&bytes)?;
        to.flush()
    }

    pub(super) fn decode(kind: u8, body: Vec<u8>) -> io::Result<Reply> {
        Ok(match kind {
            b'y' => Reply::Ready(json(&body)?),
            b'w' => Reply::Wants(json(&body)?),
            b't' => Reply::Trouble(json(&body)?),
            b'f' => Reply::Found(take_found(body)?),
            kind => return Err(bad(&format!("a reply of the kind {kind}"))),
        })
    }
}

/// Length of a frame, from its head; the fifth byte is the kind.
pub(super) fn length_of(head: &[u8; 5], bytes_max: usize) -> io::Result<usize> {
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > bytes_max {
        return Err(bad(&format!("a frame of {length} bytes where {bytes_max} are allowed")));
    }
    Ok(length)
}

fn frame(kind: u8, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut frame = Vec::with_capacity(body.len() + 5);
    frame.extend_from_slice(&u32_of(body.len())?);
    frame.push(kind);
    frame.extend_from_slice(body);
    Ok(frame)
}

fn json<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    Ok(serde_json::from_slice(body)?)
}

fn u32_of(length: usize) -> io::Result<[u8; 4]> {
    u32::try_from(length).map(u32::to_le_bytes).map_err(io::Error::other)
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

// --- values: a tag, then its bytes ---------------------------------------------------------------------

const NULL: u8 = 0;
/// Integer 0 in one byte; also fills the columns that the statement does not read.
const ZERO: u8 = 1;
const INTEGER: u8 = 2;
const REAL: u8 = 3;
const TEXT: u8 = 4;
const BLOB: u8 = 5;

pub(super) fn put_row(row: &Row, out: &mut Vec<u8>) -> io::Result<()> {
    row.iter().try_for_each(|value| put_value(value, out))
}

/// Decodes the rows in a frame.
pub(super) fn rows(bytes: &[u8]) -> impl Iterator<Item = io::Result<Row>> {
    let mut rest = Rest(bytes);
    std::iter::from_fn(move || (!rest.0.is_empty()).then(|| take_row(&mut rest)))
}

fn take_row(rest: &mut Rest<'_>) -> io::Result<Row> {
    let mut row = [const { Value::Null }; COLUMNS.len()];
    for value in &mut row {
        *value = rest.value()?;
    }
    Ok(row)
}

fn put_value(value: &Value, out: &mut Vec<u8>) -> io::Result<()> {
    let mut put_bytes = |tag: u8, bytes: &[u8]| {
        out.push(tag);
        out.extend_from_slice(&u32_of(bytes.len())?);
        out.extend_from_slice(bytes);
        Ok(())
    };
    match value {
        Value::Text(text) => return put_bytes(TEXT, text.as_bytes()),
        Value::Blob(bytes) => return put_bytes(BLOB, bytes),
        Value::Null => out.push(NULL),
        Value::Integer(0) => out.push(ZERO),
        Value::Integer(number) => {
            out.push(INTEGER);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::Real(number) => {
            out.push(REAL);
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    Ok(())
}

fn put_touched(touched: &RowChange, out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(&touched.id.to_le_bytes());
    let Some(values) = &touched.set else {
        out.push(u8::MAX);
        return Ok(());
    };
    out.push(values.len() as u8);
    for (place, value) in values {
        out.push(*place as u8);
        put_value(value, out)?;
    }
    Ok(())
}

fn take_found(body: Vec<u8>) -> io::Result<Found> {
    let mut rest = Rest(&body);
    let length = rest.length()?;
    let answer = rest.bytes(length)?.to_vec();
    let mut touched = Vec::new();
    while !rest.0.is_empty() {
        let id = i64::from_le_bytes(rest.array()?);
        let set = match rest.byte()? {
            u8::MAX => None,
            count => {
                let value = |_| Ok((usize::from(rest.byte()?), rest.value()?));
                Some((0..count).map(value).collect::<io::Result<Vec<_>>>()?)
            }
        };
        touched.push(RowChange { id, set });
    }
    Ok(Found { body: answer, touched })
}

/// Remaining bytes of a frame.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, length: usize) -> io::Result<&'a [u8]> {
        let (bytes, rest) =
            self.0.split_at_checked(length).ok_or_else(|| bad("a frame that is cut short"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.bytes(N)?.try_into().map_err(io::Error::other)
    }

    fn byte(&mut self) -> io::Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn length(&mut self) -> io::Result<usize> {
        usize::try_from(u32::from_le_bytes(self.array()?)).map_err(io::Error::other)
    }

    fn value(&mut self) -> io::Result<Value> {
        Ok(match self.byte()? {
            NULL => Value::Null,
            ZERO => Value::Integer(0),
            INTEGER => Value::Integer(i64::from_le_bytes(self.array()?)),
            REAL => Value::Real(f64::from_le_bytes(self.array()?)),
            TEXT => {
                let length = self.length()?;
                Value::Text(String::from_utf8_lossy(self.bytes(length)?).into_owned())
            }
            BLOB => {
                let length = self.length()?;
                Value::Blob(self.bytes(length)?.to_vec())
            }
            tag => return Err(bad(&format!("a value of the kind {tag}"))),
        })
    }
}

#[cfg(test)]
mod tests;
