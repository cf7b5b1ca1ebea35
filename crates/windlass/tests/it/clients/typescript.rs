//! TypeScript library: its own tests against the real server, its types and its reference. `./test` installs what it
//! is built with.

use crate::server::{Ran, windlass};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) fn library() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/typescript");
    let built = folder.join("dist/index.js");
    assert!(built.exists(), "the library is not built: run `npm ci && npm run build` in clients/typescript");
    folder
}

/// Runs a script of its package.json.
#[track_caller]
fn script(name: &str) {
    let mut command = Command::new("npm");
    command.args(["run", "--silent", name]).current_dir(library());
    let ran = Ran::of(command.env("WINDLASS_BIN", windlass().get_program()));
    assert_eq!(ran.code, 0, "npm run {name}:\n{}\n{}", ran.stdout, ran.stderr);
}

#[test]
fn the_library_passes_its_tests() {
    script("test");
}

/// Express, Next.js, Bun and Deno.
#[test]
fn the_library_works_with_frameworks_and_other_runtimes() {
    script("test:frameworks");
}

#[test]
fn types_are_inferred_from_handlers() {
    script("types");
}

#[test]
fn the_reference_is_made_without_warnings() {
    script("docs");
}
