//! `windlass token`: creates tokens; lists, rotates and revokes the tokens of a running server.

use crate::client::{ServerArgs, escaped};
use crate::fault::{Fault, Outcome};
use crate::human_time;
use crate::output::{self, Colour, Style, Table};
use crate::serve::tokens;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use windlass_core::{Tenant, Timestamp};
use windlass_dialects::auth::{self, Role, TokenRecord};

/// Create access tokens; list, rotate and revoke the tokens of a server
///
/// A token is shown only once; the server stores its hash. Without a subcommand, prints a new token and a line for the
/// server's configuration file, without contacting a server. The subcommands change the tokens of the running server at
/// --server; no restart is needed.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  windlass token
  windlass token --role operator --tenant shop --note 'the shop team'
  windlass token create --role worker --tenant shop --expires 90d
  windlass token create --role worker --queue mail --queue 'default/report-*'
  windlass token list
  windlass token rotate 1a2b3c4d --grace 1d
  windlass token revoke 1a2b3c4d")]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    new: NewArgs,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct NewArgs {
    /// Role: viewer, worker, operator or admin, each with all rights of the roles before it
    #[arg(long, default_value = "worker")]
    role: String,
    /// Tenant whose jobs the token may access
    #[arg(long, default_value = "default")]
    tenant: String,
    /// Description, such as the owner
    #[arg(long, default_value = "")]
    note: String,
    /// Lifetime, e.g. 12h or 90d [default: unlimited]
    #[arg(long, value_name = "DURATION", value_parser = human_time::parse_duration_ms)]
    expires: Option<i64>,
    /// Restrict the token to QUEUE or QUEUE/NAME (GLOB patterns); may be repeated [default: all jobs of the tenant]
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Create a token on a running server
    Create {
        #[command(flatten)]
        new: NewArgs,
        #[command(flatten)]
        to: ToServer,
    },
    /// List the tokens of a running server
    List {
        #[command(flatten)]
        to: ToServer,
    },
    /// Create a token with the same rights as an existing one, which expires after a grace period
    Rotate {
        /// Public part of the token: the eight characters after wl_
        prefix: String,
        /// Grace period of the old token
        #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = human_time::parse_duration_ms)]
        grace: i64,
        #[command(flatten)]
        to: ToServer,
    },
    /// Revoke a token at once, also on open connections
    Revoke {
        /// Public part of the token: the eight characters after wl_
        prefix: String,
        #[command(flatten)]
        to: ToServer,
    },
}

#[derive(Args, Debug)]
struct ToServer {
    /// Print the server's response as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn run(args: TokenArgs) -> Outcome {
    match args.action {
        None => make(&args.new, args.json),
        Some(Action::Create { new, to }) => create(&new, &to),
        Some(Action::List { to }) => list(&to),
        Some(Action::Rotate { prefix, grace, to }) => {
            let path = format!("/api/v1/tokens/{}/rotate", escaped(public_part(&prefix)));
            let answer = to.server.client()?.post(&path, &json!({ "grace_ms": grace }))?;
            show_new(&answer, to.json)?;
            if !to.json {
                output::note(format!("token {prefix} expires in {}", human_time::show_duration(grace)));
            }
            Ok(())
        }
        Some(Action::Revoke { prefix, to }) => {
            let path = format!("/api/v1/tokens/{}", escaped(public_part(&prefix)));
            let answer = to.server.client()?.call("DELETE", &path, None, 0)?.value()?;
            match to.json {
                true => output::say_json(&answer),
                false => output::say(format!("token {prefix} revoked")),
            }
        }
    }
}

/// Public part of a token: `1a2b3c4d` of `wl_1a2b3c4d` or of the whole token, whose secret part is never
/// sent.
fn public_part(text: &str) -> &str {
    let text = text.strip_prefix("wl_").unwrap_or(text);
    text.split('_').next().unwrap_or(text)
}

