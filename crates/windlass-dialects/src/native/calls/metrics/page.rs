//! Prometheus text format.

use super::families::MetricFamily;
use crate::query::Histogram;
use std::fmt::Write;

/// Page of metrics, family after family.
#[derive(Default)]
pub(super) struct Page {
    pub text: String,
}

// Writing to a String does not fail, so the results of `write!` are ignored.
impl Page {
    pub(super) fn family(&mut self, of: &MetricFamily) {
        let (name, kind, help) = (of.name, of.kind.as_str(), of.help);
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Family with one series, without labels.
    pub(super) fn single(&mut self, of: &MetricFamily, value: f64) {
        self.family(of);
        self.line(of, &[], value);
    }

    /// Line of one series; `values` are those of the family's labels.
    pub(super) fn line(&mut self, of: &MetricFamily, values: &[&str], value: f64) {
        self.text.push_str(of.name);
        self.labels(of, values, None);
        let _ = writeln!(self.text, " {value}");
    }

    /// Writes the labels in braces, and the bound of a bucket as the last one.
    fn labels(&mut self, of: &MetricFamily, values: &[&str], bound: Option<&str>) {
        debug_assert_eq!(of.labels.len(), values.len(), "labels of {}", of.name);
        let labels = of.labels.iter().copied().zip(values.iter().copied());
        let mut between = '{';
        for (label, text) in labels.chain(bound.map(|bound| ("le", bound))) {
            let _ = write!(self.text, "{between}{label}=\"");
            escape(&mut self.text, text);
            self.text.push('"');
            between = ',';
        }
        if between == ',' {
            self.text.push('}');
        }
    }

    pub(super) fn times(&mut self, of: &MetricFamily, microseconds: &Histogram) {
        self.histogram(of, microseconds, 1e-6);
    }

    pub(super) fn histogram(&mut self, of: &MetricFamily, histogram: &Histogram, unit: f64) {
        self.family(of);
        self.buckets(of, &[], histogram, unit);
    }

    /// Lines of one histogram of a family.
    pub(super) fn buckets(&mut self, of: &MetricFamily, values: &[&str], histogram: &Histogram, unit: f64) {
        let name = of.name;
        let (buckets, count, sum) = histogram.snapshot();
        let bounds =
            buckets.iter().map(|(bound, at_most)| (rounded(*bound as f64 * unit).to_string(), *at_most));
        for (bound, at_most) in bounds.chain([("+Inf".to_owned(), count)]) {
            let _ = write!(self.text, "{name}_bucket");
            self.labels(of, values, Some(&bound));
            let _ = writeln!(self.text, " {at_most}");
        }
        for (part, value) in [("sum", rounded(sum as f64 * unit)), ("count", count as f64)] {
            let _ = write!(self.text, "{name}_{part}");
            self.labels(of, values, None);
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
