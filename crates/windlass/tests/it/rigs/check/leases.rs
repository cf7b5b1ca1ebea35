//! Leases: one holder at a time, increasing tokens, not early, and within the attempts.

use super::{Life, Say};
use crate::rigs::history::{Action, Grant, How, Record};

/// Grants in the order of their tokens, which is that of the server.
fn in_order<'a>(life: &Life<'a>) -> Vec<(&'a Record, &'a Grant)> {
    let mut grants = life.grants.clone();
    grants.sort_by_key(|(_, grant)| grant.token);
    grants
}

/// Expiry of a lease as last acknowledged, in ms.
fn until(life: &Life<'_>, grant: &Grant) -> i64 {
    let extends = life.extends.iter().filter(|(record, token, _)| *token == grant.token && record.is_ok());
    extends.filter_map(|(_, _, until)| *until).fold(grant.until, i64::max)
}

/// Earliest time at which the run may have ended other than by its lease, in microseconds.
fn may_end_at(life: &Life<'_>, grant: &Grant) -> i64 {
    let settles =
        life.settles.iter().filter(|settle| settle.token == grant.token && settle.record.may_be_done());
    let acts = life.acts.iter().filter(|(act, action, _)| act.may_be_done() && action.takes_away());
    let granted = grant.granted_at * 1_000;
    let spans = settles
        .map(|settle| (settle.record.start, settle.record.end))
        .chain(acts.map(|(act, ..)| (act.start, act.end)));
    // A call that began before the grant may have taken effect after it.
    spans
        .filter(|(_, end)| *end + 1_000 >= granted)
        .map(|(start, _)| start.max(granted))
        .min()
        .unwrap_or(i64::MAX)
}

/// Invariant 7: leases of one job do not overlap, and tokens grow with time.
pub fn one_holder_at_a_time(life: &Life<'_>, say: &mut Say<'_>) {
    for pair in in_order(life).windows(2) {
        let [(first_claim, first), (second_claim, second)] = pair else { continue };
        let id = life.id;
        if first.token == second.token {
            say(7, format!("job {id} was given out twice with token {}", first.token));
            continue;
        }
        if second_claim.end < first_claim.start {
            say(7, format!("the tokens of job {id} do not grow: {} after {}", first.token, second.token));
        }
        let lease_ends = until(life, first);
        let ended = lease_ends.saturating_mul(1_000).min(may_end_at(life, first));
        // The server's timestamps have a resolution of a millisecond.
        if second.granted_at * 1_000 + 1_000 < ended && second_claim.end < ended {
            say(
                7,
                format!(
                    "job {id} was given to call {} at {} while call {} held it until {lease_ends}",
                    second_claim.call, second.granted_at, first_claim.call
                ),
            );
        }
    }
}

/// Invariant 8: a token is valid for one end, while it is the newest and its lease is live.
pub fn old_tokens_are_refused(life: &Life<'_>, say: &mut Say<'_>) {
    let accepted = life.settles.iter().filter(|settle| settle.record.is_ok());
    let ends: Vec<(&Record, u64)> = accepted.map(|settle| (settle.record, settle.token)).collect();
    let beats = life.extends.iter().filter(|(record, ..)| record.is_ok());
    for (record, token) in ends.iter().copied().chain(beats.map(|(record, token, _)| (*record, *token))) {
        let newer = life.grants.iter().find(|(claim, grant)| grant.token > token && claim.end < record.start);
        if let Some((claim, _)) = newer {
            let (call, newer) = (record.call, claim.call);
            say(
                8,
                format!("job {}: call {call} worked with token {token}, older than call {newer}", life.id),
            );
        }
        let ended = ends.iter().find(|(end, used)| *used == token && end.end < record.start);
        if let Some((end, _)) = ended {
            say(
                8,
                format!(
                    "job {}: token {token} worked in call {} and again in {}",
                    life.id, end.call, record.call
                ),
            );
        }
        let Some((_, grant)) = life.grants.iter().find(|(_, grant)| grant.token == token) else { continue };
        let extended_unseen =
            life.extends.iter().any(|(beat, used, _)| *used == token && beat.may_be_done() && !beat.is_ok());
        if !extended_unseen && record.start > until(life, grant).saturating_mul(1_000).saturating_add(1_000) {
            say(8, format!("job {}: call {} worked after the lease had ended", life.id, record.call));
        }
    }
}

