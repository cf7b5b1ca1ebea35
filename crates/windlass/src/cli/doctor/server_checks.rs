//! Checks of a running server.

use super::server::{Inside, QueueReading, Readings, ScheduleReading};
use crate::cli::findings::Finding;
use crate::human_time::show_duration;
use std::ops::RangeInclusive;

/// Difference of the clocks that people notice, and one with which times are wrong.
const CLOCK_WARN_MS: i64 = 2_000;
const CLOCK_FAIL_MS: i64 = 60_000;
/// Waiting time of the oldest job above which workers do not keep up.
const BACKLOG_MS: i64 = 10 * 60_000;
/// Queues and schedules that are named.
const NAMED_MAX: usize = 3;

pub(super) fn all(server: &Readings) -> Vec<Finding> {
    let mut found = vec![readiness(server)];
    found.extend(isolation(server));
    found.extend(server.clock_ahead_ms.as_ref().map(clock));
    match &server.inside {
        Err(why) => {
            let advice = "give a token with --token, one of an admin for everything";
            found.push(Finding::warn("access", format!("most cannot be read: {why}"), advice));
        }
        Ok(inside) => {
            found.push(version(&inside.version, env!("CARGO_PKG_VERSION")));
            found.push(access(inside, server.is_local, server.is_https));
            found.extend(inside.files.map(|(used, limit)| open_files(used, limit)));
            found.push(backlog(&inside.queues));
            found.push(paused(&inside.queues));
            found.push(schedules(&inside.schedules));
        }
    }
    found
}

fn readiness(server: &Readings) -> Finding {
    match &server.readiness {
        Ok(_) => Finding::ok("server", format!("{} is ready", server.url)),
        Err((code, message)) => {
            Finding::fail("server", format!("{} is not ready ({code})", server.url), message)
        }
    }
}

/// Isolation of handlers, from the second line of the readiness probe.
fn isolation(server: &Readings) -> Option<Finding> {
    let lines = server.readiness.as_ref().ok()?;
    let line = lines.iter().find_map(|line| line.strip_prefix("handlers: "))?;
    if line.starts_with("disabled") {
        let advice = "add what is missing, or set runners.isolation = \"auto\"";
        return Some(Finding::warn("isolation", format!("handlers are {line}"), advice));
    }
    Some(isolation_of(line))
}

/// Finding about the mechanisms in force and missing, as the runner lists them.
pub(super) fn isolation_of(line: &str) -> Finding {
    match line.split_once("missing: ") {
        // Control groups are listed last, and are not needed where namespaces or separate users are.
        Some((_, missing)) if missing != "nothing" && !missing.starts_with("control groups") => {
            Finding::warn(
                "isolation",
                format!("handlers are isolated without {missing}"),
                "see docs/runners.md, or run no handlers: miniq.run = false",
            )
        }
        _ => Finding::ok("isolation", format!("handlers are {line}")),
    }
}

fn clock(ahead: &RangeInclusive<i64>) -> Finding {
    let (ahead_ms, behind_ms) = (*ahead.start(), -*ahead.end());
    let (off_ms, word) = if ahead_ms >= behind_ms { (ahead_ms, "ahead of") } else { (behind_ms, "behind") };
    if off_ms < CLOCK_WARN_MS {
        return Finding::ok("clock", "the server's clock agrees with this machine's");
    }
    let text = format!("the server's clock is {} {word} this machine's", show_duration(off_ms));
    let advice = "delays and cron rules follow the server's clock: synchronize both with NTP";
    match off_ms < CLOCK_FAIL_MS {
        true => Finding::warn("clock", text, advice),
        false => Finding::fail("clock", text, advice),
    }
}

fn version(server: &str, own: &str) -> Finding {
    match server == own {
        true => Finding::ok("version", format!("server and command line are windlass {own}")),
        false => Finding::warn(
            "version",
            format!("the server is windlass {server}, the command line {own}"),
            "use the same version for both",
        ),
    }
}

fn access(inside: &Inside, is_local: bool, is_https: bool) -> Finding {
    match (inside.is_open, is_local, is_https) {
        (true, false, _) => Finding::fail(
            "access",
            "the server needs no token and can be reached from other machines",
            "create tokens (windlass token create), or listen on 127.0.0.1",
        ),
        (true, true, _) => {
            Finding::ok("access", "no token needed: every user of this machine has full access")
        }
        (false, false, false) => Finding::warn(
            "access",
            "tokens are sent over the network without TLS",
            "set tls.cert and tls.key, and use https://",
        ),
        (false, _, _) => {
            Finding::ok("access", format!("tokens are needed; this one has the role {}", inside.role))
        }
    }
}

