//! `/api/v1/tokens`: lists, creates, rotates and revokes access tokens; for admins. Also `GET
//! /api/v1/signing_key`.

use crate::audit::with_detail;
use crate::auth::keeper::{self, NewToken, TokenError};
use crate::auth::{BadToken, Listed, Role, TokenRecord, TokenSource};
use crate::codec::Text;
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, ok, reply};
use crate::native::request::{Body, Params, one_tenant};
use crate::native::schema::{RoleWord, SourceWord};
use crate::route::{Call, Examples};
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::{Tenant, Timestamp};

/// Default time for which the old token stays valid after a rotation, to distribute the new one.
const GRACE_MS_DEFAULT: u64 = 3_600_000;
/// Longest note, which is shown in lists.
const NOTE_BYTES_MAX: usize = 200;

pub(super) const CREATE_EXAMPLES: Examples = &[(
    "worker",
    "worker token, valid for 90 days",
    r#"{"role":"worker","tenant":"shop","note":"the mail service","expires_in_ms":7776000000}"#,
)];
pub(super) const ROTATE_EXAMPLES: Examples =
    &[("day", "the old token stays valid for a day", r#"{"grace_ms":86400000}"#)];

/// Token to create.
#[derive(Debug, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TokenAsk<'a> {
    /// Role; worker if omitted.
    #[serde(borrow)]
    #[schemars(with = "Option<RoleWord>")]
    pub role: Option<Text<'a>>,
    /// Tenant; `default` if omitted.
    #[serde(borrow)]
    pub tenant: Option<Text<'a>>,
    /// Holder, as a note for people; shown in lists and in the log.
    #[serde(borrow)]
    pub note: Option<Text<'a>>,
    /// Expiry, in milliseconds since 1970.
    pub expires_at: Option<i64>,
    /// Expiry, in milliseconds from now.
    pub expires_in_ms: Option<u64>,
    /// Scope: QUEUE or QUEUE/NAME, both may be GLOB patterns; all jobs of the tenant if omitted.
    #[serde(borrow)]
    pub queues: Option<Vec<Text<'a>>>,
}

/// Options of a rotation.
#[derive(Debug, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RotateAsk {
    /// Time for which the old token stays valid; an hour if omitted.
    pub grace_ms: Option<u64>,
}

/// Tokens.
#[derive(Serialize, JsonSchema)]
pub(super) struct Tokens<'a> {
    /// Valid tokens.
    tokens: Vec<TokenView<'a>>,
}

/// Valid token.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Token")]
struct TokenView<'a> {
    /// Public prefix, which identifies it.
    prefix: &'a str,
    /// Tenant.
    tenant: &'a str,
    /// Role.
    #[schemars(with = "RoleWord")]
    role: &'static str,
    /// Holder, as a note for people.
    note: &'a str,
    /// Place where it is stored.
    #[schemars(with = "SourceWord")]
    source: &'static str,
    /// Scope: QUEUE or QUEUE/NAME, both may be GLOB patterns; all jobs of the tenant if omitted.
    queues: Option<&'a [String]>,
    /// Time of creation, in milliseconds since 1970.
    created_at: Option<i64>,
    /// Expiry, in milliseconds since 1970.
    expires_at: Option<i64>,
    /// Time of the last use, to the minute, in milliseconds since 1970.
    last_used_at: Option<i64>,
}

impl<'a> TokenView<'a> {
    fn new(record: &'a TokenRecord, source: TokenSource, last_used_at: Option<Timestamp>) -> TokenView<'a> {
        TokenView {
            prefix: record.prefix.as_str(),
            tenant: record.tenant.as_str(),
            role: record.role.as_str(),
            note: record.note.as_str(),
            source: source.as_str(),
            queues: queues(record),
            created_at: record.created_at.map(Timestamp::calendar_ms),
            expires_at: record.expires_at.map(Timestamp::calendar_ms),
            last_used_at: last_used_at.map(Timestamp::calendar_ms),
        }
    }
}

/// Scope of a token; `None`: all jobs of the tenant.
pub(super) fn queues(record: &TokenRecord) -> Option<&[String]> {
    Some(&*record.queues).filter(|queues| !queues.is_empty())
}

/// Created token.
// The only response that contains an access token.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NewToken")]
pub(super) struct NewTokenAnswer<'a> {
    /// Secret to send with requests. Shown only in this response.
    token: &'a str,
    #[serde(flatten)]
    shown: TokenView<'a>,
}

/// Revoked token.
#[derive(Serialize, JsonSchema)]
pub(super) struct TokenGone<'a> {
    /// Public prefix of the token.
    revoked: &'a str,
}

