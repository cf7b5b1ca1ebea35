//! Reference of the metrics, from the list that `/metrics` is written with.

use super::{NOTICE, cell, code};
use windlass_dialects::native::calls::metrics::families::{GROUPS, MetricFamily};

const INTRODUCTION: &str = "\
Metrics of `GET /metrics`, in Prometheus' text format. [Operating](../operating.md#watch) describes who may read them, how many
series there are and what to alert on. Counters begin at zero when the server starts. A histogram has the series `_bucket`, `_sum` and
`_count`.
";

pub(in crate::docs) fn page() -> String {
    let mut page = format!("{NOTICE}# Metrics\n\n{INTRODUCTION}");
    for group in GROUPS {
        page.push_str(&format!("\n## {}\n\n", group.title));
        page.push_str("| metric | type | labels | meaning |\n|---|---|---|---|\n");
        for MetricFamily { name, kind, labels, help } in group.families {
            let labels = labels.iter().map(|label| code(label)).collect::<Vec<_>>().join(", ");
            page.push_str(&format!("| `{name}` | {} | {labels} | {} |\n", kind.as_str(), cell(help)));
        }
    }
    page
}
