//! Interpreter program and shim per language.

use super::handler::Lang;
use super::settings::Interpreters;
use std::path::{Path, PathBuf};

/// Search path for interpreters: the system's folders, independent of the server's own PATH.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const NODE: &str = include_str!("shims/shim.js");
const PHP: &str = include_str!("shims/shim.php");
const PYTHON: &str = include_str!("shims/shim.py");
const SH: &str = include_str!("shims/shim.sh");

/// Installed interpreter with its arguments.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub lang: Lang,
    pub program: PathBuf,
    pub args: Vec<String>,
}

impl Launch {
    /// Finds the interpreter of a language. The error is for the handler's author and the operator.
    pub(super) fn find(lang: Lang, interpreters: &Interpreters) -> Result<Launch, String> {
        let (name, shim, flags): (&str, &str, &[&str]) = match lang {
            Lang::Node => (&interpreters.node, NODE, &["-e"]),
            // The opcode cache needs more shared memory than a context may create at once, and has nobody to
            // share it with.
            Lang::Php => (&interpreters.php, PHP, &["-d", "opcache.enable_cli=0", "-r"]),
            Lang::Python => (&interpreters.python, PYTHON, &["-c"]),
            Lang::Sh => (&interpreters.sh, SH, &["-c"]),
            Lang::Http | Lang::Wasi => {
                return Err(format!("{lang} handlers do not run in a process"));
            }
        };
        let program = find_program(name).ok_or_else(|| {
            format!(
                "{name}, which runs {lang} handlers, is not installed on the server (looked in {PATH}); \
                 install it there"
            )
        })?;
        let args = flags.iter().copied().chain([shim]).map(str::to_owned).collect();
        Ok(Launch { lang, program, args })
    }
}

fn find_program(name: &str) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    let candidates: Vec<PathBuf> = match name.contains('/') {
        true => vec![PathBuf::from(name)],
        false => PATH.split(':').map(|folder| Path::new(folder).join(name)).collect(),
    };
    candidates.into_iter().find(|path| is_program(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_name_or_path_or_clearly_missed() {
        let launch = Launch::find(Lang::Sh, &Interpreters::default()).unwrap();
        assert!(launch.program.is_absolute());
        let missing = Interpreters { sh: "no-such-shell".to_owned(), ..Interpreters::default() };
        let why = Launch::find(Lang::Sh, &missing).unwrap_err();
        assert!(why.contains("no-such-shell") && why.contains("not installed"), "{why}");
        // Existing paths that are not executable programs.
        assert_eq!(find_program("/etc/passwd"), None);
        assert_eq!(find_program("/usr"), None);
    }
}
