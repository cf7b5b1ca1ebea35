//! Parsing of request bodies. Values stay as written: key order and long numbers survive.

use crate::codec::{self, Encoding, Raw, Text};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use windlass_core::ports::{Declared, PortError, RawJson, Side};
use windlass_core::{JobId, Timestamp};

#[cfg(test)]
mod tests;

/// Destinations of a connection, operations of a group, names in a list. All are handled in one transaction.
pub(crate) const LIST_MAX: usize = 10_000;
/// Members of one object, at any depth.
pub(crate) const MEMBERS_MAX: usize = 10_000;
/// Members of `log_context`, which every log entry repeats.
pub(crate) const CONTEXT_MEMBERS_MAX: usize = 100;
/// Objects with fewer members are searched linearly, which is faster than building an index.
const INDEX_FROM: usize = 16;

/// Reason why a request cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCall {
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    #[error("{0}")]
    Field(String),
    /// Unknown member, or missing member.
    #[error("{0}")]
    Member(String),
    #[error("{what} has more than {max} members; send several calls")]
    TooManyMembers { what: String, max: usize },
    #[error(transparent)]
    Port(#[from] PortError),
}

type Result<T> = std::result::Result<T, BadCall>;

fn field<T>(message: impl Into<String>) -> Result<T> {
    Err(BadCall::Field(message.into()))
}

/// Members that any call may carry.
pub(crate) const OF_ANY_CALL: &[&str] = &["log_context"];
/// Members that any call on a job may carry.
pub(crate) const OF_JOB_CALLS: &[&str] = &["run", "log_context"];
/// Members of a requested run.
pub(crate) const OF_RUN: &[&str] = &["force", "parent", "at", "wait"];
/// Members that name a port.
const OF_PORT: &[&str] = &["job", "inport", "outport"];

/// JSON object whose values are not parsed yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask<'a> {
    /// At most [`MEMBERS_MAX`].
    fields: Vec<(Text<'a>, Raw<'a>)>,
    /// Indexes into `fields` sorted by key, equal keys in their order; empty below [`INDEX_FROM`] members.
    by_key: Vec<u16>,
    /// The object had more members, which were dropped.
    has_too_many: bool,
}

/// Port named in a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortAt {
    /// `None`: the job in the path.
    pub job: Option<JobId>,
    pub side: Side,
    pub port: String,
}

/// Values for a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub to: PortAt,
    pub values: Vec<RawJson>,
}

/// Requested run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RunWish {
    pub parent: bool,
    pub force: bool,
    /// `None`: now.
    pub when: Option<When>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    At(Timestamp),
    AfterMs(i64),
}

impl When {
    pub(crate) fn from(self, now: Timestamp) -> Timestamp {
        match self {
            When::At(at) => at.max(now),
            When::AfterMs(ms) => now.plus_ms(ms.max(0)),
        }
    }
}

/// Keys and raw JSON values for log entries.
pub(crate) type Context = Vec<(String, String)>;

