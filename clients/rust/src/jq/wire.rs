//! Encoding of messages, without sockets or clock.

use super::error::Error;
use super::handler::{Answer, Failure, Job};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) const MSGPACK: &str = "application/msgpack";
/// Header with the id of the calling or the called worker.
pub(super) const WORKER_ID: &str = "worker-id";
/// Most bytes of a failure's message that the server accepts; it refuses a report with a longer message.
const MESSAGE_BYTES_MAX: usize = 16 * 1_024;
/// Timeout of a job without one: about thirty years.
const TIMEOUT_S_MAX: u64 = 1_000_000_000;

#[derive(Serialize)]
pub(super) struct NewWorker<'a> {
    pub name: &'a str,
    pub max_jobs: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

#[derive(Deserialize)]
pub(super) struct Registered {
    pub worker_id: String,
}

#[derive(Deserialize)]
pub(super) struct Enqueued {
    pub job_id: String,
}

/// Decodes a reply of the server.
pub(super) fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Error> {
    rmp_serde::from_slice(body).map_err(|e| Error::Answer(e.to_string()))
}

/// Error of a refused call.
pub(super) fn refusal(status: u16, body: &[u8]) -> Error {
    #[derive(Deserialize)]
    struct Said {
        error: String,
        message: String,
    }
    let said: Option<Said> = rmp_serde::from_slice(body).ok();
    let (code, message) = match said {
        Some(said) => (said.error, said.message),
        None => ("unknown".to_owned(), "no reason given".to_owned()),
    };
    Error::Refused { status, code, message }
}

/// Decodes a job sent by the server.
pub(super) fn job(body: &Bytes) -> Result<Job<Bytes>, String> {
    let fields = map(body).ok_or("the body is not a MessagePack map")?;
    let field = |wanted: &str| fields.iter().find(|(key, _)| *key == wanted).map(|(_, value)| *value);
    let text = |key: &str| field(key).and_then(|value| rmp_serde::from_slice::<String>(value).ok());
    let number =
        |key: &str| field(key).and_then(|value| rmp_serde::from_slice::<Option<u64>>(value).ok()).flatten();
    let timeout_s = number("timeout").unwrap_or(TIMEOUT_S_MAX).min(TIMEOUT_S_MAX);
    Ok(Job {
        id: text("job_id").or_else(|| text("id")).ok_or("`job_id` is missing")?,
        name: text("name").ok_or("`name` is missing")?,
        argument: body.slice_ref(field("argument").ok_or("`argument` is missing")?),
        timeout: Duration::from_secs(timeout_s),
        attempt: number("attempt").and_then(|attempt| attempt.try_into().ok()).unwrap_or(1),
    })
}

/// Encodes a report.
pub(super) fn done(id: &str, attempt: u32, finished_at: SystemTime, answer: &Answer) -> Bytes {
    let mut out = Map::default();
    out.field("job_id", id);
    out.field("attempt", &attempt);
    out.field("finished_at", rfc3339(finished_at).as_str());
    match answer {
        Ok(result) => {
            out.field("type", "success");
            out.raw("result", result);
        }
        Err(failure) => {
            out.field("type", "failure");
            out.field("reason", if failure.is_timeout { "timeout" } else { "other" });
            out.field("should_retry", &failure.should_retry);
            out.field("message", message(failure));
            if let Some(error) = &failure.error {
                out.raw("error", error);
            }
        }
    }
    out.finish()
}

/// Message cut to the allowed length, at a character boundary.
fn message(failure: &Failure) -> &str {
    let text = failure.message.as_str();
    &text[..text.floor_char_boundary(MESSAGE_BYTES_MAX)]
}

/// Builder of a map with up to fifteen fields, whose values may be encoded already.
#[derive(Default)]
struct Map {
    fields: u8,
    bytes: Vec<u8>,
}

