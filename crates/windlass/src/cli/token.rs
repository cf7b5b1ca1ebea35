//! `windlass token`: makes a token and the line of configuration that lets it in.

use crate::fault::{Fault, Outcome};
use crate::output;
use crate::serve::tokens;
use clap::Args;
use serde_json::json;
use windlass_core::Tenant;
use windlass_dialects::auth::{self, Role, TokenRecord};

/// Make a token and the line of configuration that lets it in
///
/// The token is shown once; the server keeps only its hash.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass token
  windlass token --role operator --tenant shop --note 'the shop team'")]
pub struct TokenArgs {
    /// viewer, worker, operator or admin: each may do what the ones before it may
    #[arg(long, default_value = "worker")]
    role: String,
    /// Whose jobs it is about
    #[arg(long, default_value = "default")]
    tenant: String,
    /// Who has it, for people
    #[arg(long, default_value = "")]
    note: String,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: TokenArgs) -> Outcome {
    let role = Role::parse(&args.role).ok_or_else(|| {
        Fault::usage(format!("{:?} is not a role; use viewer, worker, operator or admin", args.role))
    })?;
    let tenant = Tenant::new(&args.tenant).map_err(|error| Fault::usage(error.to_string()))?;
    if args.note.contains(['"', '\\', ',']) || args.note.chars().any(char::is_control) {
        return Err(Fault::usage("the note may have no quotes, backslashes, commas or line breaks"));
    }
    let token =
        auth::generate_token().map_err(|error| Fault::failed(format!("no random numbers: {error}")))?;
    let mut record =
        TokenRecord::of(&token, tenant, role, None).map_err(|error| Fault::failed(error.to_string()))?;
    record.note = args.note;
    let line = tokens::written(&record);
    if args.json {
        return output::say_json(&json!({ "token": token, "config": line }));
    }
    output::say(&token)?;
    output::note("");
    output::note("Keep it: it is shown only now. In the server's configuration file:");
    output::note("");
    output::note(format!("  auth.tokens = [\"{line}\"]"));
    output::note("");
    output::note("Then call with --token or WINDLASS_TOKEN, or the header `Authorization: Bearer TOKEN`.");
    Ok(())
}
