//! Callers: roles, tenants and access tokens.
//!
//! | file | holds |
//! |---|---|
//! | `tokens.rs` | valid tokens: looked up by public prefix, compared as hashes |
//! | [`keeper`] | tokens in the store: create, rotate, revoke, and changes by other servers |

pub mod keeper;
#[cfg(test)]
mod tests;
mod tokens;

pub use tokens::{BadToken, Listed, TokenRecord, TokenSource, Tokens, generate_token};

use ::http::StatusCode;
use std::fmt;
use std::sync::Arc;
use windlass_core::{Scope, Tenant};
use windlass_engine::Engine;

/// Permissions of a caller; each role includes the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Read.
    Viewer,
    /// Push, claim, settle.
    Worker,
    /// Change, cancel and delete jobs; pause queues; set limits.
    Operator,
    /// All of this for every tenant, and the server itself.
    Admin,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Viewer, Role::Worker, Role::Operator, Role::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Worker => "worker",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    /// True if this role sees payloads, results and errors; `hidden` is `auth.viewer_payloads = hide`.
    pub fn sees_payloads(self, hidden: bool) -> bool {
        !hidden || self > Role::Viewer
    }

    pub fn parse(text: &str) -> Option<Role> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub tenant: Tenant,
    pub role: Role,
    /// Jobs of the tenant that the caller can reach.
    pub scope: Scope,
    /// Display name: the note of the token, or its public part.
    pub who: Arc<str>,
    /// Public part of the token; `None`: no token.
    pub token: Option<Arc<str>>,
}

/// Display name of a caller where no token is needed.
const ANYONE: &str = "anyone";

impl Caller {
    /// Caller without a token.
    pub fn unnamed(role: Role) -> Caller {
        Caller { tenant: Tenant::default(), role, scope: Scope::default(), who: ANYONE.into(), token: None }
    }

    /// Engine handle restricted to the caller's scope.
    pub fn engine(&self, engine: &Engine) -> Engine {
        engine.within(&self.scope)
    }

    /// Tenant of a call. Only an admin may name another tenant.
    pub fn tenant_for(&self, asked: Option<&str>) -> Result<Tenant, BadTenant> {
        match asked {
            None => Ok(self.tenant.clone()),
            Some(asked) if asked == self.tenant.as_str() => Ok(self.tenant.clone()),
            Some(_) if self.role < Role::Admin => Err(BadTenant::NotYours),
            Some(asked) => Tenant::new(asked).map_err(|e| BadTenant::Name(e.to_string())),
        }
    }

    /// Tenants of a list: all, for an admin who names none.
    pub fn tenants_for(&self, asked: Option<&str>) -> Result<Option<Tenant>, BadTenant> {
        match asked {
            None if self.role == Role::Admin => Ok(None),
            asked => self.tenant_for(asked).map(Some),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTenant {
    #[error("only an admin may give another tenant; remove `tenant`")]
    NotYours,
    #[error("{0}")]
    Name(String),
}

impl BadTenant {
    pub fn status(&self) -> StatusCode {
        match self {
            BadTenant::NotYours => StatusCode::FORBIDDEN,
            BadTenant::Name(_) => StatusCode::BAD_REQUEST,
        }
    }
}