impl Map {
    fn field<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) {
        // Texts, numbers and booleans can always be encoded.
        let value = rmp_serde::to_vec(value).unwrap_or_else(|_| vec![0xc0]);
        self.raw(key, &value);
    }

    fn raw(&mut self, key: &str, value: &[u8]) {
        debug_assert!(
            self.fields < 15 && key.len() < 32,
            "one byte says how many there are, and how long a key is"
        );
        self.fields += 1;
        self.bytes.push(0xa0 | key.len() as u8);
        self.bytes.extend_from_slice(key.as_bytes());
        self.bytes.extend_from_slice(value);
    }

    fn finish(self) -> Bytes {
        let mut all = Vec::with_capacity(self.bytes.len() + 1);
        all.push(0x80 | self.fields);
        all.extend_from_slice(&self.bytes);
        all.into()
    }
}

/// Fields of a map, with encoded values. `None`: the bytes are not exactly one map.
fn map(body: &[u8]) -> Option<Vec<(&str, &[u8])>> {
    let (fields, mut rest) = match *body.first()? {
        tag @ 0x80..=0x8f => (usize::from(tag & 0x0f), body.get(1..)?),
        0xde => (number(body.get(1..3)?), body.get(3..)?),
        0xdf => (number(body.get(1..5)?), body.get(5..)?),
        _ => return None,
    };
    let mut found = Vec::new();
    for _ in 0..fields {
        let after_key = skip(rest)?;
        let key = rmp_serde::from_slice::<&str>(&rest[..rest.len() - after_key.len()]).ok()?;
        let after_value = skip(after_key)?;
        found.push((key, &after_key[..after_key.len() - after_value.len()]));
        rest = after_value;
    }
    rest.is_empty().then_some(found)
}

/// True if the bytes are exactly one MessagePack value.
pub(super) fn is_one_value(bytes: &[u8]) -> bool {
    skip(bytes).is_some_and(<[u8]>::is_empty)
}

/// Bytes after the first value. Not recursive, so the depth of nesting is no concern.
fn skip(mut bytes: &[u8]) -> Option<&[u8]> {
    let mut values: usize = 1;
    while values > 0 {
        // Every value has at least one byte: if more values are announced, the bytes are truncated.
        if values > bytes.len() {
            return None;
        }
        values -= 1;
        let (tag, rest) = bytes.split_first()?;
        // Width of the length field, length of the content, and number of nested values.
        let length = |width: usize| rest.get(..width).map(number);
        let (head, body, inside) = match *tag {
            0x00..=0x7f | 0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => (0, 0, 0),
            0x80..=0x8f => (0, 0, 2 * usize::from(tag & 0x0f)),
            0x90..=0x9f => (0, 0, usize::from(tag & 0x0f)),
            0xa0..=0xbf => (0, usize::from(tag & 0x1f), 0),
            0xc4 | 0xd9 => (1, length(1)?, 0),
            0xc5 | 0xda => (2, length(2)?, 0),
            0xc6 | 0xdb => (4, length(4)?, 0),
            0xc7 => (2, length(1)?, 0),
            0xc8 => (3, length(2)?, 0),
            0xc9 => (5, length(4)?, 0),
            0xcc | 0xd0 => (1, 0, 0),
            0xcd | 0xd1 => (2, 0, 0),
            0xca | 0xce | 0xd2 => (4, 0, 0),
            0xcb | 0xcf | 0xd3 => (8, 0, 0),
            0xd4..=0xd8 => (1, 1 << (tag - 0xd4), 0),
            0xdc => (2, 0, length(2)?),
            0xdd => (4, 0, length(4)?),
            0xde => (2, 0, length(2)?.checked_mul(2)?),
            0xdf => (4, 0, length(4)?.checked_mul(2)?),
            0xc1 => return None,
        };
        bytes = rest.get(head..)?.get(body..)?;
        values = values.checked_add(inside)?;
    }
    Some(bytes)
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| (number << 8) | usize::from(*byte))
}

