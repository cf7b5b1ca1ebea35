//! `GET /api/v1/me`: the caller and its rights.

use super::tokens::queues;
use crate::native::reply::{Answer, ok};
use crate::native::request::Params;
use crate::native::schema::RoleWord;
use crate::route::Call;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use std::collections::BTreeMap;

/// Caller of the API.
#[derive(Serialize, JsonSchema)]
pub(super) struct Me<'a> {
    /// Tenant.
    tenant: &'a str,
    /// Role.
    #[schemars(with = "RoleWord")]
    role: &'static str,
    /// Version of the server.
    version: &'static str,
    /// True if the server needs no tokens.
    open: bool,
    /// True if the caller sees payloads, results and errors.
    payloads: bool,
    /// Scope: QUEUE or QUEUE/NAME, both may be GLOB patterns; all jobs of the tenant if omitted.
    queues: Option<&'a [String]>,
    /// Addresses of dialects with a port of their own.
    #[schemars(schema_with = "doors")]
    doors: BTreeMap<&'a str, String>,
}

fn doors(_: &mut SchemaGenerator) -> Schema {
    let about = "Bedrock::Jobs: an address and port.";
    json_schema!({"type": "object", "properties": {"bedrock": {"type": "string", "description": about}}})
}

pub(super) async fn me(call: Call) -> Answer {
    Params::of(&call)?;
    let listed = call.caller.token.as_ref().and_then(|prefix| call.server.tokens.get(prefix));
    let doors = call.server.dialect_ports.iter().map(|(dialect, address)| (*dialect, address.to_string()));
    ok(
        &call,
        &Me {
            tenant: call.caller.tenant.as_str(),
            role: call.caller.role.as_str(),
            version: call.server.version,
            open: call.server.tokens.is_open(),
            payloads: !call.hides_payloads(),
            queues: listed.as_ref().and_then(|listed| queues(&listed.record)),
            doors: doors.collect(),
        },
    )
}
