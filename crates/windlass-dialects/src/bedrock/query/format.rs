//! Output formats: two of Bedrock's own, and those of SQLite's command line.

use crate::bedrock::json;
use rusqlite::types::Value;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

mod grid;
#[cfg(test)]
mod tests;

/// Result of a statement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub headers: Vec<String>,
    pub rows: Vec<Vec<Value>>,
}

/// Conversion of values to JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Typing {
    /// By SQLite's type; a text that is a JSON object is embedded.
    Plain,
    /// By the look of the text: `123` is a number, `null` is null, `[1]` is an array.
    Guessed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// `[[…],[…]]`, one array per row.
    Arrays(Typing),
    /// `{"headers":[…],"rows":[[…],…]}`.
    HeadersAndRows(Typing),
    Cli(Cli),
}

/// Format of SQLite's command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cli {
    pub mode: Mode,
    pub has_header: bool,
    pub separator: Option<String>,
    pub null: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    List,
    Tabs,
    Csv,
    Quote,
    Json,
    Line,
    Column,
    Table,
    Box,
    Markdown,
    Html,
}

impl Default for Cli {
    fn default() -> Self {
        Cli { mode: Mode::List, has_header: true, separator: None, null: String::new() }
    }
}

impl Cli {
    /// Parses flags such as `-csv -noheader`. The error names an unknown flag.
    pub fn parse(flags: &str) -> Result<Cli, String> {
        let mut cli = Cli::default();
        let mut words = split_words(flags)?.into_iter();
        while let Some(word) = words.next() {
            let flag = word.strip_prefix('-').unwrap_or(&word);
            // The command line accepts one dash or two.
            match flag.strip_prefix('-').unwrap_or(flag) {
                "list" => cli.mode = Mode::List,
                "tabs" => cli.mode = Mode::Tabs,
                "csv" => cli.mode = Mode::Csv,
                "quote" => cli.mode = Mode::Quote,
                "json" => cli.mode = Mode::Json,
                "line" => cli.mode = Mode::Line,
                "column" => cli.mode = Mode::Column,
                "table" => cli.mode = Mode::Table,
                "box" => cli.mode = Mode::Box,
                "markdown" => cli.mode = Mode::Markdown,
                "html" => cli.mode = Mode::Html,
                "header" => cli.has_header = true,
                "noheader" => cli.has_header = false,
                "separator" => cli.separator = Some(argument(&word, words.next())?),
                "nullvalue" => cli.null = argument(&word, words.next())?,
                _ => return Err(format!("unknown flag {word}")),
            }
        }
        Ok(cli)
    }

    fn write(&self, table: &Table) -> String {
        // The command line prints nothing, not even a header, if there are no rows.
        if table.rows.is_empty() {
            return String::new();
        }
        match self.mode {
            Mode::List => self.lines(table, "|", |value| self.shown(value)),
            Mode::Tabs => self.lines(table, "\t", |value| self.shown(value)),
            Mode::Csv => {
                let separator = self.separator.as_deref().unwrap_or(",");
                self.lines(table, ",", |value| match value {
                    Value::Null => self.null.clone(),
                    value => csv(&shown(value), separator),
                })
            }
            Mode::Quote => self.lines(table, ",", literal),
            Mode::Json => objects(table),
            Mode::Line => self.records(table),
            Mode::Html => self.html(table),
            Mode::Column | Mode::Table | Mode::Box | Mode::Markdown => grid::write(self, table),
        }
    }

    fn shown(&self, value: &Value) -> String {
        if *value == Value::Null { self.null.clone() } else { shown(value) }
    }

    fn lines(&self, table: &Table, separator: &str, cell: impl Fn(&Value) -> String) -> String {
        let separator = self.separator.as_deref().unwrap_or(separator);
        let mut out = String::new();
        let mut line = |cells: Vec<String>| {
            out.push_str(&cells.join(separator));
            out.push('\n');
        };
        if self.has_header {
            line(table.headers.iter().map(|header| cell(&Value::Text(header.clone()))).collect());
        }
        for row in &table.rows {
            line(row.iter().map(&cell).collect());
        }
        out
    }

    /// Rows of an HTML table, without the table element.
    fn html(&self, table: &Table) -> String {
        let mut out = String::new();
        let mut row = |tag: &str, cells: &mut dyn Iterator<Item = String>| {
            out.push_str("<TR>");
            for cell in cells {
                let _ = write!(out, "\n<{tag}>{cell}");
            }
            out.push_str("\n</TR>\n");
        };
        if self.has_header {
            row("TH", &mut table.headers.iter().map(|header| escaped(header)));
        }
        for values in &table.rows {
            row(
                "TD",
                &mut values.iter().map(|value| match value {
                    Value::Null => "null".to_owned(),
                    value => escaped(&shown(value)),
                }),
            );
        }
        out
    }

