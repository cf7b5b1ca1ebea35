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

/// Make tokens; list, rotate and revoke those of a server
///
/// A token is shown once; the server keeps only its hash. Without a subcommand no server is asked: the line that is
/// printed goes into its configuration. With one, the server at --server is, and needs no restart.
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
    /// viewer, worker, operator or admin: each may do what the ones before it may
    #[arg(long, default_value = "worker")]
    role: String,
    /// Whose jobs it is about
    #[arg(long, default_value = "default")]
    tenant: String,
    /// Who has it, for people
    #[arg(long, default_value = "")]
    note: String,
    /// Refused after this time, like 12h or 90d [default: never]
    #[arg(long, value_name = "DURATION", value_parser = human_time::parse_duration_ms)]
    expires: Option<i64>,
    /// Only for these jobs: QUEUE or QUEUE/NAME, both may be GLOB patterns; may be given several times [default: all]
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Make a token that a running server accepts at once
    Create {
        #[command(flatten)]
        new: NewArgs,
        #[command(flatten)]
        to: ToServer,
    },
    /// Show the tokens that a running server accepts
    List {
        #[command(flatten)]
        to: ToServer,
    },
    /// Make another token for the holder of one, which ends after a grace
    Rotate {
        /// The eight characters after wl_
        prefix: String,
        /// How long the old one goes on
        #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = human_time::parse_duration_ms)]
        grace: i64,
        #[command(flatten)]
        to: ToServer,
    },
    /// Refuse a token from now on, also on open connections
    Revoke {
        /// The eight characters after wl_
        prefix: String,
        #[command(flatten)]
        to: ToServer,
    },
}

#[derive(Args, Debug)]
struct ToServer {
    /// Print the server's answer as JSON
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
                output::note(format!("{prefix} is refused after {}", human_time::show_duration(grace)));
            }
            Ok(())
        }
        Some(Action::Revoke { prefix, to }) => {
            let path = format!("/api/v1/tokens/{}", escaped(public_part(&prefix)));
            let answer = to.server.client()?.call("DELETE", &path, None, 0)?.value()?;
            match to.json {
                true => output::say_json(&answer),
                false => output::say(format!("{prefix} is refused from now on")),
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
        Fault::usage(format!("{:?} is not a role; use viewer, worker, operator or admin", new.role))
    })?;
    let tenant = Tenant::new(&new.tenant).map_err(|error| Fault::usage(error.to_string()))?;
    if new.note.contains(['"', '\\', ',']) || new.note.chars().any(char::is_control) {
        return Err(Fault::usage("the note may have no quotes, backslashes, commas or line breaks"));
    }
    if new.queues.iter().any(|queue| queue.contains(['"', '\\', ',', ' '])) {
        return Err(Fault::usage(
            "in a configuration a queue is written without quotes, backslashes, commas and blanks; put ? in their place",
        ));
    }
    let expires_at =
        new.expires.map(|ms| Timestamp::from_calendar_ms(human_time::now_ms().saturating_add(ms)));
    let token =
        auth::generate_token().map_err(|error| Fault::failed(format!("no random numbers: {error}")))?;
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
    output::note("Keep it: it is shown only now. In the server's configuration file:");
    output::note("");
    output::note(format!("  auth.tokens = [\"{line}\"]"));
    output::note("");
    output::note("Then call with --token or WINDLASS_TOKEN, or the header `Authorization: Bearer TOKEN`.");
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
    output::note("Keep it: it is shown only now.");
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
            "no tokens: everybody who can reach the server is its admin; make one with: windlass token create",
        );
        return Ok(());
    }
    let now = human_time::now_ms();
    let when = |value: &Value, without: &str| {
        value.as_i64().map_or_else(|| without.to_owned(), |ms| human_time::show_relative(ms, now))
    };
    let mut table =
        Table::new(&["TOKEN", "ROLE", "TENANT", "QUEUES", "EXPIRES", "LAST USED", "KEPT IN", "NOTE"]);
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
