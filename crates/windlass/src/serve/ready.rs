//! The ready file: the addresses as JSON, there all at once or not at all.

use crate::fault::{Fault, Outcome};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

pub fn write_or_fail(path: &Path, listening: &[(&'static str, SocketAddr)]) -> Outcome {
    write(path, listening)
        .map_err(|error| Fault::failed(format!("writing the ready file {}: {error}", path.display())))
}

fn write(path: &Path, listening: &[(&'static str, SocketAddr)]) -> std::io::Result<()> {
    let addresses: serde_json::Map<String, serde_json::Value> =
        listening.iter().map(|(what, address)| (what.to_string(), address.to_string().into())).collect();
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    writeln!(file, "{}", serde_json::Value::Object(addresses))?;
    file.persist(path)?;
    Ok(())
}