/// Invariant 13: no job runs before its due time, at first and after each failure.
pub fn nothing_runs_early(life: &Life<'_>, say: &mut Say<'_>) {
    let hurried = |from: i64| {
        life.acts.iter().any(|(act, action, _)| act.may_be_done() && action.revives() && act.end >= from)
    };
    for (claim, grant) in &life.grants {
        if grant.granted_at < grant.run_at {
            say(
                13,
                format!("job {} was given out at {} but due at {}", life.id, grant.granted_at, grant.run_at),
            );
        }
        let Some((push, pushing)) = life.push else { continue };
        if (grant.granted_at + 1) * 1_000 < push.start + pushing.delay_ms * 1_000 && !hurried(push.start) {
            say(13, format!("job {} was given out early by call {}", life.id, claim.call));
        }
    }
    for settle in life.settles.iter().filter(|settle| settle.record.is_ok() && settle.how != How::Finish) {
        let after = in_order(life).into_iter().find(|(_, grant)| grant.token > settle.token);
        // The next run of a repeating job does not wait for the backoff of this one.
        let next_turn = |grant: &Grant| life.repeats() && grant.attempt == 1;
        let Some((claim, grant)) = after.filter(|(_, grant)| !next_turn(grant)) else { continue };
        let due = settle.record.start + settle.delay_ms * 1_000;
        // A run requested during the ended run starts at once.
        let run = life.grants.iter().find(|(_, grant)| grant.token == settle.token);
        let since = run.map_or(i64::MIN, |(claim, _)| claim.start);
        if (grant.granted_at + 1) * 1_000 < due && !hurried(since) {
            say(13, format!("job {} was given out again early by call {}", life.id, claim.call));
        }
    }
}

/// Invariant 15: attempts stay within the limit, and grow with each run that is not returned.
pub fn attempts_are_counted(life: &Life<'_>, say: &mut Say<'_>) {
    let Some((_, push)) = life.push else { return };
    for (claim, grant) in &life.grants {
        if grant.attempt > push.max_attempts || grant.attempt < 1 {
            let (id, max) = (life.id, push.max_attempts);
            say(
                15,
                format!(
                    "job {id} was given out for attempt {} of {max} by call {}",
                    grant.attempt, claim.call
                ),
            );
        }
    }
    let now = life.now.and_then(|job| job["attempts"].as_i64()).unwrap_or(0);
    if now > push.max_attempts {
        say(15, format!("job {} has had {now} attempts of {}", life.id, push.max_attempts));
    }
    let starts_over = life.repeats() || life.acts.iter().any(|(act, action, _)| restarts(act, *action));
    let has_children = life.now.is_some_and(|job| !job["pending_children"].is_null());
    for pair in in_order(life).windows(2) {
        let [(_, first), (claim, second)] = pair else { continue };
        let given_back = life.settles.iter().any(|settle| {
            // A parent's finish makes it wait for its children and restarts its attempts.
            settle.token == first.token && settle.how != How::Fail && settle.record.may_be_done()
        });
        // The last attempt is repeated if its lease ended in an outage.
        let is_spared = second.attempt == first.attempt && second.attempt == push.max_attempts;
        if second.attempt <= first.attempt && !is_spared && !given_back && !starts_over && !has_children {
            say(
                15,
                format!("job {}: attempt {} came twice, in call {}", life.id, second.attempt, claim.call),
            );
        }
    }
}

fn restarts(act: &Record, action: Action) -> bool {
    act.may_be_done() && action.revives()
}
