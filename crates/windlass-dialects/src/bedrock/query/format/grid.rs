//! Formats with aligned columns.

use super::{Cli, Mode, Table};
use std::fmt::Write;

/// Characters around and between cells.
struct Frame {
    left: &'static str,
    between: &'static str,
    right: &'static str,
    top: Option<Rule>,
    under_header: Option<Rule>,
    bottom: Option<Rule>,
    /// Centers the header in a wider column.
    centres_header: bool,
}

#[derive(Clone, Copy)]
struct Rule {
    left: &'static str,
    dash: &'static str,
    between: &'static str,
    right: &'static str,
    /// Dashes in addition to the column's width.
    more: usize,
}

const fn rule(left: &'static str, dash: &'static str, between: &'static str, right: &'static str) -> Rule {
    Rule { left, dash, between, right, more: 2 }
}

const PLAIN: Rule = rule("+", "-", "+", "+");

fn frame(mode: Mode) -> Frame {
    match mode {
        Mode::Box => Frame {
            left: "│ ",
            between: " │ ",
            right: " │",
            top: Some(rule("┌", "─", "┬", "┐")),
            under_header: Some(rule("├", "─", "┼", "┤")),
            bottom: Some(rule("└", "─", "┴", "┘")),
            centres_header: true,
        },
        Mode::Table => Frame {
            left: "| ",
            between: " | ",
            right: " |",
            top: Some(PLAIN),
            under_header: Some(PLAIN),
            bottom: Some(PLAIN),
            centres_header: true,
        },
        Mode::Markdown => Frame {
            left: "| ",
            between: " | ",
            right: " |",
            top: None,
            under_header: Some(rule("|", "-", "|", "|")),
            bottom: None,
            centres_header: true,
        },
        _ => Frame {
            left: "",
            between: "  ",
            right: "",
            top: None,
            under_header: Some(Rule { left: "", dash: "-", between: "  ", right: "", more: 0 }),
            bottom: None,
            centres_header: false,
        },
    }
}

pub(super) fn write(cli: &Cli, table: &Table) -> String {
    let frame = frame(cli.mode);
    let rows: Vec<Vec<String>> =
        table.rows.iter().map(|row| row.iter().map(|value| cli.shown(value)).collect()).collect();
    let mut widths: Vec<usize> = table.headers.iter().map(|header| width(header)).collect();
    for row in &rows {
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = (*widest).max(width(cell));
        }
    }
    let mut lines = Vec::with_capacity(rows.len() + 4);
    lines.extend(frame.top.map(|rule| rule.drawn(&widths)));
    // The command line draws the header of a framed table even with `-noheader`.
    if cli.has_header || frame.centres_header {
        lines.push(frame.line(&table.headers, &widths, frame.centres_header));
        lines.extend(frame.under_header.map(|rule| rule.drawn(&widths)));
    }
    lines.extend(rows.iter().map(|row| frame.line(row, &widths, false)));
    lines.extend(frame.bottom.map(|rule| rule.drawn(&widths)));
    lines.concat()
}

impl Rule {
    fn drawn(self, widths: &[usize]) -> String {
        let dashes: Vec<String> = widths.iter().map(|width| self.dash.repeat(width + self.more)).collect();
        format!("{}{}{}\n", self.left, dashes.join(self.between), self.right)
    }
}

impl Frame {
    /// Formats a row, with as many lines as its tallest cell.
    fn line(&self, cells: &[String], widths: &[usize], is_centred: bool) -> String {
        let cells: Vec<Vec<&str>> = cells.iter().map(|cell| cell.split('\n').collect()).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(1);
        let mut out = String::new();
        for at in 0..height {
            let padded = |(cell, wide): (&Vec<&str>, &usize)| {
                let text = cell.get(at).copied().unwrap_or_default();
                let spare = wide.saturating_sub(text.chars().count());
                let before = if is_centred { spare / 2 } else { 0 };
                format!("{}{text}{}", " ".repeat(before), " ".repeat(spare - before))
            };
            let padded: Vec<String> = cells.iter().zip(widths).map(padded).collect();
            let _ = writeln!(out, "{}{}{}", self.left, padded.join(self.between), self.right);
        }
        out
    }
}

/// Characters of the longest line.
fn width(text: &str) -> usize {
    text.split('\n').map(|line| line.chars().count()).max().unwrap_or(0)
}
