//! Metrics that alerts are about: errors of the store, free disk space, spans that were not exported.

use super::families;
use super::page::Page;
use crate::server::Server;

pub(super) fn write(page: &mut Page, server: &Server, store_is_up: bool) {
    let meters = server.engine.meters();
    page.single(&families::STORE_UP, f64::from(u8::from(store_is_up)));
    page.family(&families::STORE_ERRORS);
    for (kind, count) in meters.store_errors.all() {
        page.line(&families::STORE_ERRORS, &[kind], count as f64);
    }
    page.single(&families::OTEL_DROPPED, meters.spans_dropped.get() as f64);
    let Some(disk) = server.data.as_ref().and_then(|folder| rustix::fs::statvfs(&**folder).ok()) else {
        return;
    };
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize) as f64;
    page.single(&families::DISK, bytes(disk.f_blocks));
    page.single(&families::DISK_FREE, bytes(disk.f_bavail));
}
