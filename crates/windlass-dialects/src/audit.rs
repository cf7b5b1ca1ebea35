//! Audit: calls of operators and admins that changed something, written to the log of the store, and to a file if
//! asked. Calls of workers are not recorded.

use crate::auth::Role;
use crate::route::{Access, Call, Route};
use crate::server::Server;
use axum::response::Response;
use parking_lot::Mutex;
use serde_json::json;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass_core::{JobId, Tenant};
use windlass_engine::audit::AuditEntry;

/// Longest detail of an entry; the rest is cut off.
const DETAIL_BYTES_MAX: usize = 1_000;

/// Facts that the handler of a call attaches to its response, as an extension.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditDetail {
    /// Target that the path does not name.
    pub target: Option<String>,
    pub detail: String,
}

/// Mark on the response of a call that changed nothing, so that it is not recorded.
#[derive(Clone, Copy, Debug)]
struct Unrecorded;

/// Leaves a call that changed nothing out of the audit log.
pub(crate) fn unrecorded(mut response: Response) -> Response {
    response.extensions_mut().insert(Unrecorded);
    response
}

/// Attaches facts for the audit log to a response.
pub(crate) fn with_detail(mut response: Response, target: Option<String>, detail: String) -> Response {
    response.extensions_mut().insert(AuditDetail { target, detail });
    response
}

/// Tenant that a call concerns, and what was done there.
#[derive(Debug)]
pub(crate) struct Concern {
    tenant: Tenant,
    /// Job that was found, by its id or by its alias.
    job: Option<JobId>,
    detail: Option<String>,
}

/// Added while a call is handled; each is an entry.
pub(crate) type Concerns = Arc<Mutex<Vec<Concern>>>;

impl Call {
    /// Adds an entry for this tenant and job, if they are not the tenant of the caller and the target in the path.
    pub(crate) fn concerns(&self, tenant: &Tenant, job: Option<JobId>) {
        if let Some(concerns) = &self.concerned {
            concerns.lock().push(Concern { tenant: tenant.clone(), job, detail: None });
        }
    }

    /// Sets the detail of the last entry.
    pub(crate) fn has_done(&self, detail: String) {
        if let Some(concerns) = &self.concerned
            && let Some(last) = concerns.lock().last_mut()
        {
            last.detail = Some(detail);
        }
    }
}

/// Call to be recorded unless it is refused.
pub(crate) struct Note {
    pub(crate) concerns: Concerns,
    tenant: Tenant,
    who: String,
    role: &'static str,
    action: String,
    target: String,
}

impl Note {
    /// `None`: calls of this route are not recorded.
    pub(crate) fn of(call: &Call) -> Option<Note> {
        let route = call.route;
        if !is_recorded(route) {
            return None;
        }
        let caller = &call.caller;
        let params = route.path.split('/').filter(|part| part.starts_with('{')).count();
        let targets: Vec<&str> = (0..params).map(|index| call.param(index)).collect();
        Some(Note {
            concerns: Concerns::default(),
            tenant: call.tenant().unwrap_or_else(|_| caller.tenant.clone()),
            who: caller.who.to_string(),
            role: caller.role.as_str(),
            action: action(route.method, route.path),
            target: targets.join("/"),
        })
    }
}

/// True for calls of operators and admins that change something.
fn is_recorded(route: &Route) -> bool {
    let is_of_operators = matches!(route.access, Access::From(Role::Operator | Role::Admin));
    is_of_operators && (route.method != "GET" || route.changes_state)
}

/// Kind of the target and verb of a call, such as `job.cancel` for `POST /api/v1/jobs/{id}/cancel`.
fn action(method: &str, path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | "api" | "v1")).collect();
    let words: Vec<&str> = parts.iter().filter(|part| !part.starts_with('{')).copied().collect();
    let by_method = match method {
        "PUT" => "set",
        "PATCH" => "change",
        "DELETE" => "delete",
        _ => "create",
    };
    let ends_with_word = parts.last().is_some_and(|part| !part.starts_with('{'));
    let has_params = parts.len() > words.len();
    match words.as_slice() {
        [] => format!("server.{by_method}"),
        [word] if ends_with_word && !path.starts_with("/api/") => format!("server.{word}"),
        [word] => format!("{}.{by_method}", singular(word)),
        // The last word names a part of the target: /tenants/{tenant}/quota.
        [.., last] if !ends_with_word || (words.len() == 2 && method != "POST") => {
            format!("{}.{by_method}", singular(last))
        }
        [first, .., verb] if has_params => format!("{}.{verb}", singular(first)),
        [first, .., verb] => format!("{first}.{verb}"),
    }
}

fn singular(word: &str) -> &str {
    word.strip_suffix('s').unwrap_or(word)
}