/// Creates a token without a server, and prints it with its configuration line.
fn make(new: &NewArgs, json: bool) -> Outcome {
    let role = Role::parse(&new.role).ok_or_else(|| {
        Fault::usage(format!("unknown role {:?}; use viewer, worker, operator or admin", new.role))
    })?;
    let tenant = Tenant::new(&new.tenant).map_err(|error| Fault::usage(error.to_string()))?;
    if new.note.contains(['"', '\\', ',']) || new.note.chars().any(char::is_control) {
        return Err(Fault::usage("a note must not contain quotes, backslashes, commas or line breaks"));
    }
    if new.queues.iter().any(|queue| queue.contains(['"', '\\', ',', ' '])) {
        return Err(Fault::usage(
            "a queue in a configuration line must not contain quotes, backslashes, commas or spaces; \
             write ? in their place",
        ));
    }
    let expires_at =
        new.expires.map(|ms| Timestamp::from_calendar_ms(human_time::now_ms().saturating_add(ms)));
    let token = auth::generate_token()
        .map_err(|error| Fault::failed(format!("cannot read random numbers: {error}")))?;
    let mut record = TokenRecord::of(&token, tenant, role, expires_at)
        .map_err(|error| Fault::failed(error.to_string()))?;
    record.note = new.note.clone();
    record.queues = new.queues.clone();
    record.scope().map_err(|error| Fault::usage(error.to_string()))?;
    let line = tokens::written(&record);
    if json {
        return output::say_json(&json!({ "token": token, "config": line }));
    }
    output::say(&token)?;
    output::note("");
    output::note("Save this token: it is not shown again. Add this line to the server's configuration file:");
    output::note("");
    output::note(format!("  auth.tokens = [\"{line}\"]"));
    output::note("");
    output::note("Clients send it with --token, WINDLASS_TOKEN or the header `Authorization: Bearer TOKEN`.");
    Ok(())
}

fn create(new: &NewArgs, to: &ToServer) -> Outcome {
    let mut ask = json!({ "role": new.role, "tenant": new.tenant, "note": new.note });
    if let Some(ms) = new.expires {
        ask["expires_in_ms"] = ms.into();
    }
    if !new.queues.is_empty() {
        ask["queues"] = json!(new.queues);
    }
    let answer = to.server.client()?.post("/api/v1/tokens", &ask)?;
    show_new(&answer, to.json)
}

fn show_new(answer: &Value, json: bool) -> Outcome {
    if json {
        return output::say_json(answer);
    }
    output::say(output::plain(&answer["token"]))?;
    output::note("Save this token: it is not shown again.");
    Ok(())
}

fn list(to: &ToServer) -> Outcome {
    let answer = to.server.client()?.get("/api/v1/tokens")?;
    if to.json {
        return output::say_json(&answer);
    }
    let tokens = answer["tokens"].as_array().map(Vec::as_slice).unwrap_or_default();
    if tokens.is_empty() {
        output::note(
            "no tokens: everyone who can reach the server has the admin role; create a token with: \
             windlass token create",
        );
        return Ok(());
    }
    let now = human_time::now_ms();
    let when = |value: &Value, without: &str| {
        value.as_i64().map_or_else(|| without.to_owned(), |ms| human_time::show_relative(ms, now))
    };
    let mut table =
        Table::new(&["TOKEN", "ROLE", "TENANT", "QUEUES", "EXPIRES", "LAST USED", "STORED IN", "NOTE"]);
    for token in tokens {
        table.row(vec![
            (output::plain(&token["prefix"]), Colour::Bold),
            (output::plain(&token["role"]), Colour::Plain),
            (output::plain(&token["tenant"]), Colour::Plain),
            (queues(&token["queues"]), Colour::Plain),
            (when(&token["expires_at"], "never"), Colour::Plain),
            (when(&token["last_used_at"], "never"), Colour::Plain),
            (output::plain(&token["source"]), Colour::Dim),
            (output::plain(&token["note"]), Colour::Plain),
        ]);
    }
    table.print(Style::of_stdout())
}

fn queues(queues: &Value) -> String {
    match queues.as_array() {
        None => "all".to_owned(),
        Some(queues) => queues.iter().map(output::plain).collect::<Vec<_>>().join(" "),
    }
}
