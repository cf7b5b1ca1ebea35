//! Who is calling: roles, tenants, and the tokens that say so.
//!
//! | file | holds |
//! |---|---|
//! | `tokens.rs` | tokens in force: looked up by public prefix, compared as hashes |
//! | [`keeper`] | tokens kept in the store: create, rotate, revoke, and hearing of other servers' |

pub mod keeper;
#[cfg(test)]
mod tests;
mod tokens;

pub use tokens::{BadToken, Listed, Source, TokenRecord, Tokens, generate_token};

use ::http::StatusCode;
use std::fmt;
use std::sync::Arc;
use windlass_core::{Scope, Tenant};
use windlass_engine::Engine;

/// What a caller may do; each role may do what the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look.
    Viewer,
    /// Push, claim, settle.
    Worker,
    /// Change, cancel and delete jobs; pause queues; set limits.
    Operator,
    /// The same for every tenant, and the server as a whole.
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

    /// Whether payloads, results and errors are shown to this role; `hidden` is `auth.viewer_payloads = hide`.
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

/// Who is calling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub tenant: Tenant,
    pub role: Role,
    /// Which jobs of the tenant they reach.
    pub scope: Scope,
    /// What people know them by: the note of their token, or its public part.
    pub who: Arc<str>,
    /// The public part of their token; `None`: they have none.
    pub token: Option<Arc<str>>,
}

/// Whoever calls where no token is needed.
const ANYONE: &str = "anyone";

impl Caller {
    /// Somebody without a token.
    pub fn unnamed(role: Role) -> Caller {
        Caller { tenant: Tenant::default(), role, scope: Scope::default(), who: ANYONE.into(), token: None }
    }

    /// The jobs, as far as this caller may reach them.
    pub fn engine(&self, engine: &Engine) -> Engine {
        engine.within(&self.scope)
    }

    /// The tenant a call is about. Only an admin may name another than their own.
    pub fn tenant_for(&self, asked: Option<&str>) -> Result<Tenant, BadTenant> {
        match asked {
            None => Ok(self.tenant.clone()),
            Some(asked) if asked == self.tenant.as_str() => Ok(self.tenant.clone()),
            Some(_) if self.role < Role::Admin => Err(BadTenant::NotYours),
            Some(asked) => Tenant::new(asked).map_err(|e| BadTenant::Name(e.to_string())),
        }
    }

    /// The tenants a look around is about: an admin who names none sees all.
    pub fn tenants_for(&self, asked: Option<&str>) -> Result<Option<Tenant>, BadTenant> {
        match asked {
            None if self.role == Role::Admin => Ok(None),
            asked => self.tenant_for(asked).map(Some),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTenant {
    #[error("only an admin may name another tenant; leave `tenant` out")]
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
