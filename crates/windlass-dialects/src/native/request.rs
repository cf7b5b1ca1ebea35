//! Parts of a request: its body, its parameters, and the job that its path names.

use super::errors::ApiError;
use super::wire;
use crate::auth::Role;
use crate::codec::{self, Encoding, Raw};
use crate::query::Filter;
use crate::route::Call;
use ::http::StatusCode;
use bytes::Bytes;
use serde::Deserialize;
use std::sync::Arc;
use windlass_core::{Job, JobId, Tenant};

/// Encoding of the response: by `Accept`, else that of the body.
pub(super) fn reply_encoding(call: &Call) -> Encoding {
    call.reply_encoding(Encoding::Json)
}

fn wrong_type() -> ApiError {
    let message = "send the header Content-Type: application/json (or application/msgpack)";
    ApiError::coded(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type", message)
}

/// Body and its encoding. Without a body the encoding has no effect.
pub(super) struct Body {
    pub(super) encoding: Encoding,
    pub(super) bytes: Bytes,
}

impl Body {
    pub(super) async fn of(call: &mut Call) -> Result<Body, ApiError> {
        let encoding = call.body_encoding().map_err(|_| wrong_type())?;
        let bytes = call.read_body().await?;
        match encoding {
            Some(encoding) => Ok(Body { encoding, bytes }),
            None if bytes.is_empty() => Ok(Body { encoding: Encoding::Json, bytes }),
            None => Err(wrong_type()),
        }
    }

    pub(super) fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ApiError> {
        Ok(codec::read_map(self.encoding, &self.bytes)?)
    }

    /// Parses a body of any shape.
    pub(super) fn read_any(&self) -> Result<Raw<'_>, ApiError> {
        Ok(codec::read(self.encoding, &self.bytes)?)
    }

    /// Parses a body that may be omitted.
    pub(super) fn read_or_default<'a, T: Deserialize<'a> + Default>(&'a self) -> Result<T, ApiError> {
        if self.bytes.is_empty() { Ok(T::default()) } else { self.read() }
    }
}

/// Query parameters. Parameters that the route does not declare are refused.
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    pub(super) fn of(call: &Call) -> Result<Params, ApiError> {
        let in_query = || call.route.query_params().map(|param| param.name);
        let mut params = Vec::new();
        for (key, value) in call.query() {
            if !in_query().any(|name| name == key) {
                let known: Vec<&str> = in_query().collect();
                let known = known.join(", ");
                return Err(ApiError::bad_request(format!(
                    "unknown parameter `{key}`; the parameters are: {known}"
                )));
            }
            params.push((key.into_owned(), value.into_owned()));
        }
        Ok(Params(params))
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(name, value)| name == key && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, ApiError> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| ApiError::bad_request(format!("the parameter `{key}` must be a whole number")))
        };
        self.text(key).map(parse).transpose()
    }

    pub(super) fn tenant(&self) -> Option<&str> {
        self.text("tenant")
    }

    pub(super) fn cursor(&self) -> Result<Option<JobId>, ApiError> {
        Ok(self.number::<u64>("cursor")?.and_then(JobId::new))
    }

    pub(super) fn page_limit(&self) -> Result<usize, ApiError> {
        Ok(self.number::<usize>("limit")?.unwrap_or(50).clamp(1, wire::PAGE_MAX))
    }
}

/// Tenant of a call that concerns exactly one: the caller's, or another one named in the query.
pub(super) fn one_tenant(call: &Call) -> Result<Tenant, ApiError> {
    Ok(call.caller.tenant_for(Params::of(call)?.tenant())?)
}

/// Tenant of a call that lists or counts; `None`: all tenants.
pub(super) fn seen_tenant(call: &Call) -> Result<Option<Tenant>, ApiError> {
    Ok(call.caller.tenants_for(Params::of(call)?.tenant())?)
}

/// Job named in the path by its id or its alias, and its tenant. A number is an id. An admin that names no
/// tenant may read any job by id.
pub(super) async fn find(call: &Call) -> Result<(Tenant, Arc<Job>), ApiError> {
    let params = Params::of(call)?;
    let found = match call.param(0).parse().ok().and_then(JobId::new) {
        Some(id) => find_id(call, id, params.tenant()).await?,
        None => find_alias(call, call.caller.tenant_for(params.tenant())?).await?,
    };
    let (tenant, job) = found.ok_or_else(ApiError::no_such_job)?;
    call.concerns(&tenant, Some(job.id));
    Ok((tenant, job))
}

/// Job with the alias in the path.
pub(super) async fn find_alias(call: &Call, tenant: Tenant) -> Result<Option<(Tenant, Arc<Job>)>, ApiError> {
    let Some(id) = call.engine.find_alias(&tenant, call.param(0)).await? else { return Ok(None) };
    Ok(call.engine.get_one(&tenant, id).await?.map(|job| (tenant, job)))
}

pub(super) async fn find_id(
    call: &Call,
    id: JobId,
    asked: Option<&str>,
) -> Result<Option<(Tenant, Arc<Job>)>, ApiError> {
    let engine = &call.engine;
    let tenant = call.caller.tenant_for(asked)?;
    if let Some(job) = engine.get_one(&tenant, id).await? {
        return Ok(Some((tenant, job)));
    }
    let next = id.get().checked_add(1).and_then(JobId::new);
    if call.caller.role == Role::Admin && asked.is_none() && next.is_some() {
        let page = engine.list(Filter { before: next, limit: 1, ..Filter::default() }).await?;
        if let Some(job) = page.jobs.into_iter().next().filter(|job| job.id == id) {
            return Ok(Some((job.spec.tenant.clone(), job)));
        }
    }
    Ok(None)
}