/// Key that signs requests to handlers and workers of a tenant.
#[derive(Serialize, JsonSchema)]
pub(super) struct SigningKey<'a> {
    /// Tenant.
    tenant: &'a str,
    /// HMAC-SHA256 key, as text.
    signing_key: String,
}

pub(super) async fn list(call: Call) -> Answer {
    Params::of(&call)?;
    let all = keeper::list(&call.engine, &call.server.tokens).await?;
    let tokens = all
        .iter()
        .map(|Listed { record, source, last_used_at }| TokenView::new(record, *source, *last_used_at));
    let tokens = tokens.collect();
    reply(&call, StatusCode::OK, 32 + all.len() * 200, &Tokens { tokens })
}

pub(super) async fn create(mut call: Call) -> Answer {
    let body = Body::of(&mut call).await?;
    let ask: TokenAsk<'_> = body.read_or_default()?;
    Params::of(&call)?;
    let role = match ask.role.as_deref() {
        None => Role::Worker,
        Some(word) => Role::parse(word)
            .ok_or_else(|| ApiError::bad_request("unknown `role`; use viewer, worker, operator or admin"))?,
    };
    let tenant = ask.tenant.as_deref().map_or_else(|| Ok(Tenant::default()), Tenant::new)?;
    let now = call.engine.now();
    let expires_at = match (ask.expires_at, ask.expires_in_ms) {
        (Some(_), Some(_)) => {
            return Err(ApiError::bad_request(
                "`expires_at` and `expires_in_ms` cannot be combined; send one of them",
            ));
        }
        (Some(at), None) => Some(Timestamp::from_calendar_ms(at)),
        (None, Some(ms)) => Some(now.plus_ms(i64::try_from(ms).unwrap_or(i64::MAX))),
        (None, None) => None,
    };
    if expires_at.is_some_and(|at| at <= now) {
        return Err(ApiError::bad_request("the expiry time is in the past"));
    }
    let note = ask.note.as_deref().unwrap_or_default();
    if note.len() > NOTE_BYTES_MAX || note.chars().any(char::is_control) {
        return Err(ApiError::bad_request(format!(
            "`note` must have at most {NOTE_BYTES_MAX} bytes, without control characters"
        )));
    }
    let queues = ask.queues.iter().flatten().map(|queue| queue.to_string()).collect();
    call.concerns(&tenant, None);
    let new = NewToken { tenant, role, note: note.to_owned(), expires_at, queues };
    let made = keeper::create(&call.engine, &call.server.tokens, &call.caller, new).await?;
    shown(&call, &made)
}

pub(super) async fn rotate(mut call: Call) -> Answer {
    let ask: RotateAsk = Body::of(&mut call).await?.read_or_default()?;
    Params::of(&call)?;
    let grace_ms = i64::try_from(ask.grace_ms.unwrap_or(GRACE_MS_DEFAULT)).unwrap_or(i64::MAX);
    concerns_holder(&call, call.param(0));
    let (server, caller) = (&call.server, &call.caller);
    let made = keeper::rotate(&call.engine, &server.tokens, caller, call.param(0), grace_ms).await?;
    shown(&call, &made)
}

pub(super) async fn revoke(call: Call) -> Answer {
    Params::of(&call)?;
    let (server, prefix) = (&call.server, call.param(0));
    concerns_holder(&call, prefix);
    keeper::revoke(&call.engine, &server.tokens, &call.caller, prefix).await?;
    ok(&call, &TokenGone { revoked: prefix })
}

/// Records the call under the tenant of the token, as long as the token is there.
fn concerns_holder(call: &Call, prefix: &str) {
    if let Some(found) = call.server.tokens.get(prefix) {
        call.concerns(&found.record.tenant, None);
    }
}

/// Responds with the signing key, for operators of handlers and registered workers, which receive signed
/// requests.
pub(super) async fn signing_key(call: Call) -> Answer {
    let tenant = one_tenant(&call)?;
    call.engine.check_all()?;
    let Some(signer) = &call.server.signer else {
        let message = "this server does not sign requests; set outgoing.signing_key in its configuration";
        return Err(ApiError::coded(StatusCode::NOT_FOUND, "no_signing_key", message));
    };
    ok(&call, &SigningKey { tenant: &tenant, signing_key: signer.key_of(&tenant) })
}

fn shown(call: &Call, (token, record): &(String, TokenRecord)) -> Answer {
    let shown = TokenView::new(record, TokenSource::Store, None);
    let detail = format!("{} of {}, note {:?}", record.role, record.tenant, record.note);
    let made = reply(call, StatusCode::CREATED, 256, &NewTokenAnswer { token, shown })?;
    Ok(with_detail(made, Some(record.prefix.clone()), detail))
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
        ApiError::coded(status, code, error.to_string())
    }
}
