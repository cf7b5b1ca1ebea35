//! Prometheus text format.

use crate::query::Histogram;
use std::fmt::Write;

/// Page of metrics, family after family.
#[derive(Default)]
pub(super) struct Page {
    pub text: String,
}

/// Name and value of each label.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

// Writing to a String does not fail, so the results of `write!` are ignored.
impl Page {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    pub(super) fn single(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.line(name, &[], value);
    }

    pub(super) fn line(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.text.push_str(name);
        self.labels(labels, None);
        let _ = writeln!(self.text, " {value}");
    }

    /// Writes the labels in braces, and the bound of a bucket as the last one.
    fn labels(&mut self, labels: Labels<'_>, bound: Option<&str>) {
        let bound = bound.map(|bound| ("le", bound));
        let mut between = '{';
        for (label, text) in labels.iter().copied().chain(bound) {
            let _ = write!(self.text, "{between}{label}=\"");
            escape(&mut self.text, text);
            self.text.push('"');
            between = ',';
        }
        if between == ',' {
            self.text.push('}');
        }
    }

    pub(super) fn times(&mut self, name: &str, help: &str, microseconds: &Histogram) {
        self.histogram(name, help, microseconds, 1e-6);
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram, unit: f64) {
        self.family(name, "histogram", help);
        self.buckets(name, &[], histogram, unit);
    }

    /// Lines of one histogram of a family.
    pub(super) fn buckets(&mut self, name: &str, labels: Labels<'_>, histogram: &Histogram, unit: f64) {
        let (buckets, count, sum) = histogram.snapshot();
        let bounds =
            buckets.iter().map(|(bound, at_most)| (rounded(*bound as f64 * unit).to_string(), *at_most));
        for (bound, at_most) in bounds.chain([("+Inf".to_owned(), count)]) {
            let _ = write!(self.text, "{name}_bucket");
            self.labels(labels, Some(&bound));
            let _ = writeln!(self.text, " {at_most}");
        }
        for (part, value) in [("sum", rounded(sum as f64 * unit)), ("count", count as f64)] {
            let _ = write!(self.text, "{name}_{part}");
            self.labels(labels, None);
            let _ = writeln!(self.text, " {value}");
        }
    }
}

/// Removes the rounding error of binary fractions.
fn rounded(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

fn escape(to: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\\' => to.push_str("\\\\"),
            '"' => to.push_str("\\\""),
            '\n' => to.push_str("\\n"),
            c => to.push(c),
        }
    }
}
