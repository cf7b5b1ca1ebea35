//! Durable steps on the page of a job: the kept ones as a table, the wait of a suspended job, and the signals
//! that came before a wait for them.

use super::{Colour, Style, Table, data, field};
use crate::fault::Outcome;
use crate::human_time;
use crate::output;
use serde_json::Value;

/// Kept steps shown: the last ones tell where the job is, and `--json` has all.
const STEPS_SHOWN: usize = 100;
/// Early signals shown.
const SIGNALS_SHOWN: usize = 20;
/// Columns by which the table stands to the right of the labels.
const INDENT: usize = 2;

/// Prints the kept steps and the early signals.
pub(super) fn print(style: Style, job: &Value, now_ms: i64) -> Outcome {
    let steps = list(&job["steps"]);
    let hidden = steps.len().saturating_sub(STEPS_SHOWN);
    if !steps.is_empty() {
        field(style, "steps", &heading(steps.len(), hidden))?;
        let inner = Style { width: style.width.saturating_sub(INDENT), ..style };
        for line in table(&steps[hidden..], now_ms).lines(inner) {
            output::say(format!("{:INDENT$}{line}", ""))?;
        }
    }
    field(style, "signals", &signals(list(&job["signals"]), now_ms))
}

/// Prints the wait of a suspended job.
pub(super) fn print_wait(style: Style, job: &Value, now_ms: i64) -> Outcome {
    let (label, text) = wait(job, now_ms);
    field(style, label, &text)
}

fn heading(count: usize, hidden: usize) -> String {
    match (count, hidden) {
        (1, _) => "1 kept".to_owned(),
        (count, 0) => format!("{count} kept"),
        (count, _) => format!("{count} kept; the last {STEPS_SHOWN} are shown, --json has all"),
    }
}

fn table(steps: &[Value], now_ms: i64) -> Table {
    let mut table = Table::new(&["NAME", "KIND", "WHEN", ">DURATION", "RESULT"]);
    for step in steps {
        let when = step["at"].as_i64().map(|at| human_time::show_relative(at, now_ms));
        let (result, colour) = match step["timed_out"] == true {
            true => ("timed out".to_owned(), Colour::Yellow),
            false => (data(&step["result"], &step["result_base64"], &step["result_format"]), Colour::Plain),
        };
        table.row(vec![
            (output::plain(&step["name"]), Colour::Bold),
            (output::plain(&step["kind"]), Colour::Plain),
            (when.unwrap_or_default(), Colour::Dim),
            (duration(step), Colour::Plain),
            (result, colour),
        ]);
    }
    table
}

/// Time from the start of a step until its result was kept; a worker need not send the start.
fn duration(step: &Value) -> String {
    match step["at"].as_i64().zip(step["started_at"].as_i64()) {
        Some((at, began)) => human_time::show_duration(at - began),
        None => "-".to_owned(),
    }
}

/// Label and text of a wait: what ends it, when at the latest, since when, and the step that it becomes.
fn wait(job: &Value, now_ms: i64) -> (&'static str, String) {
    let wait = &job["wait"];
    let moment = |key: &str| {
        let at = wait[key].as_i64()?;
        let relative = human_time::show_relative(at, now_ms);
        Some(format!("{key} {} ({relative})", human_time::show_time(at)))
    };
    let signal = wait["signal"].as_str().map(|name| format!("signal {name}"));
    let children = (wait["children"] == true).then(|| match job["pending_children"].as_u64() {
        Some(1) => "1 child".to_owned(),
        count => format!("{} children", count.unwrap_or_default()),
    });
    let ends: Vec<String> = [signal, children].into_iter().flatten().collect();
    let until = moment("until");
    let (label, first) = match (ends.is_empty(), &until) {
        (false, _) => ("waits for", Some(ends.join(" or "))),
        (true, Some(_)) => ("sleeps", None),
        (true, None) => ("waits for", Some(format!("`windlass job {} run`", output::plain(&job["id"])))),
    };
    let step = wait["step"].as_str().map(|name| format!("step {name}"));
    let parts: Vec<String> = [first, until, moment("since"), step].into_iter().flatten().collect();
    (label, parts.join(", "))
}

