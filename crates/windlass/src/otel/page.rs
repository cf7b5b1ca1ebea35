//! Reads the Prometheus page of the server back into numbers, so that each metric is declared in one place and both ways
//! of collecting show the same.

/// Metrics of one name.
#[derive(Debug, PartialEq)]
pub(super) struct Family {
    pub name: String,
    pub help: String,
    pub kind: Kind,
    pub series: Vec<Series>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug, PartialEq)]
pub(super) struct Series {
    pub labels: Vec<(String, String)>,
    pub value: Reading,
}

#[derive(Debug, PartialEq)]
pub(super) enum Reading {
    Number(f64),
    Histogram(Buckets),
}

/// Histogram as on the page.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Buckets {
    /// Upper bound and number of values up to it; the last bound is infinite.
    pub cumulative: Vec<(f64, u64)>,
    pub sum: f64,
    pub count: u64,
}

/// Parses a page. Lines that are not understood are left out.
pub(super) fn parse(page: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    let mut help = "";
    for line in page.lines() {
        if let Some(text) = line.strip_prefix("# HELP ") {
            help = text.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(text) = line.strip_prefix("# TYPE ") {
            families.extend(family(text, help));
        } else if let (Some(family), Some(sample)) = (families.last_mut(), sample(line)) {
            family.add(sample);
        }
    }
    families
}

/// Family of a line `NAME KIND`.
fn family(text: &str, help: &str) -> Option<Family> {
    let (name, kind) = text.split_once(' ')?;
    let kind = match kind {
        "counter" => Kind::Counter,
        "gauge" => Kind::Gauge,
        "histogram" => Kind::Histogram,
        _ => return None,
    };
    Some(Family { name: name.to_owned(), help: help.to_owned(), kind, series: Vec::new() })
}

struct Sample<'a> {
    name: &'a str,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Family {
    fn add(&mut self, sample: Sample<'_>) {
        let Sample { name, mut labels, value } = sample;
        let Some(part) = name.strip_prefix(self.name.as_str()) else { return };
        if self.kind != Kind::Histogram {
            if part.is_empty() {
                self.series.push(Series { labels, value: Reading::Number(value) });
            }
            return;
        }
        let bound = labels.pop_if(|(label, _)| label == "le").map(|(_, bound)| bound);
        if self.series.last().is_none_or(|last| last.labels != labels) {
            self.series.push(Series { labels, value: Reading::Histogram(Buckets::default()) });
        }
        let Some(Series { value: Reading::Histogram(buckets), .. }) = self.series.last_mut() else { return };
        match (part, bound.and_then(|bound| bound.parse().ok())) {
            ("_bucket", Some(bound)) => buckets.cumulative.push((bound, value as u64)),
            ("_sum", None) => buckets.sum = value,
            ("_count", None) => buckets.count = value as u64,
            _ => {}
        }
    }
}

/// Parses `name value` or `name{label="text",…} value`.
fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let (text, after) = quoted(after)?;
            labels.push((label.to_owned(), text));
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    Some(Sample { name, labels, value: rest.trim().parse().ok()? })
}

/// Text up to the closing quote, with its escapes resolved, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut found = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((found, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => found.push('\n'),
                other => found.push(other),
            },
            c => found.push(c),
        }
    }
    None
}
