//! Pages that a reader follows from top to bottom: their programs are written to a folder and their commands
//! are run in it, in the order of the page.
//!
//! | in the page | in the test |
//! |---|---|
//! | block that begins with the name of a file: `# shop.py`, `// shop.ts` | the file is written; TypeScript is compiled with `strict` |
//! | block that begins with `# add to shop.py` | the rest is appended to the file |
//! | block that begins with `# before: …` | not run: the code of another system |
//! | console block | see [`crate::transcripts`] |
//! | command with the comment `# leave it running` | runs until the end of the page; the same command again stops the first one, as Ctrl-C does |
//! | command that only reads | repeated until its output is as shown |
//! | block of another language | `sh`, `text` and `toml`: not run; any other language is an error |

use crate::jq::python;
use crate::server::{Server, ended};
use crate::transcripts::{Session, at_address, path_with_windlass, steps};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Comment of a command that a reader leaves running.
const RUNNING: &str = "# leave it running";
/// Languages of programs.
const LANGUAGES: [&str; 3] = ["python", "ts", "ruby"];

/// Fenced block of a page.
struct Block {
    language: String,
    text: String,
}

impl Block {
    /// First line without its comment sign, if it is a comment.
    fn title(&self) -> Option<&str> {
        let first = self.text.lines().next()?;
        first.strip_prefix("# ").or(first.strip_prefix("// "))
    }

    fn after_title(&self) -> &str {
        self.text.split_once('\n').map_or("", |(_, rest)| rest)
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        match (line.strip_prefix("```"), is_inside) {
            (Some(language), false) => {
                found.push(Block { language: language.to_owned(), text: String::new() });
                is_inside = true;
            }
            (Some(""), true) => is_inside = false,
            (_, true) => found.last_mut().unwrap().text += &format!("{line}\n"),
            (None, false) => {}
        }
    }
    found
}

/// Number of files and commands of a page that were run.
#[derive(Debug, PartialEq)]
pub struct Walked {
    pub files: usize,
    pub commands: usize,
}

/// Follows a page. `replaced` are further texts of the page that stand for something else here.
pub fn walk(server: &Server, page: &str, replaced: &[(&str, String)]) -> Walked {
    let mut page = page.to_owned();
    for (shown, real) in replaced {
        page = page.replace(shown, real);
    }
    let desk = Desk::set_up(server, &page);
    let mut session = Session::start(server, &desk.variables());
    let mut running: BTreeMap<String, Running> = BTreeMap::new();
    let mut walked = Walked { files: 0, commands: 0 };
    for block in blocks(&page) {
        match block.language.as_str() {
            "console" => {
                for step in steps(&format!("```console\n{}```", block.text)) {
                    walked.commands += 1;
                    match step.command.split_once(RUNNING) {
                        Some((command, _)) => {
                            drop(running.remove(command));
                            running.insert(command.to_owned(), desk.start(command));
                        }
                        None if only_reads(&step.command) => session.step_until_it_fits(&step),
                        None => session.step(&step),
                    }
                }
            }
            "sh" | "text" | "toml" => {}
            language => {
                assert!(LANGUAGES.contains(&language), "no rule for a block of the language {language:?}");
                walked.files += usize::from(desk.write(&block));
            }
        }
    }
    walked
}

/// True if the command changes nothing, so that it can be repeated.
fn only_reads(command: &str) -> bool {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words[..] {
        ["windlass", "jobs" | "failures" | "queues" | "schedules"] | ["windlass", "job", _] => true,
        ["windlass", "jobs", ..] => !words.iter().any(|word| word.starts_with("--")),
        ["windlass", "schedules", "turns", _] => true,
        ["curl", "-s", _] => true,
        _ => false,
    }
}

/// Folder of the reader, with the libraries of the repository.
struct Desk<'a> {
    server: &'a Server,
    folder: PathBuf,
}

