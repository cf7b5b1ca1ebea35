//! Transcripts of documents: the console blocks of a page are run in order, in one shell, against a real
//! server, and the output of each command is compared with the output that the page shows.
//!
//! | in the page | in the comparison |
//! |---|---|
//! | number of 13 digits (milliseconds since 1970), `2030-01-31`, `09:00:00`, `3s` | any other time or duration |
//! | number after `"token":` | any lease token; later commands that contain the number get the real token of the latest claim |
//! | `…` within a line | any text |
//! | line `…` | any number of lines |
//! | blanks between columns | any number of blanks |
//! | command that ends in `\` or within single quotes | continued on the next line |
//! | output that begins with `error:` | the command must fail; every other command must succeed |
//!
//! `localhost:7373` and `127.0.0.1:7373` stand for the address of the server. Ids are compared as shown:
//! they depend only on the commands before.

use crate::server::{PATIENCE, Server, windlass};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Command of a console block with the output shown below it.
pub struct Step {
    pub command: String,
    pub shown: Vec<String>,
}

/// Steps of all console blocks of a page.
pub fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match (inside, line, line.strip_prefix("$ ")) {
            (_, "```console", _) => inside = true,
            (_, "```", _) => inside = false,
            (true, _, Some(command)) => steps.push(Step { command: command.to_owned(), shown: Vec::new() }),
            (true, line, None) => {
                let step = steps.last_mut().unwrap();
                match step.shown.is_empty() && is_unfinished(&step.command) {
                    true => step.command = format!("{}\n{line}", step.command),
                    false => step.shown.push(line.to_owned()),
                }
            }
            (false, _, _) => {}
        }
    }
    steps
}

fn is_unfinished(command: &str) -> bool {
    command.ends_with('\\') || command.matches('\'').count() % 2 == 1
}

/// Code blocks of one language.
pub fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let opening = format!("```{language}\n");
    page.split(opening.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Runs all steps of a page and compares their output. Returns the number of steps.
pub fn run(server: &Server, page: &str) -> usize {
    let mut session = Session::start(server, &[]);
    let steps = steps(page);
    for step in &steps {
        session.step(step);
    }
    steps.len()
}

/// Shell of a reader, with the lease tokens of its commands so far.
pub struct Session<'a> {
    server: &'a Server,
    shell: Shell,
    tokens: BTreeMap<String, String>,
}