fn open_files(used: u64, limit: u64) -> Finding {
    let text = format!("the server has {used} of {limit} files and connections open");
    match used > limit / 5 * 4 {
        true => Finding::warn("connections", text, "raise its limit (LimitNOFILE= of systemd, ulimit -n)"),
        false => Finding::ok("connections", text),
    }
}

fn backlog(queues: &[QueueReading]) -> Finding {
    let age = |queue: &QueueReading| queue.oldest_ms.filter(|_| !queue.is_paused).unwrap_or(0);
    let mut late: Vec<&QueueReading> = queues.iter().filter(|queue| age(queue) >= BACKLOG_MS).collect();
    late.sort_by_key(|queue| std::cmp::Reverse(age(queue)));
    if late.is_empty() {
        let oldest = queues.iter().map(age).max().unwrap_or(0);
        return Finding::ok(
            "backlog",
            format!("the oldest job that is ready waits for {}", show_duration(oldest)),
        );
    }
    let named = named(&late, |queue| {
        format!("{} ({} ready, oldest for {})", shown(queue), queue.ready, show_duration(age(queue)))
    });
    let advice = "start more workers, or look why they do not claim: windlass queues, windlass job ID";
    Finding::warn("backlog", format!("jobs wait in {named}"), advice)
}

fn paused(queues: &[QueueReading]) -> Finding {
    let paused: Vec<&QueueReading> = queues.iter().filter(|queue| queue.is_paused).collect();
    if paused.is_empty() {
        return Finding::ok("paused", "no queue is paused");
    }
    let named = named(&paused, |queue| format!("{} ({} ready)", shown(queue), queue.ready));
    Finding::warn("paused", format!("no jobs are handed out from {named}"), "windlass queues resume QUEUE")
}

fn schedules(schedules: &[ScheduleReading]) -> Finding {
    let is_bad = |one: &&ScheduleReading| one.failed_in_a_row > 0 || one.missed > 0;
    let bad: Vec<&ScheduleReading> = schedules.iter().filter(is_bad).collect();
    if bad.is_empty() {
        return Finding::ok("schedules", format!("{} repeating jobs, none fails", schedules.len()));
    }
    let named = named(&bad, |one| {
        let ScheduleReading { id, name, failed_in_a_row, missed } = one;
        match missed {
            0 => format!("{id} {name} ({failed_in_a_row} turns failed in a row)"),
            _ => format!("{id} {name} (late, {missed} turns missed)"),
        }
    });
    Finding::warn("schedules", format!("in trouble: {named}"), "windlass schedules turns ID")
}

/// Name of a queue, with its tenant if that is not the default one.
fn shown(queue: &QueueReading) -> String {
    match queue.tenant.as_str() {
        "default" => queue.queue.clone(),
        tenant => format!("{tenant}/{}", queue.queue),
    }
}

