//! `windlass blobs`: lists, puts and gets blobs, and removes those that no job refers to.

use crate::client::{Client, ServerArgs, escaped};
use crate::fault::{Fault, Outcome};
use crate::human_time;
use crate::output::{self, Colour, Style, Table};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::PathBuf;

/// List, upload and download blobs, and delete unused ones
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass blobs
  windlass blobs put program.wasm
  windlass blobs get 68d5b57378f76645bf12506c88fb06a81ddb3965 > program.wasm
  windlass blobs gc                      list unused blobs
  windlass blobs gc --older-than 7d --remove")]
pub(crate) struct BlobsArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print the server's response as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Upload a file and print its address
    Put {
        /// File to upload [default: standard input, also -]
        file: Option<PathBuf>,
    },
    /// Download a blob to standard output
    Get {
        /// Address of the blob: SHA-1 or SHA-256 in hex, or sha256- followed by base64
        address: String,
    },
    /// List blobs that no job of any tenant refers to; with --remove, delete them
    Gc {
        /// Ignore blobs uploaded more recently than this
        #[arg(long, value_name = "TIME", default_value = "1d")]
        older_than: String,
        /// Delete the blobs instead of only listing them
        #[arg(long)]
        remove: bool,
    },
}

pub(crate) fn run(args: BlobsArgs) -> Outcome {
    let mut client = args.server.client()?;
    match &args.action {
        None => show(&mut client, args.json),
        Some(Action::Put { file }) => put(&mut client, file.as_ref(), args.json),
        Some(Action::Get { address }) => get(&mut client, address),
        Some(Action::Gc { older_than, remove }) => collect(&mut client, older_than, *remove, args.json),
    }
}

fn show(client: &mut Client, json: bool) -> Outcome {
    let answer = client.get("/api/v1/blobs")?;
    if json {
        return output::say_json(&answer);
    }
    let blobs = answer["blobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    if blobs.is_empty() {
        output::note("no blobs; upload one with: windlass blobs put FILE");
        return Ok(());
    }
    table(blobs).print(Style::of_stdout())?;
    let (count, bytes) = (answer["count"].as_u64().unwrap_or(0), answer["bytes"].as_u64().unwrap_or(0));
    if count > blobs.len() as u64 {
        output::note(format!("showing the {} newest of {count}", blobs.len()));
    }
    output::note(format!("{bytes} bytes in total"));
    Ok(())
}

fn table(blobs: &[Value]) -> Table {
    let mut table = Table::new(&["ADDRESS", ">BYTES", "PUT", "TENANT"]);
    for blob in blobs {
        table.row(vec![
            (output::plain(&blob["sha1"]), Colour::Bold),
            (blob["bytes"].as_u64().unwrap_or(0).to_string(), Colour::Plain),
            (human_time::show_time(blob["stored_at"].as_i64().unwrap_or(0)), Colour::Plain),
            (output::plain(&blob["tenant"]), Colour::Dim),
        ]);
    }
    table
}

fn put(client: &mut Client, file: Option<&PathBuf>, json: bool) -> Outcome {
    let mut bytes = Vec::new();
    match file.filter(|file| file.as_os_str() != "-") {
        Some(file) => {
            bytes = std::fs::read(file)
                .map_err(|error| Fault::failed(format!("cannot read {}: {error}", file.display())))?;
        }
        None => {
            std::io::stdin().read_to_end(&mut bytes)?;
        }
    }
    let (is_new, address) = client.put_bytes("/blob", &bytes)?;
    match json {
        true => output::say_json(&json!({ "address": address, "new": is_new })),
        false => output::say(address),
    }
}

fn get(client: &mut Client, address: &str) -> Outcome {
    let bytes = client.get_bytes(&format!("/blob/{}", escaped(address)))?;
    let mut out = std::io::stdout().lock();
    out.write_all(&bytes)?;
    Ok(out.flush()?)
}

fn collect(client: &mut Client, older_than: &str, remove: bool, json: bool) -> Outcome {
    let older_than_ms = human_time::parse_duration_ms(older_than).map_err(Fault::usage)?;
    let ask = json!({ "remove": remove, "older_than_s": older_than_ms / 1_000 });
    let answer = client.post("/api/v1/blobs/gc", &ask)?;
    if json {
        return output::say_json(&answer);
    }
    let number = |key: &str| answer[key].as_u64().unwrap_or(0);
    if remove {
        return output::say(format!("{} of {} blobs deleted", number("removed"), number("count")));
    }
    let unnamed = answer["unnamed"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !unnamed.is_empty() {
        table(unnamed).print(Style::of_stdout())?;
    }
    output::note(format!(
        "{} of {} blobs ({} bytes) are older than {older_than} and unused by any job{}",
        number("unnamed_count"),
        number("count"),
        number("unnamed_bytes"),
        if unnamed.is_empty() { "" } else { "; delete them with --remove" }
    ));
    Ok(())
}
