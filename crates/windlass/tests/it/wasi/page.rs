//! The page about runners is true: its module is compiled and its transcripts are run.

use super::samples;
use crate::server::Server;
use std::path::Path;
use std::process::Command;

const PAGE: &str = include_str!("../../../../../docs/runners.md");

fn blocks(kind: &str) -> Vec<&'static str> {
    let opening = format!("```{kind}\n");
    PAGE.split(opening.as_str()).skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

#[test]
fn the_walkthrough_happens_as_shown() {
    let server = Server::start(&["--set", "wasi.workers=2"]);
    let text = blocks("wat").pop().unwrap();
    std::fs::write(server.folder().join("upper.wasm"), samples::compile(text)).unwrap();
    let mut script = String::new();
    let mut shown = String::new();
    for line in blocks("console").iter().flat_map(|block| block.lines()) {
        match line.strip_prefix("$ ") {
            Some(command) => script += &format!("{command}\n"),
            None => shown += &format!("{line}\n"),
        }
    }
    let programs = Path::new(env!("CARGO_BIN_EXE_windlass")).parent().unwrap();
    let output = Command::new("bash")
        .args(["-c", &script.replace("localhost:7373", &server.http.to_string())])
        .env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()))
        .env("WINDLASS_SERVER", server.url())
        .current_dir(server.folder())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, shown, "{}\n{}", String::from_utf8_lossy(&output.stderr), server.log());
}
