//! Metrics that alerts are about: errors of the store, free disk space, spans that were not exported.

use super::page::Page;
use crate::server::Server;

pub(super) fn write(page: &mut Page, server: &Server, store_is_up: bool) {
    let meters = server.engine.meters();
    let up = f64::from(u8::from(store_is_up));
    page.single("windlass_store_up", "gauge", "1 if the store answers.", up);
    let help = "Writes and claims that the store did not carry out, by kind of error.";
    page.family("windlass_store_errors_total", "counter", help);
    for (kind, count) in meters.store_errors.all() {
        page.line("windlass_store_errors_total", &[("kind", kind)], count as f64);
    }
    let dropped = meters.spans_dropped.get() as f64;
    let help = "Spans that were not exported because the queue was full or the collector did not take them.";
    page.single("windlass_otel_dropped_total", "counter", help, dropped);
    let Some(disk) = server.data.as_ref().and_then(|folder| rustix::fs::statvfs(&**folder).ok()) else {
        return;
    };
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize) as f64;
    let help = "Size of the file system with the data folder.";
    page.single("windlass_disk_bytes", "gauge", help, bytes(disk.f_blocks));
    let help = "Free space of the file system with the data folder, for users other than root.";
    page.single("windlass_disk_free_bytes", "gauge", help, bytes(disk.f_bavail));
}