    /// Writes one value per line, with a blank line between rows.
    fn records(&self, table: &Table) -> String {
        /// Minimum width of the column of names, as in the command line.
        const WIDTH_MIN: usize = 5;
        let width = table.headers.iter().map(|header| header.chars().count()).max().unwrap_or(0);
        let width = width.max(WIDTH_MIN);
        let mut out = String::new();
        for (at, row) in table.rows.iter().enumerate() {
            if at > 0 {
                out.push('\n');
            }
            for (header, value) in table.headers.iter().zip(row) {
                let _ = writeln!(out, "{header:>width$} = {}", self.shown(value));
            }
        }
        out
    }
}

impl Format {
    pub fn write(&self, table: &Table) -> Vec<u8> {
        let text = match self {
            Format::Arrays(typing) => arrays(table, *typing),
            Format::HeadersAndRows(typing) => {
                let headers: Vec<String> = table.headers.iter().map(|header| json::quoted(header)).collect();
                format!("{{\"headers\":[{}],\"rows\":{}}}", headers.join(","), arrays(table, *typing))
            }
            Format::Cli(cli) => cli.write(table),
        };
        text.into_bytes()
    }
}

fn arrays(table: &Table, typing: Typing) -> String {
    let mut out = String::from("[");
    for (at, row) in table.rows.iter().enumerate() {
        out.push_str(if at > 0 { ",[" } else { "[" });
        for (at, value) in row.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            out.push_str(&match typing {
                Typing::Plain => plain_json(value),
                Typing::Guessed => guessed_json(value),
            });
        }
        out.push(']');
    }
    out.push(']');
    out
}

/// Writes objects as the command line does: every text is a string, one row per line.
fn objects(table: &Table) -> String {
    let mut out = String::from("[");
    for (at, row) in table.rows.iter().enumerate() {
        out.push_str(if at > 0 { ",\n{" } else { "{" });
        for (at, (header, value)) in table.headers.iter().zip(row).enumerate() {
            if at > 0 {
                out.push(',');
            }
            let value = match value {
                Value::Null => "null".to_owned(),
                Value::Integer(number) => number.to_string(),
                Value::Real(number) => real(*number),
                Value::Text(_) | Value::Blob(_) => json_string(&shown(value)),
            };
            let _ = write!(out, "{}:{value}", json_string(header));
        }
        out.push('}');
    }
    out.push_str("]\n");
    out
}

fn plain_json(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) if number.is_finite() => real(*number),
        Value::Text(text) if json::is_object(text) => text.clone(),
        value => json::quoted(&shown(value)),
    }
}

fn guessed_json(value: &Value) -> String {
    json::guessed(&shown(value)).into_owned()
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Value as text; NULL is empty.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => real(*number),
        Value::Text(text) => text.clone(),
        Value::Blob(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Formats a float as SQLite does: with a decimal point, so that it does not look like an integer.
fn real(number: f64) -> String {
    /// Larger exponents use scientific notation.
    const EXPONENT_MAX: i32 = 16;
    if number.is_infinite() {
        return if number > 0.0 { "Inf" } else { "-Inf" }.to_owned();
    }
    let short = format!("{number:e}");
    let (mantissa, exponent) = short.split_once('e').unwrap_or((&short, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..=EXPONENT_MAX).contains(&exponent) {
        let digits = number.to_string();
        return if digits.contains('.') { digits } else { digits + ".0" };
    }
    let point = if mantissa.contains('.') { "" } else { ".0" };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}{point}e{sign}{:02}", exponent.abs())
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Value as an SQL literal.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Integer(_) | Value::Real(_) => shown(value),
        Value::Text(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Blob(bytes) => {
            let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            format!("X'{hex}'")
        }
    }
}

/// Quotes a CSV field by the rules of the command line: also for blanks and single quotes.
fn csv(text: &str, separator: &str) -> String {
    let needs_quotes = |c: char| c <= ' ' || c == '"' || c == '\'' || c >= '\u{7f}';
    if text.is_empty() || text.contains(needs_quotes) || (!separator.is_empty() && text.contains(separator)) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn argument(flag: &str, word: Option<String>) -> Result<String, String> {
    word.ok_or_else(|| format!("{flag} requires a value"))
}

/// Splits at blanks; quotes keep blanks together.
fn split_words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some(inner) if inner == c => break,
                        Some(inner) => word.push(inner),
                        None => return Err("unterminated quote in the flags".to_owned()),
                    }
                }
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}
