#!/usr/bin/env bash
# Packs the library, and runs a program with the packed library in a folder of its own.
set -euo pipefail
cd "$(dirname "$0")/../../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Packages of earlier versions would be unpacked too.
rm -f "$target"/package/windlass-client-*.crate
cargo package --quiet -p windlass-client --locked --allow-dirty --no-verify
tar -xzf "$target"/package/windlass-client-*.crate -C "$folder"
library=$(echo "$folder"/windlass-client-*)
for file in README.md LICENSE-MIT LICENSE-APACHE src/lib.rs; do
    [ -f "$library/$file" ] || { echo "the package has no $file" >&2; exit 1; }
done
mkdir -p "$folder/program/src"
# The versions that the library is tested with.
cp Cargo.lock "$folder/program/"
cat >"$folder/program/Cargo.toml" <<PROGRAM
[package]
name = "program"
version = "0.0.0"
edition = "2024"

[dependencies]
windlass-client = { path = "$library" }
tokio = { version = "1", features = ["macros", "rt"] }

[workspace]
PROGRAM
cat >"$folder/program/src/main.rs" <<'PROGRAM'
use windlass_client::{Context, Error, Windlass};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let app = Windlass::from_env()?;
    let test = app.testing();
    let greet = |name: String, _: Context| async move { Ok::<_, Error>(format!("hello {name}")) };
    let job = app.task("greet", greet).register().push(&"ann".to_owned()).await?;
    test.run().await;
    println!("{}", job.wait().await?);
    Ok(())
}
PROGRAM
# Its own folder for build output, kept for the next time.
said=$(CARGO_TARGET_DIR="$target/package-try" cargo run --quiet --manifest-path "$folder/program/Cargo.toml")
[ "$said" = "hello ann" ] || { echo "the program said: $said" >&2; exit 1; }
echo "the packed library works"