impl<'a> Ask<'a> {
    /// Parses the body; an empty body is an empty object.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Ask<'a>> {
        if bytes.trim_ascii().is_empty() {
            return Ok(Ask::default());
        }
        let ask: Ask<'a> = codec::read_map(Encoding::Json, bytes)
            .map_err(|malformed| BadCall::NotJson(malformed.to_string()))?;
        ask.complete("the body")
    }

    fn of(fields: Vec<(Text<'a>, Raw<'a>)>, has_too_many: bool) -> Ask<'a> {
        let mut by_key = Vec::new();
        if fields.len() >= INDEX_FROM {
            by_key = (0..=u16::MAX).take(fields.len()).collect();
            // Stable sort: equal keys keep their order.
            by_key.sort_by_key(|place| &*fields[usize::from(*place)].0);
        }
        Ask { fields, by_key, has_too_many }
    }

    /// Refuses an object that had too many members.
    fn complete(self, what: &str) -> Result<Ask<'a>> {
        if self.has_too_many {
            return Err(BadCall::TooManyMembers { what: what.to_owned(), max: MEMBERS_MAX });
        }
        Ok(self)
    }

    /// Refuses unknown members, so that a misspelled name is not taken for an omitted one.
    pub(crate) fn only(&self, own: &[&str], besides: &[&str]) -> Result<()> {
        let known = || own.iter().chain(besides);
        let is_unknown = |(key, _): &&(Text<'a>, Raw<'a>)| !known().any(|name| *name == &**key);
        let Some((unknown, _)) = self.fields.iter().find(is_unknown) else { return Ok(()) };
        let unknown: String = unknown.chars().take(100).collect();
        let known: Vec<&str> = known().copied().collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(BadCall::Member(format!("unknown member {unknown}; the members are: {known}")))
    }

    /// All members, in order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.fields.iter().map(|(key, value)| (&**key, text_of(*value)))
    }

    /// Value as written; of duplicate keys the last.
    pub(crate) fn raw(&self, key: &str) -> Option<&'a str> {
        let found = if self.by_key.is_empty() {
            self.fields.iter().rev().find(|(name, _)| **name == *key)
        } else {
            let name_at = |place: &u16| &*self.fields[usize::from(*place)].0;
            let end = self.by_key.partition_point(|place| name_at(place) <= key);
            let last = self.by_key[..end].last().filter(|place| name_at(place) == key);
            last.map(|place| &self.fields[usize::from(*place)])
        };
        found.map(|(_, value)| text_of(*value))
    }

    /// Value as written; null counts as absent.
    fn given(&self, key: &str) -> Option<&'a str> {
        self.raw(key).filter(|text| *text != "null")
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>> {
        match self.given(key).map(serde_json::from_str::<String>) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => field(format!("{key} must be a string")),
        }
    }

    pub(crate) fn flag(&self, key: &str) -> Result<bool> {
        match self.given(key) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => field(format!("{key} must be true or false")),
        }
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>> {
        match self.given(key).map(serde_json::from_str::<f64>) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => field(format!("{key} must be a number")),
        }
    }

    /// Parses a number of seconds into milliseconds.
    pub(crate) fn seconds(&self, key: &str) -> Result<Option<i64>> {
        // The cast saturates.
        Ok(self.number(key)?.map(|seconds| (seconds * 1_000.0) as i64))
    }

    pub(crate) fn job(&self, key: &str) -> Result<Option<JobId>> {
        match self.given(key).map(serde_json::from_str::<u64>) {
            None => Ok(None),
            Some(number) => match number.ok().and_then(JobId::new) {
                Some(id) => Ok(Some(id)),
                None => field(format!("{key} must be a job id")),
            },
        }
    }

    /// Token, sent as a string or as a number.
    pub(crate) fn token(&self) -> Result<Option<String>> {
        match self.given("token") {
            Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Some(number.to_owned())),
            _ => self.text("token"),
        }
    }

    pub(crate) fn value(&self, key: &str) -> Result<Option<RawJson>> {
        self.raw(key).map(RawJson::new).transpose().map_err(BadCall::from)
    }

    pub(crate) fn object(&self, key: &str) -> Result<Option<Ask<'a>>> {
        match self.given(key).map(object_of) {
            None => Ok(None),
            Some(Some(ask)) => Ok(Some(ask.complete(key)?)),
            Some(None) => field(format!("{key} must be an object")),
        }
    }

    pub(crate) fn list(&self, key: &str) -> Result<Option<Vec<RawJson>>> {
        let Some(text) = self.given(key) else { return Ok(None) };
        let Ok(Items(items)) = codec::read::<Items<'_>>(Encoding::Json, text.as_bytes()) else {
            return field(format!("{key} must be a list"));
        };
        let values = items.into_iter().map(|item| RawJson::new(text_of(item)));
        Ok(Some(values.collect::<std::result::Result<_, _>>()?))
    }

    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<String>>> {
        let texts = self.given(key).map(serde_json::from_str::<Vec<String>>).transpose();
        match texts {
            Ok(Some(texts)) if texts.len() > LIST_MAX => {
                field(format!("{key} has more than {LIST_MAX} entries"))
            }
            Ok(texts) => Ok(texts),
            Err(_) => field(format!("{key} must be a list of strings")),
        }
    }

    /// Parses a list of objects; a single object is a list of one.
    pub(crate) fn objects(&self, key: &str) -> Result<Vec<Ask<'a>>> {
        let Some(text) = self.given(key) else { return Ok(Vec::new()) };
        if text.starts_with('{') {
            return Ok(self.object(key)?.into_iter().collect());
        }
        match codec::read::<Vec<Ask<'a>>>(Encoding::Json, text.as_bytes()) {
            Ok(asks) if asks.len() > LIST_MAX => field(format!("{key} has more than {LIST_MAX} entries")),
            Ok(asks) => asks.into_iter().map(|ask| ask.complete(key)).collect(),
            Err(_) => field(format!("{key} must be a list of objects")),
        }
    }

    /// Declared ports of a job: names with their options. The only option is `default`.
    pub(crate) fn declared(&self, key: &str) -> Result<Option<Declared>> {
        self.ports(key, |name, options| match options.only(&["default"], &[]) {
            Err(BadCall::Member(message)) => Err(BadCall::Member(format!("port {name}: {message}"))),
            checked => checked,
        })
    }

    /// Declared ports of a class, whose configuration may contain members of its own.
    pub(crate) fn configured(&self, key: &str) -> Result<Option<Declared>> {
        self.ports(key, |_, _| Ok(()))
    }

    fn ports(&self, key: &str, check: impl Fn(&str, &Ask<'a>) -> Result<()>) -> Result<Option<Declared>> {
        let Some(ports) = self.object(key)? else { return Ok(None) };
        let mut declared = BTreeMap::new();
        for (name, written) in ports.fields() {
            let Some(options) = object_of(written) else {
                return field(format!("the options of port {name} must be an object"));
            };
            let options = options.complete("the options of a port")?;
            check(name, &options)?;
            declared.insert(name.to_owned(), options.value("default")?);
        }
        Ok(Some(declared))
    }

    pub(crate) fn run_wish(&self) -> Result<RunWish> {
        Ok(RunWish { parent: self.flag("parent")?, force: self.flag("force")?, when: self.when()? })
    }

    /// Requested time; `at` takes precedence over `wait`.
    pub(crate) fn when(&self) -> Result<Option<When>> {
        match self.moment("at")? {
            Some(at) => Ok(Some(When::At(at))),
            None => Ok(self.seconds("wait")?.map(When::AfterMs)),
        }
    }

    /// Parses seconds since 1970, or a text such as 2026-11-15T06:49:11Z.
    fn moment(&self, key: &str) -> Result<Option<Timestamp>> {
        match self.given(key) {
            Some(text) if text.starts_with('"') => {
                let text = self.text(key)?.unwrap_or_default();
                match text.parse::<jiff::Timestamp>() {
                    Ok(moment) => Ok(Some(Timestamp::from_calendar_ms(moment.as_millisecond()))),
                    Err(_) => field(format!(
                        "{key} must be seconds since 1970, or a time such as 2026-11-15T06:49:11Z"
                    )),
                }
            }
            _ => Ok(self.seconds(key)?.map(Timestamp::from_calendar_ms)),
        }
    }

    /// Parses a port without other members: `{"job": 1, "inport": "a"}`.
    pub(crate) fn port_alone(&self) -> Result<PortAt> {
        self.only(OF_PORT, &[])?;
        self.port()
    }

    /// Parses a port, among other members of these names.
    pub(crate) fn port_with(&self, others: &[&str]) -> Result<PortAt> {
        self.only(others, OF_PORT)?;
        self.port()
    }

    fn port(&self) -> Result<PortAt> {
        let (side, port) = match (self.text("inport")?, self.text("outport")?) {
            (Some(port), None) => (Side::In, port),
            (None, Some(port)) => (Side::Out, port),
            _ => return field("a port operation requires inport or outport"),
        };
        Ok(PortAt { job: self.job("job")?, side, port })
    }

    /// Jobs of the ports in this list. Errors are ignored here; parsing the list reports them.
    pub(crate) fn jobs_named_in(&self, key: &str) -> Vec<JobId> {
        let ports = self.objects(key).unwrap_or_default();
        ports.iter().filter_map(|port| port.job("job").ok().flatten()).collect()
    }

    /// Values to write: `data` is one value, `list` several; `None`: neither is given.
    pub(crate) fn values(&self) -> Result<Option<Vec<RawJson>>> {
        match (self.value("data")?, self.list("list")?) {
            (Some(_), Some(_)) => {
                Err(BadCall::Member("data and list cannot be combined; send one of them".to_owned()))
            }
            (Some(value), None) => Ok(Some(vec![value])),
            (None, list) => Ok(list),
        }
    }

    pub(crate) fn writes(&self, key: &str) -> Result<Vec<Write>> {
        let write = |ask: &Ask<'a>| {
            let to = ask.port_with(&["data", "list"])?;
            let nothing = || BadCall::Member(format!("a write requires data or list: {}", to.port));
            Ok(Write { values: ask.values()?.ok_or_else(nothing)?, to })
        };
        self.objects(key)?.iter().map(write).collect()
    }

    /// Log entry in `{"entry":{…}}`; `None`: the members of the body are the entry.
    pub(crate) fn entry(&self) -> Result<Option<Ask<'a>>> {
        let is_alone = self.only(&["entry"], OF_ANY_CALL).is_ok();
        if is_alone { self.object("entry") } else { Ok(None) }
    }

    pub(crate) fn context(&self) -> Result<Context> {
        let Some(context) = self.object("log_context")? else { return Ok(Vec::new()) };
        if context.fields.len() > CONTEXT_MEMBERS_MAX {
            return Err(BadCall::TooManyMembers { what: "log_context".to_owned(), max: CONTEXT_MEMBERS_MAX });
        }
        Ok(context.fields().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }
}

