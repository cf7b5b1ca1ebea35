//! Parameters: the headers of a request, or one object of `CreateJobs`. Numbers are parsed as in C, because
//! clients rely on it: `12x` is 12 and `high` is 0.

use super::errors::{self, StatusLine};
use super::json;
use super::wire::Request;
use windlass_core::{JobId, Name, NameMatch};

/// Valid priorities.
pub const PRIORITIES: [i64; 6] = [0, 250, 500, 750, 850, 1_000];
/// Longest list of names in a GetJob.
const NAMES_BYTES_MAX: usize = 12_750;

/// Parameters by name; names are case-insensitive.
#[derive(Clone, Debug)]
pub enum Params<'a> {
    Headers(&'a Request),
    Object(Vec<(String, String)>),
}

impl<'a> Params<'a> {
    /// `object` must be a minified JSON object. Members with the value `null` are dropped.
    pub fn of_object(object: &str) -> Params<'static> {
        let texts = json::members(object)
            .into_iter()
            .filter(|member| member.value != "null")
            .map(|member| (member.name().to_ascii_lowercase(), json::plain(member.value).into_owned()));
        Params::Object(texts.collect())
    }

    /// `name` must be in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        match self {
            Params::Headers(request) => request.get(name),
            Params::Object(texts) => {
                texts.iter().rev().find(|(key, _)| key == name).map(|(_, text)| text.as_str())
            }
        }
    }

    /// Returns the parameter if it is present and not empty.
    pub fn given(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|text| !text.is_empty())
    }

    pub fn name(&self) -> Result<Name, StatusLine> {
        let name = self.given("name").ok_or(errors::MISSING_NAME)?;
        Name::new(name).map_err(|_| errors::MALFORMED_NAME)
    }

    /// Parses the priority in the parameter `name`; it must be one of [`PRIORITIES`].
    pub fn priority(&self, name: &str) -> Result<Option<i64>, StatusLine> {
        let Some(text) = self.given(name) else { return Ok(None) };
        let priority = leading_number(text);
        if PRIORITIES.contains(&priority) { Ok(Some(priority)) } else { Err(errors::INVALID_PRIORITY) }
    }

    /// True for `true` and for a number other than zero.
    pub fn is_true(&self, name: &str) -> bool {
        self.given(name).is_some_and(|text| text.eq_ignore_ascii_case("true") || leading_number(text) != 0)
    }
}

/// Parses the id, in canonical form only: `007`, `+1` and `1.5` are refused. Ids start at 1.
pub fn job_id(request: &Request) -> Result<JobId, StatusLine> {
    let text = request.given("jobid").ok_or(errors::MISSING_JOB_ID)?;
    let number: i64 = text.parse().map_err(|_| errors::MALFORMED_JOB_ID)?;
    if number.to_string() != text {
        return Err(errors::MALFORMED_JOB_ID);
    }
    u64::try_from(number).ok().and_then(JobId::new).ok_or(errors::NO_SUCH_JOB)
}

/// Names that a worker claims: a list of exact names, or one GLOB pattern.
pub fn wanted_names(request: &Request) -> Result<NameMatch, StatusLine> {
    let text = request.given("name").ok_or(errors::MISSING_NAME)?;
    if text.len() > NAMES_BYTES_MAX {
        return Err(errors::MALFORMED_NAME);
    }
    let parts: Vec<&str> =
        text.split(',').map(|part| part.trim_matches(' ')).filter(|part| !part.is_empty()).collect();
    if parts.len() > 1 {
        return Ok(NameMatch::OneOf(parts.into_iter().map(Into::into).collect()));
    }
    Ok(NameMatch::glob(text))
}

/// Parses like C's `atoll`: blanks, a sign, digits; the rest is ignored. Saturates on overflow.
pub fn leading_number(text: &str) -> i64 {
    let text = text.trim_start_matches([' ', '\t', '\n', '\r', '\u{b}', '\u{c}']);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.bytes().take_while(u8::is_ascii_digit);
    let number =
        digits.fold(0_i64, |number, digit| number.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    if negative { -number } else { number }
}

/// Checks that data is a JSON object. `{}` is accepted, `{ }` is not, because clients fail to parse it.
pub fn checked_data(data: &str) -> Result<&str, StatusLine> {
    let is_blank = data.len() > 2 && json::minified(data) == "{}";
    if json::is_object(data) && !is_blank { Ok(data) } else { Err(errors::NOT_AN_OBJECT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_far_as_they_go() {
        for (text, number) in
            [("12x", 12), ("high", 0), ("", 0), ("  -7 ", -7), ("+3", 3), ("99999999999999999999", i64::MAX)]
        {
            assert_eq!(leading_number(text), number, "{text:?}");
        }
    }

    #[test]
    fn ids_are_canonical() {
        let read = |text: &str| job_id(&Request::new("QueryJob", &[("jobID", text)]));
        assert_eq!(read("12").unwrap().get(), 12);
        assert_eq!(read(""), Err(errors::MISSING_JOB_ID));
        for text in ["abc", "12x", "007", "+1", "1.5", "9223372036854775808", "-0", "00"] {
            assert_eq!(read(text), Err(errors::MALFORMED_JOB_ID), "{text}");
        }
        for text in ["0", "-1"] {
            assert_eq!(read(text), Err(errors::NO_SUCH_JOB), "{text}");
        }
        assert_eq!(job_id(&Request::new("QueryJob", &[])), Err(errors::MISSING_JOB_ID));
    }

    #[test]
    fn names_are_a_list_or_a_pattern() {
        let read = |text: &str| wanted_names(&Request::new("GetJob", &[("name", text)]));
        assert_eq!(read("a,b*, ,c"), Ok(NameMatch::OneOf(vec!["a".into(), "b*".into(), "c".into()])));
        assert_eq!(read("mail*"), Ok(NameMatch::glob("mail*")));
        assert_eq!(read("a,"), Ok(NameMatch::Exact("a,".into())));
        assert_eq!(read(&"x".repeat(12_751)), Err(errors::MALFORMED_NAME));
        assert_eq!(read(""), Err(errors::MISSING_NAME));
    }
}
