//! Output of commands: lines, tables, colours, and sanitizing of foreign text for terminals.

use crate::fault::Outcome;
use serde_json::Value;
use std::borrow::Cow;
use std::io::{IsTerminal, Write};

/// Smallest width of a table, whatever the terminal reports.
const WIDTH_MIN: usize = 40;
/// Width if the output is a file or a pipe: enough not to cut useful text.
const WIDTH_PIPED: usize = 200;

/// Prints a line to stdout.
pub(crate) fn say(line: impl AsRef<str>) -> Outcome {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_ref().as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

/// Prints a line to stderr, for people. Write errors are ignored.
pub(crate) fn note(line: impl AsRef<str>) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(line.as_ref().as_bytes());
    let _ = err.write_all(b"\n");
}

pub(crate) fn say_json(value: &Value) -> Outcome {
    let text = if std::io::stdout().is_terminal() {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    };
    say(text.unwrap_or_default())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Blue,
    Cyan,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Colour::Plain => "0",
            Colour::Bold => "1",
            Colour::Dim => "2",
            Colour::Red => "31",
            Colour::Green => "32",
            Colour::Yellow => "33",
            Colour::Blue => "34",
            Colour::Cyan => "36",
        }
    }

    /// Colour of a state, the same in all commands.
    pub(crate) fn of_state(state: &str) -> Colour {
        match state {
            "running" => Colour::Blue,
            "completed" => Colour::Green,
            "failed" => Colour::Red,
            "cancelled" | "terminated" | "terminating" => Colour::Yellow,
            "ready" | "delayed" => Colour::Cyan,
            "retrying" => Colour::Yellow,
            _ => Colour::Plain,
        }
    }
}

/// Colours and width of an output stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub colours: bool,
    pub width: usize,
}

impl Style {
    pub(crate) fn of_stdout() -> Style {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        let width = if terminal { terminal_width() } else { WIDTH_PIPED };
        Style { colours: terminal && colours_allowed(), width }
    }

    pub(crate) fn of_stderr() -> Style {
        let terminal = std::io::stderr().is_terminal();
        Style { colours: terminal && colours_allowed(), width: WIDTH_PIPED }
    }

    pub(crate) fn paint<'a>(&self, colour: Colour, text: &'a str) -> Cow<'a, str> {
        if self.colours && colour != Colour::Plain && !text.is_empty() {
            Cow::Owned(format!("\x1b[{}m{text}\x1b[0m", colour.code()))
        } else {
            Cow::Borrowed(text)
        }
    }
}

/// Follows no-color.org: a non-empty NO_COLOR disables colours.
pub(crate) fn colours_allowed() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    !unwanted && !dumb
}

fn terminal_width() -> usize {
    let asked = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let measured = || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col.into());
    asked.or_else(measured).filter(|width| *width > 0).unwrap_or(80).max(WIDTH_MIN)
}

/// Replaces control characters and bidi controls in foreign text (names, payloads, messages), which a
/// terminal would execute.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    let risky = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(risky) {
        return Cow::Borrowed(text);
    }
    let clean = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if risky(c) => '\u{fffd}',
        c => c,
    };
    Cow::Owned(text.chars().map(clean).collect())
}

