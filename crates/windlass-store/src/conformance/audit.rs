//! Audit log: order, pages, filters, bounds.

use super::fixtures::Rig;
use crate::audit::{AuditBounds, AuditEntry, AuditFilter};
use windlass_core::{Tenant, Timestamp};

const UNBOUNDED: AuditBounds = AuditBounds { entries_max: 1_000_000, since: Timestamp::EPOCH };

fn entry(at: i64, who: &str, action: &str, target: &str) -> AuditEntry {
    AuditEntry {
        id: 0,
        at: Timestamp::from_millis(at),
        tenant: Tenant::default(),
        who: who.to_owned(),
        role: "operator".to_owned(),
        action: action.to_owned(),
        target: target.to_owned(),
        detail: format!("at {at}, 'quoted' ž"),
    }
}

async fn append(rig: &Rig, entries: Vec<AuditEntry>, bounds: AuditBounds) {
    rig.store.append_audit(entries, bounds).await.expect("append_audit");
}

async fn list(rig: &Rig, filter: AuditFilter) -> Vec<AuditEntry> {
    rig.store.list_audit(filter).await.expect("list_audit")
}

fn all() -> AuditFilter {
    AuditFilter { limit: 1_000, ..AuditFilter::default() }
}

pub(super) async fn entries_come_back_newest_first_and_in_pages(rig: &Rig) {
    assert_eq!(list(rig, all()).await, []);
    let first: Vec<AuditEntry> = (0..7).map(|n| entry(n, "ann", "job.cancel", &n.to_string())).collect();
    append(rig, first.clone(), UNBOUNDED).await;
    append(rig, vec![entry(7, "bob", "queue.pause", "mail out")], UNBOUNDED).await;
    let found = list(rig, all()).await;
    assert!(found.windows(2).all(|pair| pair[0].id > pair[1].id), "{found:?}");
    let without_id = |entry: &AuditEntry| AuditEntry { id: 0, ..entry.clone() };
    let expected: Vec<AuditEntry> =
        [entry(7, "bob", "queue.pause", "mail out")].into_iter().chain(first.into_iter().rev()).collect();
    assert_eq!(found.iter().map(without_id).collect::<Vec<_>>(), expected);
    let page = |before| AuditFilter { before, limit: 3, ..AuditFilter::default() };
    let mut paged = list(rig, page(None)).await;
    while let Some(last) = paged.last().map(|entry| entry.id) {
        let next = list(rig, page(Some(last))).await;
        if next.is_empty() {
            break;
        }
        paged.extend(next);
    }
    assert_eq!(paged, found, "pages hold the same entries");
}

pub(super) async fn entries_are_found_by_what_they_say(rig: &Rig) {
    let other =
        AuditEntry { tenant: Tenant::new("other").expect("tenant"), ..entry(4, "ann", "job.run", "1") };
    let mut entries = vec![entry(1, "ann", "job.cancel", "1"), entry(2, "bob", "job.delete", "1")];
    entries.extend([entry(3, "ann", "jobs.bulk", ""), other]);
    append(rig, entries, UNBOUNDED).await;
    let found = async |filter: AuditFilter| {
        let entries = list(rig, AuditFilter { limit: 10, ..filter }).await;
        entries.iter().map(|entry| entry.at.as_millis()).collect::<Vec<_>>()
    };
    let text = |text: &str| Some(text.to_owned());
    let default = AuditFilter::default;
    assert_eq!(found(AuditFilter { who: text("ann"), ..default() }).await, [4, 3, 1]);
    assert_eq!(found(AuditFilter { action: text("job"), ..default() }).await, [4, 2, 1], "a kind of target");
    assert_eq!(found(AuditFilter { action: text("job.delete"), ..default() }).await, [2]);
    assert_eq!(found(AuditFilter { action: text("jo%"), ..default() }).await, [0; 0], "no pattern");
    let of_job = AuditFilter { action: text("job"), target: text("1"), ..default() };
    assert_eq!(found(AuditFilter { tenant: Some(Tenant::default()), ..of_job }).await, [2, 1]);
}

pub(super) async fn the_log_is_bounded_by_number_and_age(rig: &Rig) {
    for at in 1..=9 {
        let bounds = AuditBounds { entries_max: 5, since: Timestamp::EPOCH };
        append(rig, vec![entry(at, "ann", "job.run", "1")], bounds).await;
    }
    let times = async || list(rig, all()).await.iter().map(|entry| entry.at.as_millis()).collect::<Vec<_>>();
    assert_eq!(times().await, [9, 8, 7, 6, 5]);
    let bounds = AuditBounds { entries_max: 100, since: Timestamp::from_millis(8) };
    append(rig, vec![entry(10, "ann", "job.run", "1")], bounds).await;
    assert_eq!(times().await, [10, 9, 8]);
    let last = list(rig, all()).await[0].id;
    let bounds = AuditBounds { entries_max: 100, since: Timestamp::from_millis(1_000) };
    append(rig, vec![entry(11, "ann", "job.run", "1")], bounds).await;
    append(rig, vec![entry(1_001, "ann", "job.run", "1")], bounds).await;
    let left = list(rig, all()).await;
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].id > last, "ids go on although older entries are gone");
}
