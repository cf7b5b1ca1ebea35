//! The README is true: its transcripts are run, in order, against a real server.

use crate::server::Server;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Commands of the console blocks, each with the output shown below it.
fn transcript(page: &str) -> Vec<(&str, Vec<&str>)> {
    let mut steps: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match (inside, line, line.strip_prefix("$ ")) {
            (_, "```console", _) => inside = true,
            (_, "```", _) => inside = false,
            (true, _, Some(command)) => steps.push((command, Vec::new())),
            (true, answer, None) => steps.last_mut().unwrap().1.push(answer),
            (false, _, _) => {}
        }
    }
    steps
}

fn run(server: &Server, command: &str) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_windlass")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let command = command.replace("localhost:7373", &server.http.to_string());
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("{command} 2>&1")]).env("PATH", path).env("WINDLASS_SERVER", server.url());
    let output = shell.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{command}\n{text}");
    text
}

#[test]
fn the_transcripts_of_the_first_page_happen_as_shown() {
    let server = Server::start(&[]);
    let mut token: Option<(String, String)> = None;
    for (command, shown) in transcript(include_str!("../../../../README.md")) {
        let command = match &token {
            Some((shown, real)) => command.replace(shown, real),
            None => command.to_string(),
        };
        let answer = run(&server, &command);
        if command.contains("/claim") {
            let token_of =
                |text: &str| serde_json::from_str::<Value>(text).unwrap()["jobs"][0]["token"].to_string();
            token = Some((token_of(shown[0]), token_of(&answer)));
        } else if command.contains("curl") || command.contains("result") {
            assert_eq!(answer.trim_end(), shown.join("\n"), "{command}");
        } else if command.contains(" work ") {
            assert_eq!(answer.replace(&server.url(), "http://127.0.0.1:7373").trim_end(), shown.join("\n"));
        }
    }
    assert_eq!((server.state_of(1), server.state_of(2)), ("completed".to_string(), "completed".to_string()));
}
