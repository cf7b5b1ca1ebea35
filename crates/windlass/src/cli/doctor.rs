//! `windlass doctor`: checks of a server, its host and its store. Readings are taken first; the checks are functions
//! from readings to findings.

mod host;
mod host_checks;
mod server;
mod server_checks;
mod settings;

use super::findings::{self, Finding, Level};
use super::store::check::embedded;
use crate::client::{ClientError, ServerArgs};
use crate::config::{Config, ConfigArgs};
use crate::fault::{Fault, Outcome};
use crate::output;
use crate::serve;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use windlass_store::sqlite;

/// Check a server, its host and its store, and say what to change
///
/// Looks at the server at --server, or at the one of the configuration if it runs, and at the disk, the limits, the clock
/// and the store of this machine. Give the same --config, --data or --store as the server. Writes one small file without
/// a name to the data folder to time its disk. The exit code is 1 if something has to be changed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass doctor
  windlass doctor --config /etc/windlass/windlass.toml
  windlass doctor --data /var/lib/windlass --json
  windlass doctor --server https://jobs.example.org:7373 --token TOKEN")]
pub(super) struct DoctorArgs {
    /// URL of the server [default: the one of the configuration, if it runs]
    #[arg(long, value_name = "URL", env = "WINDLASS_SERVER")]
    server: Option<String>,
    /// Access token, if the server requires one; one of an admin shows most
    #[arg(long, value_name = "TOKEN", env = "WINDLASS_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// PEM file of trusted CA certificates for https://, instead of the system's
    #[arg(long, value_name = "FILE", env = "WINDLASS_CA")]
    ca: Option<PathBuf>,
    /// PEM file with the client certificate and private key, if the server requires them
    #[arg(long, value_name = "FILE", env = "WINDLASS_CLIENT_CERT")]
    client_cert: Option<PathBuf>,
    /// Data folder of the server [default: windlass-data]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Store of the server: sqlite:PATH or postgres://… [default: SQLite in the data folder]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Configuration file of the server (TOML)
    #[arg(long, value_name = "FILE", env = "WINDLASS_CONFIG")]
    config: Option<PathBuf>,
    /// Set a configuration key; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: DoctorArgs) -> Outcome {
    let asked = ConfigArgs {
        data: args.data.clone(),
        store: args.store.clone(),
        config: args.config.clone(),
        set: args.set.clone(),
        ..ConfigArgs::default()
    };
    let config = asked.read()?;
    let found = examine(&args, &config)?;
    if args.json {
        let is_ok = findings::worst(&found) != Level::Fail;
        output::say_json(&json!({"ok": is_ok, "findings": findings::as_json(&found)}))?;
    } else {
        findings::print(&found)?;
    }
    let (fails, warns) = (findings::count(&found, Level::Fail), findings::count(&found, Level::Warn));
    match fails {
        0 if args.json => Ok(()),
        0 => output::say(match warns {
            0 => "no problems found".to_owned(),
            _ => format!("nothing has to be changed; warnings: {warns}"),
        }),
        _ => Err(Fault::failed(format!("to be changed: {fails}; warnings: {warns}"))),
    }
}

fn examine(args: &DoctorArgs, config: &Config) -> Outcome<Vec<Finding>> {
    let Asked { mut found, readings: server, is_local } = ask_server(args, config)?;
    if let Some(server) = &server {
        found.extend(server_checks::all(server));
    }
    if !is_local {
        let text = "not checked: the server is on another machine; run windlass doctor there, too";
        found.push(Finding::ok("host", text));
        return Ok(found);
    }
    let path = embedded(&config.store);
    let process = path.as_deref().and_then(sqlite::holder);
    let about = host::Subject {
        folder: data_folder(config, path.as_deref()),
        times_disk: path.is_some(),
        process: process.as_deref(),
        connections: config.limits.connections,
    };
    let resident = server.as_ref().and_then(|server| server.resident_bytes);
    found.extend(host_checks::all(&host::read(&about), resident));
    found.extend(settings::findings(config, server.as_ref()));
    Ok(found)
}

/// Answer of the server.
struct Asked {
    found: Vec<Finding>,
    readings: Option<server::Readings>,
    /// The server is on this machine, or there is none.
    is_local: bool,
}

/// Asks the server. Without --server it is no problem if there is none.
fn ask_server(args: &DoctorArgs, config: &Config) -> Outcome<Asked> {
    let Some(url) = args.server.clone().or_else(|| serve::local_url(config)) else {
        return Ok(Asked { found: Vec::new(), readings: None, is_local: true });
    };
    let access = ServerArgs {
        server: url,
        token: args.token.clone(),
        ca: args.ca.clone(),
        client_cert: args.client_cert.clone(),
    };
    let mut client = access.client()?;
    let is_local = args.server.is_none() || client.is_loopback();
    let (found, readings) = match server::read(&mut client) {
        Ok(readings) => (None, Some(readings)),
        Err(ClientError::NoServer { server }) if args.server.is_none() => {
            let text = format!("none runs at {server}; its host and store are checked without it");
            (Some(Finding::ok("server", text)), None)
        }
        // The address of the configuration is often not the name of the certificate.
        Err(error @ ClientError::Tls { is_distrust: true, .. }) if args.server.is_none() => {
            let advice = "give --server https://NAME, the name of the certificate, and --ca if its authority is private";
            (Some(Finding::warn("server", error.to_string(), advice)), None)
        }
        Err(error) => {
            let advice = "check --server, --ca and the network";
            (Some(Finding::fail("server", error.to_string(), advice)), None)
        }
    };
    Ok(Asked { found: found.into_iter().collect(), readings, is_local })
}

/// Folder whose disk matters.
fn data_folder<'a>(config: &'a Config, database: Option<&'a Path>) -> &'a Path {
    match database.and_then(Path::parent) {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => &config.data,
    }
}