/// UTC, to the millisecond.
fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Year, month and day of a number of days since 1970. Years are counted from March, so that the leap day
/// comes last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(argument: &[u8]) -> Bytes {
        let mut out = Map::default();
        out.field("id", "17");
        out.field("job_id", "17");
        out.field("name", "add");
        out.raw("argument", argument);
        out.field("timeout", &30);
        out.field("attempt", &2);
        out.finish()
    }

    #[test]
    fn a_job_keeps_the_bytes_of_its_argument() {
        // bin, ext of a fixed and of a free size, a float and a nested map
        let argument = b"\x84\xa1a\xc4\x02\x00\xff\xa1b\xd4\x05\x09\xa1c\xc7\x01\x07\x00\xa1d\x81\xa1x\xcb\x3f\xf8\0\0\0\0\0\0";
        let job = job(&sent(argument)).unwrap();
        assert_eq!((job.id.as_str(), job.name.as_str(), job.attempt), ("17", "add", 2));
        assert_eq!((&job.argument[..], job.timeout), (&argument[..], Duration::from_secs(30)));
    }

    #[test]
    fn what_is_no_job_is_refused() {
        for bad in
            [&b""[..], b"\x80", b"\xc1", b"\x90", b"\x81\xa4name", b"\xdf\xff\xff\xff\xff", b"\x81\x01\x02"]
        {
            assert!(job(&Bytes::copy_from_slice(bad)).is_err(), "{bad:x?}");
        }
        let mut twice = sent(b"\x80").to_vec();
        twice.push(0xc0);
        assert!(job(&twice.into()).is_err(), "something follows");
    }

    #[test]
    fn a_value_is_as_long_as_it_says() {
        let deep = [vec![0x91; 1_000_000], vec![0xc0]].concat();
        assert!(is_one_value(&deep), "depth costs nothing");
        for good in [
            &b"\x00"[..],
            b"\xa1a",
            b"\xdc\x00\x01\xc0",
            b"\xde\x00\x01\xc0\xc0",
            b"\xd8\x010123456789abcdef",
        ] {
            assert!(is_one_value(good), "{good:x?}");
            assert!(!is_one_value(&good[..good.len() - 1]), "{good:x?} cut short");
            assert!(!is_one_value(&[good, b"\xc0"].concat()), "{good:x?} and more");
        }
        assert!(!is_one_value(b"\xdd\xff\xff\xff\xff"), "four thousand million values in no bytes");
    }

    #[test]
    fn an_end_is_what_the_server_reads() {
        #[derive(Deserialize)]
        struct End {
            job_id: String,
            attempt: u32,
            r#type: String,
            finished_at: String,
            result: Option<u8>,
            should_retry: Option<bool>,
            reason: Option<String>,
            message: Option<String>,
            error: Option<u8>,
        }
        let at = UNIX_EPOCH + Duration::from_millis(1_711_302_558_250);
        let end: End = rmp_serde::from_slice(&done("17", 3, at, &Ok(Bytes::from_static(b"\x07")))).unwrap();
        assert_eq!(
            (end.job_id.as_str(), end.attempt, end.r#type.as_str(), end.result),
            ("17", 3, "success", Some(7))
        );
        assert_eq!(end.finished_at, "2024-03-24T17:49:18.250Z");
        let failure = Failure::give_up("é".repeat(10_000)).with_error(&9);
        let end: End = rmp_serde::from_slice(&done("17", 3, at, &Err(failure))).unwrap();
        assert_eq!((end.r#type.as_str(), end.reason.as_deref()), ("failure", Some("other")));
        assert_eq!((end.should_retry, end.error), (Some(false), Some(9)));
        assert_eq!(end.message.unwrap().len(), MESSAGE_BYTES_MAX);
    }

    #[test]
    fn a_moment_is_a_date_and_a_time() {
        let shown = |s: u64| rfc3339(UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(shown(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(shown(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(shown(1_078_012_800), "2004-02-29T00:00:00.000Z");
        assert_eq!(shown(4_107_542_400), "2100-03-01T00:00:00.000Z");
        assert_eq!(shown(1_735_689_599), "2024-12-31T23:59:59.000Z");
    }

    #[test]
    fn a_refusal_is_told_as_the_server_said_it() {
        let body = b"\x82\xa5error\xa9not_found\xa7message\xa7nothing";
        assert_eq!(refusal(404, body).to_string(), "the server refused the request (404 not_found): nothing");
        assert!(refusal(404, body).is_not_found());
        assert!(refusal(503, b"").is_retryable());
        assert!(!refusal(400, b"<html>").is_retryable());
    }
}
