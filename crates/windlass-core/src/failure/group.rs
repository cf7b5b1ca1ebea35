//! Groups of failures: by class, or for a failure without one by the normal form of its message.

use super::cut_end;
use crate::job::AttemptError;
use std::borrow::Cow;

/// Bytes of a normal form: enough to tell messages apart, few enough for a line.
const NORMAL_FORM_BYTES_MAX: usize = 200;
/// Hexadecimal digits from which on a word with a digit in it is an id: shorter ones may be words such as `face1`.
const HEX_ID_MIN: usize = 6;

/// Title of the group of failures that tell nothing.
const UNTOLD: &str = "no message";

/// Title of the group that a failure belongs to; never empty.
pub fn group_title(error: &AttemptError) -> Cow<'_, str> {
    match error.class.as_deref().filter(|class| !class.is_empty()) {
        Some(class) => Cow::Borrowed(class),
        None => Some(normal_form(&error.message))
            .filter(|form| !form.is_empty())
            .map_or(Cow::Borrowed(UNTOLD), Cow::Owned),
    }
}

/// First line of a message without what differs between equal failures: numbers, hexadecimal ids and quoted
/// texts become `*`.
pub fn normal_form(message: &str) -> String {
    let line = message.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut form = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(letter) = rest.chars().next() {
        let before = form.chars().next_back();
        let taken = match letter {
            '"' | '\'' | '`' => quoted(letter, before, rest, &mut form),
            letter if letter.is_alphanumeric() => word(rest, &mut form),
            _ => 0,
        };
        match taken {
            0 if letter.is_whitespace() && before == Some(' ') => rest = &rest[letter.len_utf8()..],
            0 => {
                form.push(if letter.is_whitespace() { ' ' } else { letter });
                rest = &rest[letter.len_utf8()..];
            }
            taken => rest = &rest[taken..],
        }
    }
    cut_end(&joined(&form), NORMAL_FORM_BYTES_MAX).to_owned()
}

/// Writes a quoted text as a star between quotes; the bytes read, 0 if `quote` begins none. An apostrophe inside a
/// word is no quote.
fn quoted(quote: char, before: Option<char>, rest: &str, form: &mut String) -> usize {
    if before.is_some_and(char::is_alphanumeric) {
        return 0;
    }
    let inner = &rest[1..];
    let ends =
        |(place, _): &(usize, &str)| !inner[place + 1..].chars().next().is_some_and(char::is_alphanumeric);
    match inner.match_indices(quote).find(ends) {
        Some((length, _)) => {
            form.extend([quote, '*', quote]);
            length + 2
        }
        None => 0,
    }
}

/// Writes a word with stars in place of ids and numbers; the bytes read.
fn word(rest: &str, form: &mut String) -> usize {
    if begins_with_uuid(rest.as_bytes()) {
        form.push('*');
        return UUID_BYTES;
    }
    let length = rest.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(rest.len());
    let word = &rest[..length];
    let hex = word.strip_prefix("0x").unwrap_or(word);
    let is_hex = !hex.is_empty() && hex.chars().all(|letter| letter.is_ascii_hexdigit());
    let is_id = hex.len() >= HEX_ID_MIN && hex.chars().any(|letter| letter.is_ascii_digit());
    if is_hex && (is_id || hex.len() < word.len()) {
        form.push('*');
        return length;
    }
    for letter in word.chars() {
        match letter.is_numeric() {
            true if form.ends_with('*') => {}
            true => form.push('*'),
            false => form.push(letter),
        }
    }
    length
}

const UUID_BYTES: usize = 36;

/// True for 8-4-4-4-12 hexadecimal digits that no further letter or digit follows.
fn begins_with_uuid(text: &[u8]) -> bool {
    let is_part = |(place, byte): (usize, &u8)| match place {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.get(..UUID_BYTES).is_some_and(|head| head.iter().enumerate().all(is_part))
        && !text.get(UUID_BYTES).is_some_and(u8::is_ascii_alphanumeric)
}

/// Joins stars that only a separator stands between: the parts of a date or an address.
fn joined(form: &str) -> String {
    let letters: Vec<char> = form.chars().collect();
    let mut joined = String::with_capacity(form.len());
    let mut place = 0;
    while place < letters.len() {
        joined.push(letters[place]);
        if letters[place] == '*' {
            while matches!(letters.get(place + 1), Some('.' | ':' | ',' | '-' | '/'))
                && letters.get(place + 2) == Some(&'*')
            {
                place += 2;
            }
        }
        place += 1;
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_equal_failures_have_one_normal_form() {
        for (message, form) in [
            ("mailbox full", "mailbox full"),
            ("user 42 not found", "user * not found"),
            ("timeout after 1.5 s", "timeout after * s"),
            ("timeout after 30000ms", "timeout after *ms"),
            ("connect 10.0.0.1:8080: refused", "connect *: refused"),
            ("no such file: '/tmp/a b.txt'", "no such file: '*'"),
            (r#"unknown key "user_id" in "x""#, r#"unknown key "*" in "*""#),
            ("can't open `a`, won't retry", "can't open `*`, won't retry"),
            ("an open 'quote", "an open 'quote"),
            ("job 3f2504e0-4f89-11d3-9a0c-0305e82c3301 lost", "job * lost"),
            ("segfault at 0x7ffd and 0xZZ", "segfault at * and *xZZ"),
            ("commit 9fceb02d0ae5 is bad", "commit * is bad"),
            ("a facade decade", "a facade decade"),
            ("utf8 error, sha256 differs", "utf* error, sha* differs"),
            ("at 2026-11-16 14:05:59.123", "at * *"),
            ("\n\n  first  line \t here\nTraceback 1", "first line here"),
            ("", ""),
            ("größe 7 überschritten", "größe * überschritten"),
            ("['a', 'b']", "['*', '*']"),
        ] {
            assert_eq!(normal_form(message), form, "{message}");
        }
        let long = normal_form(&"word ".repeat(1_000));
        assert!(long.len() <= 200 && long.starts_with("word word"));
    }

    #[test]
    fn a_normal_form_stays_as_it_is() {
        for message in ["user 42", "a '*' b", "10.0.0.1 and 5-6-7", "x 12ab34cd", "* * *"] {
            let once = normal_form(message);
            assert_eq!(normal_form(&once), once, "{message}");
        }
    }

    #[test]
    fn a_class_is_the_title_of_its_group() {
        let error = |class: Option<&str>| AttemptError {
            message: "user 7".to_owned(),
            class: class.map(str::to_owned),
            ..AttemptError::default()
        };
        assert_eq!(group_title(&error(Some("E 5"))), "E 5");
        assert_eq!(group_title(&error(None)), "user *");
        assert_eq!(group_title(&AttemptError::default()), "no message");
    }
}
