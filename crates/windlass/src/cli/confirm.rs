//! Question before an action that is hard to take back.

use crate::fault::{Fault, Outcome};
use std::io::{BufRead, IsTerminal, Write};

/// Asks on a terminal. Without one nobody can answer, and the action needs `--yes`. An answer other than yes is
/// an error, so that a script does not go on.
pub(super) fn confirm(question: &str, yes: bool) -> Outcome {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Fault::failed(format!("{question} Confirm with --yes; nothing was changed")));
    }
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match is_yes(&answer) {
        true => Ok(()),
        false => Err(Fault::failed("nothing was changed")),
    }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::is_yes;

    #[test]
    fn only_a_yes_is_a_yes() {
        for (answer, yes) in [("y\n", true), ("YES\r\n", true), ("\n", false), ("", false), ("yep\n", false)]
        {
            assert_eq!(is_yes(answer), yes, "{answer:?}");
        }
    }
}