/// Parses an id, which consists of digits only.
pub(crate) fn job_id(text: &str) -> Option<JobId> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    JobId::new(text.parse().ok()?)
}

pub(crate) fn side(text: &str) -> Option<Side> {
    match text {
        "inports" => Some(Side::In),
        "outports" => Some(Side::Out),
        _ => None,
    }
}

/// `None`: not an object.
pub(crate) fn object_of(text: &str) -> Option<Ask<'_>> {
    codec::read_map(Encoding::Json, text.as_bytes()).ok()
}

fn text_of(raw: Raw<'_>) -> &str {
    match raw {
        Raw::Json(text) => text,
        // Bodies are always JSON.
        Raw::Msgpack(_) => "null",
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Ask<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Ask<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Ask<'de>, A::Error> {
                let mut fields = Vec::new();
                while fields.len() < MEMBERS_MAX
                    && let Some(entry) = map.next_entry()?
                {
                    fields.push(entry);
                }
                let mut has_too_many = false;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    has_too_many = true;
                }
                Ok(Ask::of(fields, has_too_many))
            }
        }
        from.deserialize_map(Fields)
    }
}

struct Items<'a>(Vec<Raw<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Items<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Items<'de>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Items(items))
            }
        }
        from.deserialize_seq(List)
    }
}