/// Writes the entries before the call is answered, unless the call was refused. A call that ended with an error of
/// the server may have changed something. A failure is logged: the action has happened.
pub(crate) async fn record(server: &Server, note: Note, response: &mut Response) {
    let more = response.extensions_mut().remove::<AuditDetail>().unwrap_or_default();
    if response.extensions_mut().remove::<Unrecorded>().is_some() {
        return;
    }
    let status = response.status();
    let detail = match status.is_server_error() {
        true => format!("ended with status {}", status.as_u16()),
        false if status.is_success() => more.detail,
        false => return,
    };
    let Note { concerns, tenant, who, role, action, target } = note;
    let target = more.target.unwrap_or(target);
    let mut concerns = std::mem::take(&mut *concerns.lock());
    if concerns.is_empty() {
        concerns.push(Concern { tenant, job: None, detail: None });
    }
    for Concern { tenant, job, detail: own } in concerns {
        let mut detail = own.unwrap_or_else(|| detail.clone());
        detail.truncate(detail.floor_char_boundary(DETAIL_BYTES_MAX));
        let entry = AuditEntry {
            id: 0,
            at: server.engine.now(),
            tenant,
            who: who.clone(),
            role: role.to_owned(),
            action: action.clone(),
            target: job.map_or_else(|| target.clone(), |id| id.to_string()),
            detail,
        };
        write(server, entry).await;
    }
}

async fn write(server: &Server, entry: AuditEntry) {
    if let Some(path) = server.audit_file.clone() {
        let line = line(&entry);
        let written = tokio::task::spawn_blocking(move || append(&path, &line)).await;
        if let Ok(Err((path, error))) = written {
            tracing::warn!("cannot write to the audit file {}: {error}", path.display());
        }
    }
    if let Err(error) = server.engine.append_audit(entry).await {
        tracing::warn!("cannot write to the audit log: {error}");
    }
}

fn line(entry: &AuditEntry) -> String {
    let AuditEntry { at, tenant, who, role, action, target, detail, .. } = entry;
    json!({"at": at.calendar_ms(), "tenant": tenant.as_str(), "who": who, "role": role, "action": action,
        "target": target, "detail": detail})
    .to_string()
}

/// Opens the file for each line, so that it can be renamed and removed while the server runs.
fn append(path: &Path, line: &str) -> Result<(), (PathBuf, std::io::Error)> {
    let opened = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    let written = opened.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    written.map_err(|error| (path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ALL;

    #[test]
    fn an_action_is_named_by_its_route() {
        let check = |method, path, expected| assert_eq!(action(method, path), expected, "{method} {path}");
        check("POST", "/api/v1/jobs/{id}/cancel", "job.cancel");
        check("PATCH", "/api/v1/jobs/{id}", "job.change");
        check("DELETE", "/api/v1/jobs/{id}", "job.delete");
        check("POST", "/api/v1/jobs/bulk", "jobs.bulk");
        check("POST", "/api/v1/queues/{queue}/pause", "queue.pause");
        check("PUT", "/api/v1/queues/{queue}", "queue.set");
        check("PUT", "/api/v1/limits/{id}", "limit.set");
        check("DELETE", "/api/v1/limits/{id}", "limit.delete");
        check("POST", "/api/v1/blobs/gc", "blobs.gc");
        check("PUT", "/api/v1/tenants/{tenant}/quota", "quota.set");
        check("POST", "/api/v1/tokens", "token.create");
        check("POST", "/api/v1/tokens/{prefix}/rotate", "token.rotate");
        check("DELETE", "/api/v1/tokens/{prefix}", "token.delete");
        check("POST", "/api/v1/import", "import.create");
        check("POST", "/{client}/handler/add/{type}/add", "handler.add");
        check("PUT", "/{client}/handler/add/{type}/add", "handler.add");
        check("DELETE", "/{client}/handler/del/{type}/delete", "handler.delete");
        check("GET", "/stop", "server.stop");
        check("PUT", "/jq/constraint/{id}", "constraint.set");
    }

    #[test]
    fn calls_of_operators_that_change_something_are_recorded_and_no_others() {
        let recorded = |dialect: &str| {
            let dialect = ALL.iter().find(|one| one.name() == dialect).unwrap();
            let routes = dialect.routes().iter().filter(|route| is_recorded(route));
            routes.map(|route| action(route.method, route.path)).collect::<Vec<_>>()
        };
        let native = recorded("native");
        for action in ["job.cancel", "job.delete", "queue.pause", "limit.set", "token.create", "quota.set"] {
            assert!(native.iter().any(|found| found == action), "{action} in {native:?}");
        }
        assert!(
            !native.iter().any(|found| found.contains("claim") || found.contains("settle")),
            "{native:?}"
        );
        assert!(recorded("miniq").contains(&"server.quit".to_owned()));
    }
}
