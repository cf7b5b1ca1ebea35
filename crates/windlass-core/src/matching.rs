//! Name patterns of claims, limits and searches.
//!
//! GLOB is exactly SQLite's GLOB, oddities included: a dialect promises that to its users, and stores may
//! pass the same pattern to SQL. `tests/it/glob_vs_sqlite.rs` compares the two on random patterns.

use serde::{Deserialize, Serialize};
use std::fmt;

#[cfg(test)]
mod tests;

/// Pattern, compiled once: `*` any run, `?` any one character, `[a-c]` one of, `[^x]` none of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Box<str>", into = "Box<str>")]
pub struct Glob {
    // First field, so that comparing two patterns compares their texts; the other fields derive from it.
    pattern: Box<str>,
    /// Bytes at the start of `pattern` that a matching text must start with.
    prefix_bytes: usize,
    /// Tokens after that prefix.
    tokens: Box<[Token]>,
}

impl Glob {
    /// Compiles any text. A pattern with an unterminated set (`a[b`) matches nothing, as in SQLite.
    pub fn new(pattern: &str) -> Glob {
        let prefix_bytes = literal_prefix_bytes(pattern);
        let tokens = tokens_of(until_nul(&pattern[prefix_bytes..]));
        Glob { pattern: pattern.into(), prefix_bytes, tokens: tokens.into() }
    }

    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Longest prefix of the pattern without special characters. Every match starts with it, so a scan of an
    /// ordered index can be limited to that prefix.
    pub fn literal_prefix(&self) -> &str {
        &self.pattern[..self.prefix_bytes]
    }

    /// True for a pattern of stars only, which matches every text; the caller may skip matching.
    pub fn is_everything(&self) -> bool {
        self.prefix_bytes == 0
            && !self.tokens.is_empty()
            && self.tokens.iter().all(|token| *token == Token::AnyRun)
    }

    pub fn matches(&self, text: &str) -> bool {
        match until_nul(text).strip_prefix(self.literal_prefix()) {
            Some(rest) => tokens_match(&self.tokens, rest),
            None => false,
        }
    }
}

impl From<Box<str>> for Glob {
    fn from(pattern: Box<str>) -> Glob {
        Glob::new(&pattern)
    }
}

impl From<Glob> for Box<str> {
    fn from(glob: Glob) -> Box<str> {
        glob.pattern
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pattern)
    }
}

/// Set of names in a claim or a filter, in its cheapest form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameMatch {
    Any,
    Exact(Box<str>),
    OneOf(Vec<Box<str>>),
    /// All names but these.
    NoneOf(Vec<Box<str>>),
    Glob(Glob),
}

impl NameMatch {
    /// Reads `text` as a GLOB pattern: stars only become `Any`, a text without special characters becomes
    /// `Exact`.
    pub fn glob(text: &str) -> NameMatch {
        let glob = Glob::new(text);
        if glob.is_everything() {
            NameMatch::Any
        } else if glob.literal_prefix().len() == text.len() {
            NameMatch::Exact(text.into())
        } else {
            NameMatch::Glob(glob)
        }
    }

    pub fn matches(&self, name: &str) -> bool {
        match self {
            NameMatch::Any => true,
            NameMatch::Exact(wanted) => **wanted == *name,
            NameMatch::OneOf(wanted) => wanted.iter().any(|one| **one == *name),
            NameMatch::NoneOf(unwanted) => !unwanted.iter().any(|one| **one == *name),
            NameMatch::Glob(glob) => glob.matches(name),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Token {
    Char(char),
    AnyOne,
    AnyRun,
    Set(Set),
    /// Set without its closing bracket, which no character satisfies.
    Never,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Set {
    inverted: bool,
    /// Inclusive. A reversed range is kept and matches nothing; `[z-a]` matches `z`, by its first character.
    ranges: Vec<(char, char)>,
}

impl Token {
    /// True if this token matches the character `c`. `AnyRun` is handled by the caller.
    fn accepts(&self, c: char) -> bool {
        match self {
            Token::Char(wanted) => c == *wanted,
            Token::AnyOne => true,
            Token::Set(set) => set.accepts(c),
            Token::AnyRun | Token::Never => false,
        }
    }
}

impl Set {
    fn accepts(&self, c: char) -> bool {
        self.ranges.iter().any(|&(low, high)| low <= c && c <= high) != self.inverted
    }
}

/// On a mismatch only the latest run grows: any text that an earlier run could reach by growing, the latest
/// run can reach too. The cost is at most pattern length times text length, even for `*a*a*a*a*b`.
fn tokens_match(tokens: &[Token], text: &str) -> bool {
    let (mut token, mut at) = (0, 0);
    let mut latest_run: Option<(usize, usize)> = None;
    loop {
        match (tokens.get(token), text[at..].chars().next()) {
            (Some(Token::AnyRun), _) if token + 1 == tokens.len() => return true,
            (Some(Token::AnyRun), _) => {
                token += 1;
                latest_run = Some((token, at));
                continue;
            }
            (Some(one), Some(c)) if one.accepts(c) => {
                token += 1;
                at += c.len_utf8();
                continue;
            }
            (None, None) => return true,
            // The text is used up; a longer run would leave even less for this token.
            (Some(_), None) => return false,
            (Some(_) | None, Some(_)) => {}
        }
        let Some((after_run, run_end)) = latest_run else { return false };
        // The mismatch was at or after the run's end, so there is a character left to give to the run.
        let longer = run_end + text[run_end..].chars().next().map_or(1, char::len_utf8);
        latest_run = Some((after_run, longer));
        (token, at) = (after_run, longer);
    }
}

fn tokens_of(pattern: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = pattern;
    while let Some(c) = take_char(&mut rest) {
        let token = match c {
            '*' if tokens.last() == Some(&Token::AnyRun) => continue,
            '*' => Token::AnyRun,
            '?' => Token::AnyOne,
            '[' => take_set(&mut rest).map_or(Token::Never, Token::Set),
            c => Token::Char(c),
        };
        tokens.push(token);
    }
    tokens
}

/// Reads a set after its `[`, up to and including its `]`; `None` if the `]` is missing.
///
/// The oddities are SQLite's: a `]` in first place is a member but cannot begin a range, a `]` cannot end a
/// range, and the end of a range cannot begin the next (`[a-c-e]` is a to c, `-` and `e`).
fn take_set(rest: &mut &str) -> Option<Set> {
    let mut set = Set::default();
    let mut c = take_char(rest)?;
    if c == '^' {
        set.inverted = true;
        c = take_char(rest)?;
    }
    if c == ']' {
        set.ranges.push((']', ']'));
        c = take_char(rest)?;
    }
    let mut range_start = None;
    while c != ']' {
        match range_start {
            Some(low) if c == '-' && !rest.is_empty() && !rest.starts_with(']') => {
                set.ranges.push((low, take_char(rest)?));
                range_start = None;
            }
            _ => {
                set.ranges.push((c, c));
                range_start = Some(c);
            }
        }
        c = take_char(rest)?;
    }
    Some(set)
}

fn take_char(rest: &mut &str) -> Option<char> {
    let c = rest.chars().next()?;
    *rest = &rest[c.len_utf8()..];
    Some(c)
}

/// Text up to its first NUL, where SQLite's GLOB ends both pattern and text.
fn until_nul(text: &str) -> &str {
    text.find('\0').map_or(text, |nul| &text[..nul])
}

fn literal_prefix_bytes(pattern: &str) -> usize {
    pattern.find(['*', '?', '[', '\0']).unwrap_or(pattern.len())
}