/// The first few, and the number of the others.
fn named<T>(all: &[&T], show: impl Fn(&T) -> String) -> String {
    let mut names: Vec<String> = all.iter().take(NAMED_MAX).map(|one| show(one)).collect();
    if all.len() > NAMED_MAX {
        names.push(format!("{} more", all.len() - NAMED_MAX));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::findings::Level::{self, Fail, Ok, Warn};

    #[track_caller]
    fn check(finding: &Finding, level: Level, words: &str) {
        let whole = format!("{} {}", finding.text, finding.advice.as_deref().unwrap_or_default());
        assert!(finding.level == level && whole.contains(words), "{finding:?} should be {level:?}: {words}");
    }

    fn readings() -> Readings {
        let lines = vec!["OK".to_owned(), "handlers: isolated by namespaces; missing: nothing".to_owned()];
        Readings {
            url: "http://127.0.0.1:7373".to_owned(),
            is_local: true,
            is_https: false,
            readiness: Result::Ok(lines),
            clock_ahead_ms: Some(-500..=500),
            inside: Result::Ok(Inside {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                is_open: true,
                ..Inside::default()
            }),
            resident_bytes: None,
        }
    }

    #[test]
    fn a_server_in_order_has_no_findings_but_good_ones() {
        let found = all(&readings());
        assert!(found.iter().all(|finding| finding.level == Ok), "{found:?}");
        let about: Vec<&str> = found.iter().map(|finding| finding.about).collect();
        let expected =
            ["server", "isolation", "clock", "version", "access", "backlog", "paused", "schedules"];
        assert_eq!(about, expected);
    }

    #[test]
    fn a_server_that_is_not_ready_says_why() {
        let why = ("disk_full".to_owned(), "the disk is full".to_owned());
        let found = all(&Readings { readiness: Err(why), ..readings() });
        check(&found[0], Fail, "not ready (disk_full) the disk is full");
    }

    #[test]
    fn without_rights_little_is_seen() {
        let found = all(&Readings { inside: Err("a token is needed".to_owned()), ..readings() });
        check(found.last().unwrap(), Warn, "--token");
    }

    #[test]
    fn clocks() {
        for (ahead, level, words) in [
            (-400..=700, Ok, "agrees"),
            (1_500..=2_600, Ok, "agrees"),
            (2_100..=3_200, Warn, "2s ahead of"),
            (-9_000..=-8_000, Warn, "8s behind"),
            (120_000..=121_000, Fail, "2m00s ahead of"),
        ] {
            check(&clock(&ahead), level, words);
        }
    }

    #[test]
    fn versions() {
        check(&version("1.2.3", "1.2.3"), Ok, "1.2.3");
        check(&version("1.2.4", "1.2.3"), Warn, "server is windlass 1.2.4, the command line 1.2.3");
    }

    #[test]
    fn exposure() {
        for (is_open, is_local, is_https, level, words) in [
            (true, true, false, Ok, "every user of this machine"),
            (true, false, true, Fail, "windlass token create"),
            (false, false, false, Warn, "without TLS"),
            (false, false, true, Ok, "role viewer"),
            (false, true, false, Ok, "role viewer"),
        ] {
            let inside = Inside { is_open, role: "viewer".to_owned(), ..Inside::default() };
            check(&access(&inside, is_local, is_https), level, words);
        }
    }

    #[test]
    fn handlers() {
        for (line, level, words) in [
            ("isolated by namespaces; missing: nothing", Ok, "namespaces"),
            ("isolated by namespaces; missing: control groups (no controller)", Ok, "control groups"),
            ("isolated by limits; missing: seccomp", Warn, "without seccomp"),
            ("disabled: runners.isolation is strict, and this machine lacks seccomp", Warn, "are disabled"),
        ] {
            let lines = vec!["OK".to_owned(), format!("handlers: {line}")];
            let server = Readings { readiness: Result::Ok(lines), ..readings() };
            check(&isolation(&server).unwrap(), level, words);
        }
    }

    fn queue(name: &str, is_paused: bool, oldest_ms: i64) -> QueueReading {
        let (queue, tenant) = (name.to_owned(), "default".to_owned());
        QueueReading { queue, tenant, is_paused, ready: 7, oldest_ms: Some(oldest_ms) }
    }

    #[test]
    fn queues() {
        let fresh = queue("fresh", false, 30_000);
        let late = queue("late", false, 3_600_000);
        let held = queue("held", true, 3_600_000);
        check(&backlog(&[]), Ok, "waits for 0ms");
        check(&backlog(&[fresh.clone(), held.clone()]), Ok, "waits for 30s");
        check(&backlog(&[fresh.clone(), late.clone()]), Warn, "late (7 ready, oldest for 1h00m)");
        let many: Vec<QueueReading> = (0..5).map(|n| queue(&format!("q{n}"), false, 3_600_000 + n)).collect();
        check(&backlog(&many), Warn, "q4 (7 ready, oldest for 1h00m), q3");
        check(&backlog(&many), Warn, "2 more");
        check(&paused(&[fresh]), Ok, "no queue");
        let shop = QueueReading { tenant: "shop".to_owned(), ..held.clone() };
        check(&paused(&[held, late, shop]), Warn, "held (7 ready), shop/held (7 ready)");
    }

    #[test]
    fn repeating_jobs() {
        let one = |id, failed_in_a_row, missed| ScheduleReading {
            id,
            name: "digest".to_owned(),
            failed_in_a_row,
            missed,
        };
        check(&schedules(&[one(1, 0, 0)]), Ok, "1 repeating jobs");
        check(&schedules(&[one(1, 0, 0), one(2, 3, 0)]), Warn, "2 digest (3 turns failed in a row)");
        check(&schedules(&[one(3, 0, 4)]), Warn, "3 digest (late, 4 turns missed)");
    }

    #[test]
    fn connections() {
        check(&open_files(10, 1_024), Ok, "10 of 1024");
        check(&open_files(900, 1_024), Warn, "LimitNOFILE");
    }
}