fn signals(signals: &[Value], now_ms: i64) -> String {
    let told = |signal: &Value| {
        let came = signal["at"].as_i64().map(|at| human_time::show_relative(at, now_ms));
        format!("{} {}", output::plain(&signal["name"]), came.unwrap_or_default())
    };
    let mut parts: Vec<String> = signals.iter().take(SIGNALS_SHOWN).map(told).collect();
    match signals.len() {
        0 => return String::new(),
        count if count > SIGNALS_SHOWN => parts.push(format!("{} more", count - SIGNALS_SHOWN)),
        _ => {}
    }
    format!("{} (kept until a wait takes them)", parts.join(", "))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_step_is_a_row_with_its_duration_and_its_result() {
        let steps = json!([
            {"name": "charge", "kind": "run", "result": {"id": "ch_1"}, "started_at": 1_000, "at": 3_000},
            {"name": "note", "kind": "run", "at": 4_000},
            {"name": "sleep", "kind": "sleep", "started_at": 4_000, "at": 64_000},
            {"name": "ok", "kind": "signal", "started_at": 4_000, "at": 64_000, "timed_out": true},
            {"name": "raw", "kind": "run", "result_base64": "/wD/", "result_format": "binary", "at": 64_000},
        ]);
        let lines = table(list(&steps), 65_000).lines(Style { colours: false, width: 80 });
        assert_eq!(
            lines,
            [
                "NAME    KIND    WHEN       DURATION  RESULT",
                "charge  run     1m02s ago        2s  {\"id\":\"ch_1\"}",
                "note    run     1m01s ago         -",
                "sleep   sleep   1s ago        1m00s",
                "ok      signal  1s ago        1m00s  timed out",
                "raw     run     1s ago            -  3 bytes, binary",
            ]
            .map(str::to_owned)
        );
    }

    #[test]
    fn a_wait_says_what_ends_it_and_since_when() {
        for (job, label, text) in [
            (json!({"wait": {"signal": "approval"}}), "waits for", "signal approval"),
            (json!({"wait": {"signal": "ok", "step": "wait:ok"}}), "waits for", "signal ok, step wait:ok"),
            (json!({"wait": {"children": true}, "pending_children": 3}), "waits for", "3 children"),
            (json!({"wait": {"children": true}, "pending_children": 1}), "waits for", "1 child"),
            (
                json!({"wait": {"children": true, "signal": "stop"}, "pending_children": 2}),
                "waits for",
                "signal stop or 2 children",
            ),
            (json!({"id": 7, "wait": {}}), "waits for", "`windlass job 7 run`"),
        ] {
            assert_eq!(wait(&job, 0), (label, text.to_owned()), "{job}");
        }
        let (label, text) = wait(&json!({"wait": {"until": 90_000, "since": 10_000}}), 60_000);
        assert_eq!(label, "sleeps");
        assert!(text.starts_with("until ") && text.contains(" (in 30s), since "), "{text}");
        assert!(text.ends_with(" (50s ago)"), "{text}");
    }

    #[test]
    fn early_signals_are_counted_and_not_all_shown() {
        assert_eq!(signals(&[], 0), "");
        let one = [json!({"name": "approval", "at": 1_000})];
        assert_eq!(signals(&one, 6_000), "approval 5s ago (kept until a wait takes them)");
        let many = vec![one[0].clone(); 100];
        assert!(signals(&many, 6_000).contains(", 80 more (kept"));
    }

    #[test]
    fn of_many_steps_the_last_are_shown() {
        assert_eq!(heading(1, 0), "1 kept");
        assert_eq!(heading(2, 0), "2 kept");
        assert_eq!(heading(1000, 900), "1000 kept; the last 100 are shown, --json has all");
    }
}
