//! Tokenizer for SQL, as far as needed to find conditions. The meaning is left to SQLite.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Keyword or name, in lower case, without quotes.
    Word(String),
    /// String in single quotes.
    Text(String),
    /// Digits only.
    Number(String),
    /// Operator or punctuation.
    Sign(&'static str),
    /// Token that is not interpreted: a number with a decimal point, a blob, a parameter.
    Other,
}

impl Token {
    pub(super) fn is(&self, word: &str) -> bool {
        matches!(self, Token::Word(own) if own == word)
    }

    pub(super) fn is_sign(&self, sign: &str) -> bool {
        matches!(self, Token::Sign(own) if *own == sign)
    }
}

/// Known operators, longer ones first.
const SIGNS: [&str; 10] = ["==", "<=", ">=", "<>", "!=", "=", "(", ")", ",", "."];

/// Splits SQL into tokens; `None`: a quote or a comment does not end.
pub(super) fn tokens(sql: &str) -> Option<Vec<Token>> {
    let mut rest = sql;
    let mut found = Vec::new();
    loop {
        rest = without_space(rest)?;
        let Some(first) = rest.chars().next() else { return Some(found) };
        let (token, after) = match first {
            '\'' => {
                let (text, after) = quoted(rest, '\'')?;
                (Token::Text(text), after)
            }
            // SQLite reads "x" as a string if there is no such column, which only SQLite knows.
            '"' | '`' | '[' => {
                let close = if first == '[' { ']' } else { first };
                let (text, after) = quoted(rest, close)?;
                (Token::Word(text.to_lowercase()), after)
            }
            c if c.is_ascii_digit() => number(rest),
            c if is_word(c) => {
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                // x'00' is a blob.
                match word.to_lowercase() {
                    word if word == "x" && after.starts_with('\'') => (Token::Other, quoted(after, '\'')?.1),
                    word => (Token::Word(word), after),
                }
            }
            _ => sign(rest, first),
        };
        found.push(token);
        rest = after;
    }
}

fn without_space(mut rest: &str) -> Option<&str> {
    loop {
        rest = rest.trim_start();
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.find('\n').map_or("", |end| &comment[end..]);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = &comment[comment.find("*/")? + 2..];
        } else {
            return Some(rest);
        }
    }
}

/// Text between the first character and `close`; a doubled `close` stands for itself.
fn quoted(rest: &str, close: char) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        let ends = c == close && (close == ']' || chars.next_if(|(_, next)| *next == close).is_none());
        if ends {
            return Some((text, &rest[at + c.len_utf8()..]));
        }
        text.push(c);
    }
    None
}

fn number(rest: &str) -> (Token, &str) {
    let end = rest.find(|c: char| !(is_word(c) || c == '.')).unwrap_or(rest.len());
    let (number, after) = rest.split_at(end);
    match number.bytes().all(|b| b.is_ascii_digit()) {
        true => (Token::Number(number.to_owned()), after),
        false => (Token::Other, after),
    }
}

fn sign(rest: &str, first: char) -> (Token, &str) {
    match SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
        Some(sign) => (Token::Sign(sign), &rest[sign.len()..]),
        None if first == ';' => (Token::Sign(";"), &rest[1..]),
        None => (Token::Other, &rest[first.len_utf8()..]),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}
