//! Tables as plain text.

use std::fmt;

/// Table with headings. Headings that begin with `>` mark right-aligned columns (numbers).
pub(super) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(heads: &[&'static str]) -> Table {
        Table { heads: heads.to_vec(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: impl Into<Vec<String>>) {
        self.rows.push(cells.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> =
            self.heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect();
        let all = || std::iter::once(&names).chain(&self.rows);
        let widest = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..names.len()).map(widest).collect();
        for row in all() {
            let mut line = String::new();
            for ((cell, head), width) in row.iter().zip(&self.heads).zip(&widths) {
                line.push_str(&match head.starts_with('>') {
                    true => format!("{cell:>width$}  "),
                    false => format!("{cell:<width$}  "),
                });
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["WHAT", ">RATE"]);
        table.row(["push".to_owned(), "12".to_owned()]);
        table.row(["claim µ".to_owned(), "1,234".to_owned()]);
        assert_eq!(table.to_string(), "WHAT      RATE\npush        12\nclaim µ  1,234\n");
    }
}