/// Cuts a text to at most `width` characters.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_string();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Lines of at most `width` characters, broken between words. A longer word has a line of its own.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines
            .last_mut()
            .filter(|line| line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => line.extend([" ", word]),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Text of a JSON value for a cell or result: strings without quotes.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Table with headings. The last column is cut to the remaining width; the others are shown in full.
pub(crate) struct Table {
    heads: Vec<&'static str>,
    right: Vec<bool>,
    rows: Vec<Vec<(String, Colour)>>,
}

impl Table {
    /// Creates a table. Headings that begin with `>` mark right-aligned columns (numbers).
    pub(crate) fn new(heads: &[&'static str]) -> Table {
        let right = heads.iter().map(|head| head.starts_with('>')).collect();
        let heads = heads.iter().map(|head| head.trim_start_matches('>')).collect();
        Table { heads, right, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<(String, Colour)>) {
        debug_assert_eq!(cells.len(), self.heads.len());
        self.rows
            .push(cells.into_iter().map(|(text, colour)| (harmless(&text).into_owned(), colour)).collect());
    }

    pub(crate) fn lines(&self, style: Style) -> Vec<String> {
        self.lines_of_page(style, &mut Vec::new())
    }

    /// Lines of one page of a long table. `above`: column widths of the previous page; empty for the first
    /// page, which alone has headings. Columns only grow from page to page.
    pub(crate) fn lines_of_page(&self, style: Style, above: &mut Vec<usize>) -> Vec<String> {
        let widths = self.widths(style.width, above);
        let heads = self.heads.iter().map(|head| (head.to_string(), Colour::Bold)).collect::<Vec<_>>();
        let heads = above.is_empty().then_some(&heads);
        let lines = heads.into_iter().chain(&self.rows).map(|row| self.line(row, &widths, style)).collect();
        *above = widths;
        lines
    }

    pub(crate) fn print_page(&self, style: Style, above: &mut Vec<usize>) -> Outcome {
        self.lines_of_page(style, above).into_iter().try_for_each(say)
    }

    pub(crate) fn print(&self, style: Style) -> Outcome {
        for line in self.lines(style) {
            say(line)?;
        }
        Ok(())
    }

    fn widths(&self, room: usize, above: &[usize]) -> Vec<usize> {
        let widest = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].0.chars().count());
            let least = above.get(column).copied().unwrap_or_default();
            cells.max().unwrap_or(0).max(self.heads[column].chars().count()).max(least)
        };
        let mut widths: Vec<usize> = (0..self.heads.len()).map(widest).collect();
        let fair = room / 3;
        let last = widths.len().saturating_sub(1);
        for width in widths.iter_mut().take(last) {
            *width = (*width).min(fair.max(8));
        }
        let taken: usize = widths.iter().take(last).map(|width| width + 2).sum();
        if let Some(width) = widths.last_mut() {
            *width = (*width).min(room.saturating_sub(taken).max(8));
        }
        widths
    }

    fn line(&self, row: &[(String, Colour)], widths: &[usize], style: Style) -> String {
        let mut line = String::new();
        for (column, (text, colour)) in row.iter().enumerate() {
            let text = shortened(text, widths[column]);
            let gap = " ".repeat(widths[column].saturating_sub(text.chars().count()));
            let painted = style.paint(*colour, &text);
            let last = column + 1 == row.len();
            match (self.right[column], last) {
                (true, _) => line.extend([&gap, painted.as_ref()]),
                (false, true) => line.push_str(&painted),
                (false, false) => line.extend([painted.as_ref(), &gap]),
            }
            if !last {
                line.push_str("  ");
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Store URL with the password hidden.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_string() };
    let shown = match rest.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((user, _)) => format!("{scheme}://{user}:(hidden)@{host}"),
            None => url.to_string(),
        },
        None => url.to_string(),
    };
    match shown.split_once("password=") {
        Some((before, after)) => {
            let rest = after.split_once('&').map(|(_, rest)| format!("&{rest}")).unwrap_or_default();
            format!("{before}password=(hidden){rest}")
        }
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_store_url_is_hidden() {
        assert_eq!(without_password("postgres://ann:s3cret@db/x"), "postgres://ann:(hidden)@db/x");
        assert_eq!(without_password("postgres://ann:p@ss@db/x"), "postgres://ann:(hidden)@db/x");
        assert_eq!(without_password("postgres://ann@db/x?a=b"), "postgres://ann@db/x?a=b");
        assert_eq!(
            without_password("postgres://db/x?user=ann&password=s3cret&schema=s"),
            "postgres://db/x?user=ann&password=(hidden)&schema=s"
        );
        assert_eq!(without_password("sqlite:data/x.db"), "sqlite:data/x.db");
    }

    fn plain_style(width: usize) -> Style {
        Style { colours: false, width }
    }

    fn cell(text: &str) -> (String, Colour) {
        (text.to_string(), Colour::Red)
    }

    #[test]
    fn a_table_fits_its_width_and_cuts_only_the_last_column() {
        let mut table = Table::new(&[">ID", "STATE", "PAYLOAD"]);
        table.row(vec![cell("7"), cell("ready"), cell(&"x".repeat(200))]);
        table.row(vec![cell("1234"), cell("completed"), cell("short")]);
        let lines = table.lines(plain_style(60));
        assert!(lines.iter().all(|line| line.chars().count() <= 60), "{lines:?}");
        assert_eq!(lines[0], "  ID  STATE      PAYLOAD");
        assert_eq!(lines[2], "1234  completed  short");
        assert!(lines[1].ends_with('…'));
    }

    #[test]
    fn pages_of_a_table_have_one_heading_and_stand_under_it() {
        let page = |id: &str, state: &str| {
            let mut table = Table::new(&[">ID", "STATE", "PAYLOAD"]);
            table.row(vec![cell(id), cell(state), cell("x")]);
            table
        };
        let mut above = Vec::new();
        let first = page("1234", "completed").lines_of_page(plain_style(60), &mut above);
        assert_eq!(first, ["  ID  STATE      PAYLOAD", "1234  completed  x"]);
        let second = page("7", "ready").lines_of_page(plain_style(60), &mut above);
        assert_eq!(second, ["   7  ready      x"]);
    }

    #[test]
    fn control_characters_from_outside_never_reach_the_terminal() {
        let mut table = Table::new(&["NAME"]);
        table.row(vec![cell("a\x1b[2Jb\nc\u{202e}d")]);
        assert_eq!(table.lines(plain_style(80))[1], "a\u{fffd}[2Jb c\u{fffd}d");
    }

    #[test]
    fn long_texts_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("a windlass-data/windlass.db b", 9), ["a", "windlass-data/windlass.db", "b"]);
        assert_eq!(wrapped("", 9), [""]);
    }

    #[test]
    fn colours_appear_only_when_wanted() {
        let coloured = Style { colours: true, width: 80 };
        assert_eq!(coloured.paint(Colour::Red, "no"), "\x1b[31mno\x1b[0m");
        assert_eq!(plain_style(80).paint(Colour::Red, "no"), "no");
    }
}
