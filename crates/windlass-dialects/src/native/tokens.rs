//! Tokens: which there are, made, rotated and revoked. For admins.

use super::calls::{Answer, answer, body, param, params, reply_encoding};
use super::errors::ApiError;
use super::wire::{self, RotateAsk, TokenAsk};
use crate::auth::keeper::{self, NewToken, TokenError};
use crate::auth::{BadToken, Listed, Role, Source, TokenRecord};
use crate::codec::Out;
use crate::route::Call;
use ::http::StatusCode;
use windlass_core::{Tenant, Timestamp};

/// How long the old token goes on after a rotation if nothing is said: time to hand out the new one.
const GRACE_MS_DEFAULT: u64 = 3_600_000;
/// Longest note: it is shown in lists.
const NOTE_BYTES_MAX: usize = 200;

pub async fn list(call: Call) -> Answer {
    params(&call, &[])?;
    let all = keeper::list(&call.engine, &call.server.tokens).await?;
    let mut out = Out::new(reply_encoding(&call), 32 + all.len() * 200);
    out.begin_map();
    out.key("tokens");
    out.begin_array();
    for Listed { record, source, last_used_at } in &all {
        out.begin_map();
        fields(&mut out, record, *source);
        out.opt_int("last_used_at", last_used_at.map(Timestamp::calendar_ms));
        out.end_map();
    }
    out.end_array();
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

pub async fn create(mut call: Call) -> Answer {
    let reply = reply_encoding(&call);
    let (encoding, body) = body(&mut call).await?;
    let ask: TokenAsk<'_> = wire::optional(encoding, &body)?;
    params(&call, &[])?;
    let role = match ask.role.as_deref() {
        None => Role::Worker,
        Some(word) => Role::parse(word)
            .ok_or_else(|| ApiError::bad_request("`role` is none of viewer, worker, operator, admin"))?,
    };
    let tenant = ask.tenant.as_deref().map_or_else(|| Ok(Tenant::default()), Tenant::new)?;
    let now = call.engine.now();
    let expires_at = match (ask.expires_at, ask.expires_in_ms) {
        (Some(_), Some(_)) => {
            return Err(ApiError::bad_request("`expires_at` or `expires_in_ms`, not both"));
        }
        (Some(at), None) => Some(Timestamp::from_calendar_ms(at)),
        (None, Some(ms)) => Some(now.plus_ms(i64::try_from(ms).unwrap_or(i64::MAX))),
        (None, None) => None,
    };
    if expires_at.is_some_and(|at| at <= now) {
        return Err(ApiError::bad_request("the token would expire before anybody can use it"));
    }
    let note = ask.note.as_deref().unwrap_or_default();
    if note.len() > NOTE_BYTES_MAX || note.chars().any(char::is_control) {
        return Err(ApiError::bad_request(format!(
            "`note` is at most {NOTE_BYTES_MAX} bytes without control characters"
        )));
    }
    let queues = ask.queues.iter().flatten().map(|queue| queue.to_string()).collect();
    let new = NewToken { tenant, role, note: note.to_owned(), expires_at, queues };
    let made = keeper::create(&call.engine, &call.server.tokens, &call.caller, new).await?;
    Ok(shown(reply, &made))
}

pub async fn rotate(mut call: Call) -> Answer {
    let reply = reply_encoding(&call);
    let (encoding, body) = body(&mut call).await?;
    let ask: RotateAsk = wire::optional(encoding, &body)?;
    params(&call, &[])?;
    let grace_ms = i64::try_from(ask.grace_ms.unwrap_or(GRACE_MS_DEFAULT)).unwrap_or(i64::MAX);
    let (server, caller) = (&call.server, &call.caller);
    let made = keeper::rotate(&call.engine, &server.tokens, caller, call.param(0), grace_ms).await?;
    Ok(shown(reply, &made))
}

pub async fn revoke(call: Call) -> Answer {
    params(&call, &[])?;
    let (server, prefix) = (&call.server, call.param(0));
    keeper::revoke(&call.engine, &server.tokens, &call.caller, prefix).await?;
    let mut out = Out::new(reply_encoding(&call), 32);
    out.begin_map();
    out.key("revoked");
    out.str(prefix);
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

/// For those who set handlers and register workers: what these are sent is signed with it.
pub async fn signing_key(call: Call) -> Answer {
    let params = params(&call, &["tenant"])?;
    let tenant = call.caller.tenant_for(param(&params, "tenant"))?;
    call.engine.check_all()?;
    let Some(signer) = &call.server.jq.settings().signer else {
        let message = "this server signs nothing; set outgoing.signing_key in its configuration";
        return Err(ApiError::new(StatusCode::NOT_FOUND, "no_signing_key", message));
    };
    let mut out = Out::new(reply_encoding(&call), 128);
    out.begin_map();
    out.key("tenant");
    out.str(&tenant);
    out.key("signing_key");
    out.str(&signer.key_of(&tenant));
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

/// The only answer that has a token in it.
fn shown(reply: crate::codec::Encoding, (token, record): &(String, TokenRecord)) -> axum::response::Response {
    let mut out = Out::new(reply, 256);
    out.begin_map();
    out.key("token");
    out.str(token);
    fields(&mut out, record, Source::Store);
    out.end_map();
    answer(StatusCode::CREATED, out)
}

fn fields(out: &mut Out, record: &TokenRecord, source: Source) {
    for (key, text) in [
        ("prefix", record.prefix.as_str()),
        ("tenant", record.tenant.as_str()),
        ("role", record.role.as_str()),
        ("note", record.note.as_str()),
        ("source", source.as_str()),
    ] {
        out.key(key);
        out.str(text);
    }
    queues(out, &record.queues);
    out.opt_int("created_at", record.created_at.map(Timestamp::calendar_ms));
    out.opt_int("expires_at", record.expires_at.map(Timestamp::calendar_ms));
}

/// Left out where it is all of them.
pub fn queues(out: &mut Out, queues: &[String]) {
    if queues.is_empty() {
        return;
    }
    out.key("queues");
    out.begin_array();
    queues.iter().for_each(|queue| out.str(queue));
    out.end_array();
}

impl From<TokenError> for ApiError {
    fn from(error: TokenError) -> ApiError {
        let (status, code) = match &error {
            TokenError::NotFound(_) => (StatusCode::NOT_FOUND, "no_such_token"),
            TokenError::LastAdmin(_) => (StatusCode::CONFLICT, "last_admin_token"),
            TokenError::Configured(_) => (StatusCode::CONFLICT, "token_in_configuration"),
            TokenError::TooMany => (StatusCode::CONFLICT, "too_many_tokens"),
            TokenError::Bad(BadToken::Queues { .. } | BadToken::AdminOfSome) => {
                (StatusCode::BAD_REQUEST, "bad_request")
            }
            TokenError::NoChance(_) | TokenError::Bad(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "token_not_made")
            }
            TokenError::Engine(_) => {
                let TokenError::Engine(error) = error else { return ApiError::bad_request("") };
                return error.into();
            }
        };
        ApiError::new(status, code, error.to_string())
    }
}