impl<'a> Desk<'a> {
    fn set_up(server: &'a Server, page: &str) -> Desk<'a> {
        let desk = Desk { server, folder: server.folder().to_owned() };
        let worker = format!("#!/bin/sh\nexec {} -m windlass._cli \"$@\"\n", python().display());
        program(&desk.folder.join("bin/windlass-worker"), &worker);
        program(
            &desk.folder.join("bin/python3"),
            &format!("#!/bin/sh\nexec {} \"$@\"\n", python().display()),
        );
        if page.contains("```ts\n") {
            let modules = desk.folder.join("node_modules");
            std::fs::create_dir(&modules).unwrap();
            symlink(typescript(), modules.join("windlass")).unwrap();
            symlink(typescript().join("node_modules/@types"), modules.join("@types")).unwrap();
            let worker =
                format!("#!/bin/sh\nexec node {} \"$@\"\n", typescript().join("dist/bin.js").display());
            program(&modules.join(".bin/windlass-worker"), &worker);
            std::fs::write(desk.folder.join("package.json"), r#"{"type":"module"}"#).unwrap();
        }
        desk
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let library = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/python/src");
        vec![
            ("PATH", format!("{}:{}", self.folder.join("bin").display(), path_with_windlass())),
            ("PYTHONPATH", library.to_owned()),
            ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
            ("WINDLASS_SERVER", self.server.url()),
        ]
    }

    /// Writes a file of the page; false if the block is the code of another system.
    fn write(&self, block: &Block) -> bool {
        let title = block.title().unwrap_or_else(|| panic!("a block names no file:\n{}", block.text));
        if title.starts_with("before: ") {
            return false;
        }
        let (name, is_added) = title.strip_prefix("add to ").map_or((title, false), |name| (name, true));
        let path = self.folder.join(name);
        let start = match is_added {
            true => std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}")),
            false => String::new(),
        };
        let rest = at_address(block.after_title(), &self.server.http.to_string());
        std::fs::write(&path, start + &rest).unwrap();
        if block.language == "ts" {
            compile(&path);
        }
        true
    }

    /// Starts a command in a process group of its own.
    fn start(&self, command: &str) -> Running {
        let log = std::fs::File::create(self.folder.join("running.log")).unwrap();
        let mut shell = Command::new("bash");
        shell.args(["-c", &at_address(&format!("exec {command}"), &self.server.http.to_string())]);
        shell.current_dir(&self.folder).envs(self.variables()).process_group(0);
        shell.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Running(shell.spawn().unwrap())
    }
}

/// Writes a program.
fn program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

fn typescript() -> PathBuf {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/typescript").canonicalize().unwrap();
    let built = folder.join("dist/index.js");
    assert!(built.exists(), "the library is not built: run `npm ci && npm run build` in clients/typescript");
    folder
}

#[track_caller]
fn compile(path: &Path) {
    let mut compiler = Command::new(typescript().join("node_modules/.bin/tsc"));
    compiler.args(["--strict", "--target", "es2022", "--module", "nodenext"]).arg(path);
    let output = compiler.current_dir(path.parent().unwrap()).output().unwrap();
    assert!(output.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stdout));
}

/// Command that is left running; stopped like by Ctrl-C when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.0);
        let _ = kill_process_group(group, Signal::INT);
        if std::thread::panicking() {
            let _ = kill_process_group(group, Signal::KILL);
        }
        ended(&mut self.0);
    }
}

#[test]
fn a_page_is_followed_in_its_order() {
    let server = Server::start(&["--store", "memory:"]);
    let page = "```python\n# a.py\nprint(1)\n```\n```console\n$ python3 a.py\n1\n```\n```python\n# add to a.py\nprint(2)\n```\n\
                ```ruby\n# before: Sidekiq\nnot Ruby\n```\n```console\n$ python3 a.py\n1\n2\n```\n";
    assert_eq!(walk(&server, page, &[]), Walked { files: 2, commands: 2 });
}

#[test]
fn only_commands_without_effects_are_repeated() {
    for command in
        ["windlass job 3", "windlass jobs state:failed", "windlass schedules turns 4", "windlass failures"]
    {
        assert!(only_reads(command), "{command}");
    }
    for command in [
        "windlass job 3 retry",
        "windlass jobs state:failed --retry --yes",
        "windlass push a",
        "curl -s -X POST x",
    ] {
        assert!(!only_reads(command), "{command}");
    }
}
