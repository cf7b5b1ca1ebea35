//! Progress bar for long operations; hidden if stderr is not a terminal.

use indicatif::{ProgressBar, ProgressStyle};

pub(super) fn bar(unit: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    let template = format!("{{bar:40}} {{human_pos}} of {{human_len}} {unit}, {{eta}} left {{msg}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}

pub(super) fn show(bar: &ProgressBar, done: u64, all: u64) {
    bar.set_length(all);
    bar.set_position(done);
}