impl<'a> Session<'a> {
    /// Starts a shell with these variables in its environment.
    pub fn start(server: &'a Server, variables: &[(&str, String)]) -> Session<'a> {
        Session { server, shell: Shell::start(server, variables), tokens: BTreeMap::new() }
    }

    /// Runs a command and compares its output.
    pub fn step(&mut self, step: &Step) {
        let (said, code) = self.run(&step.command);
        if let Err(difference) = self.compare(step, &said, code) {
            panic!("{difference}");
        }
    }

    /// Runs a command that only reads, until its output is as shown.
    pub fn step_until_it_fits(&mut self, step: &Step) {
        let started = Instant::now();
        loop {
            let (said, code) = self.run(&step.command);
            match self.compare(step, &said, code) {
                Ok(()) => return,
                Err(difference) => assert!(started.elapsed() < PATIENCE, "{difference}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Output and exit code of a command, with the address of the server as a page shows it.
    fn run(&mut self, command: &str) -> (String, i32) {
        let mut real = command.to_owned();
        for (shown, token) in &self.tokens {
            real = real.replace(shown, token);
        }
        let address = self.server.http.to_string();
        let (said, code) = self.shell.run(&at_address(&real, &address));
        (said.replace(&address, "127.0.0.1:7373"), code)
    }

    fn compare(&mut self, Step { command, shown }: &Step, said: &str, code: i32) -> Result<(), String> {
        let said: Vec<&str> = said.trim_end().lines().collect();
        let expected: Vec<&str> = shown.iter().map(String::as_str).collect();
        let fails = expected.iter().any(|line| line.starts_with("error:"));
        if !lines_fit(&expected, &said) || (code != 0) != fails {
            let (expected, said) = (expected.join("\n"), said.join("\n"));
            return Err(format!("$ {command}\nshown:\n{expected}\n\nreal (exit code {code}):\n{said}"));
        }
        self.tokens.extend(tokens_of(&expected).into_iter().zip(tokens_of(&said)));
        Ok(())
    }
}

/// Text of a page with the address of a server in place of the default one.
pub fn at_address(text: &str, address: &str) -> String {
    text.replace("localhost:7373", address).replace("127.0.0.1:7373", address)
}

/// `PATH` with the folder of the program in front.
pub fn path_with_windlass() -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_windlass")).parent().unwrap();
    format!("{}:{}", programs.display(), std::env::var("PATH").unwrap())
}

/// Shell with the program in its path and the server in its environment.
struct Shell {
    child: Child,
    lines: Receiver<String>,
}

/// First character of the line that ends the output of a command; no output contains it.
const END: char = '\u{1e}';

impl Shell {
    fn start(server: &Server, variables: &[(&str, String)]) -> Shell {
        let mut bash = Command::new("bash");
        for (name, value) in windlass().get_envs() {
            match value {
                Some(value) => bash.env(name, value),
                None => bash.env_remove(name),
            };
        }
        bash.env("PATH", path_with_windlass());
        for (name, value) in variables {
            bash.env(name, value);
        }
        bash.args(["--noprofile", "--norc"])
            .env("WINDLASS_SERVER", server.url())
            .current_dir(server.folder());
        let mut child = bash.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let mut shell = Shell { child, lines };
        shell.run("exec 2>&1; set -o pipefail");
        shell
    }

    /// Output and exit code of a command.
    fn run(&mut self, command: &str) -> (String, i32) {
        let command = match command.starts_with("windlass push ") && !command.contains("--wait") {
            // On a terminal, as a reader has it: `push` prints only the id into a pipe.
            true => format!("script -qec {} /dev/null | tr -d '\\r'", quoted(command)),
            false => command.to_owned(),
        };
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{{ {command}\n}} </dev/null\nprintf '\\n{END}%s\\n' $?").unwrap();
        let mut said = String::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|error| panic!("{command}: {error} after\n{said}"));
            match line.strip_prefix(END) {
                Some(code) => return (said, code.parse().unwrap()),
                None => said = format!("{said}{line}\n"),
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Numbers after `"token":`.
fn tokens_of(lines: &[&str]) -> Vec<String> {
    let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
    lines.iter().flat_map(|line| line.split("\"token\":").skip(1).map(digits)).collect()
}

fn lines_fit(shown: &[&str], real: &[&str]) -> bool {
    match (shown, real) {
        ([], real) => real.is_empty(),
        (["…", rest @ ..], real) => (0..=real.len()).any(|skipped| lines_fit(rest, &real[skipped..])),
        ([_, ..], []) => false,
        ([shown, rest @ ..], [first, others @ ..]) => {
            line_fits(&plain(shown), &plain(first)) && lines_fit(rest, others)
        }
    }
}

/// True if the texts between the ellipses occur in this order, from the beginning to the end of the line.
fn line_fits(shown: &str, real: &str) -> bool {
    let Some((head, rest)) = shown.split_once('…') else { return shown == real };
    let Some(mut real) = real.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = rest.split('…').collect();
    let tail = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = real.find(part) else { return false };
        real = &real[at + part.len()..];
    }
    real.ends_with(tail)
}

/// Line without what differs from run to run.
fn plain(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let is_rule = words.last().is_some_and(|before| before.ends_with("every"));
        let inner = word.trim_matches(['(', ')', ',', ';']);
        words.push(match is_date(inner) || is_clock(inner) || (is_duration(inner) && !is_rule) {
            true => word.replace(inner, "TIME"),
            false => without_numbers(word),
        });
    }
    words.join(" ")
}

/// `850ms`, `3s`, `2h10m`.
fn is_duration(word: &str) -> bool {
    let mut rest = word;
    while !rest.is_empty() {
        let number = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let unit = ["ms", "s", "m", "h", "d"].into_iter().find_map(|unit| number.strip_prefix(unit));
        match unit {
            Some(after) if number.len() < rest.len() => rest = after,
            _ => return false,
        }
    }
    !word.is_empty()
}

fn is_date(word: &str) -> bool {
    word.len() == 10 && has_form(word, "dddd-dd-dd")
}

fn is_clock(word: &str) -> bool {
    word.len() == 8 && has_form(word, "dd:dd:dd")
}

fn has_form(word: &str, form: &str) -> bool {
    word.chars().zip(form.chars()).all(|(c, f)| if f == 'd' { c.is_ascii_digit() } else { c == f })
}

/// Replaces times in milliseconds and lease tokens.
fn without_numbers(word: &str) -> String {
    let mut plain = String::new();
    let mut rest = word;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        plain.push_str(before);
        plain.push_str(match plain.ends_with("\"token\":") {
            true => "TOKEN",
            false if end == 13 => "TIME",
            false => &from[..end],
        });
        rest = &from[end..];
    }
    plain + rest
}

#[test]
fn a_shown_line_stands_for_any_time_and_token_but_for_no_other_text() {
    let fits = |shown: &str, real: &str| lines_fit(&[shown], &[real]);
    assert!(fits(
        r#"{"id":2,"token":136373,"at":1794739702332}"#,
        r#"{"id":2,"token":7,"at":1894739702332}"#
    ));
    assert!(!fits(r#"{"id":2,"token":136373}"#, r#"{"id":3,"token":136373}"#));
    assert!(fits(" 1  ready  2s ago", "1 ready 1m05s ago"));
    assert!(!fits("1 ready 2s ago", "1 delayed 2s ago"));
    assert!(!fits("every 5m", "every 6m"));
    assert!(fits("(in 3s)", "(in 850ms)"));
    assert!(fits(r#"{"id":1,…,"state":"ready",…}"#, r#"{"id":1,"name":"x","state":"ready","tags":[]}"#));
    assert!(!fits(r#"{"id":1,…"state":"ready"…}"#, r#"{"id":1,"state":"failed"}"#));
    assert!(lines_fit(&["a", "…", "d"], &["a", "b", "c", "d"]));
    assert!(!lines_fit(&["a", "…", "d"], &["a", "b", "c"]));
}

#[test]
fn a_command_may_take_several_lines() {
    let page = "```console\n$ curl \\\n  -d '{\n}'\nhello\n$ ls\n```\n$ not a step\n";
    let found: Vec<(String, Vec<String>)> =
        steps(page).into_iter().map(|step| (step.command, step.shown)).collect();
    let expected =
        vec![("curl \\\n  -d '{\n}'".to_owned(), vec!["hello".to_owned()]), ("ls".to_owned(), Vec::new())];
    assert_eq!(found, expected);
}
