//! Failure as read from the end of standard error: class, message and backtrace.

/// Most characters of a message: a line for people. The rest is in the backtrace.
const MESSAGE_CHARS_MAX: usize = 1_000;

/// Failure as told by a command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Name of an exception, without its module.
    pub class: Option<String>,
    pub message: String,
    /// All of the text, if it says more than the message.
    pub backtrace: Option<String>,
}

impl Said {
    /// Class and message in a line.
    pub(super) fn words(&self) -> String {
        match &self.class {
            Some(class) if *class != self.message => format!("{class}: {}", self.message),
            _ => self.message.clone(),
        }
    }
}

/// Reads the text. The message is the last line that names an exception, as Python, Node and Java print it, or
/// the last line; `otherwise` if the text is empty.
pub(super) fn read(stderr: &str, otherwise: &str) -> Said {
    let lines = || stderr.lines().map(str::trim_end).filter(|line| !line.is_empty()).rev();
    let Some(last) = lines().next() else {
        return Said { message: otherwise.to_string(), ..Said::default() };
    };
    let (class, message) = match lines().find_map(exception) {
        Some((class, message)) => (Some(class.to_string()), message),
        None => (None, lines().find_map(|line| line.strip_prefix("panic: ")).unwrap_or(last).trim()),
    };
    let is_more = lines().count() > 1 || message.chars().nth(MESSAGE_CHARS_MAX).is_some();
    let message = message.chars().take(MESSAGE_CHARS_MAX).collect();
    Said { class, message, backtrace: is_more.then(|| stderr.trim_end().to_string()) }
}

/// Class and message of a line such as `smtplib.SMTPServerDisconnected: connection closed`.
fn exception(line: &str) -> Option<(&str, &str)> {
    let line = match line.strip_prefix("Exception in thread \"") {
        Some(rest) => rest.split_once("\" ")?.1,
        None => line.strip_prefix("Caused by: ").unwrap_or(line),
    };
    let (name, message) = line.split_once(": ").unwrap_or((line, ""));
    let class = name.rsplit(['.', ':', '\\']).next()?;
    let is_path = name.chars().all(|letter| letter.is_alphanumeric() || "_.:\\$".contains(letter));
    let is_class = class.starts_with(|letter: char| letter.is_uppercase())
        && class.contains(|letter: char| letter.is_lowercase());
    let is_error = ["Error", "Exception", "Interrupt", "Exit"].iter().any(|end| class.ends_with(end));
    let is_qualified = class.len() < name.len() && !message.is_empty();
    (is_path && is_class && (is_error || is_qualified))
        .then_some((class, if message.is_empty() { class } else { message.trim() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_found_where_languages_print_them() {
        let python = "Traceback (most recent call last):\n  File \"m.py\", line 1\nValueError: bad: 7\n";
        let module = "Traceback:\nsmtplib.SMTPServerDisconnected: Connection closed";
        let node =
            "/app/a.js:1\nfoo()\n^\n\nTypeError: foo is not a function\n    at a.js:1:1\n\nNode.js v20.1.0";
        let java = "Exception in thread \"main\" java.lang.IllegalStateException: no\n\tat A.main(A.java:3)";
        let caused = "java.io.IOException: outer\n\tat A.b(A.java:1)\nCaused by: java.net.ConnectException: refused\n\tat C";
        let go = "panic: nil map\n\ngoroutine 1 [running]:\nmain.main()\n\t/a.go:3\nexit status 2";
        for (stderr, class, message) in [
            (python, Some("ValueError"), "bad: 7"),
            (module, Some("SMTPServerDisconnected"), "Connection closed"),
            (node, Some("TypeError"), "foo is not a function"),
            (java, Some("IllegalStateException"), "no"),
            (caused, Some("ConnectException"), "refused"),
            ("KeyboardInterrupt\n", Some("KeyboardInterrupt"), "KeyboardInterrupt"),
            (go, None, "nil map"),
            ("first\nlast\n\n", None, "last"),
            ("  curl: (6) no host  ", None, "curl: (6) no host"),
            ("sh: 1: foo: not found", None, "sh: 1: foo: not found"),
            ("Warning: low\nError code: 3", None, "Error code: 3"),
            ("", None, "exit code 7"),
            (" \n", None, "exit code 7"),
        ] {
            let said = read(stderr, "exit code 7");
            assert_eq!((said.class.as_deref(), said.message.as_str()), (class, message), "{stderr}");
        }
        assert_eq!(read(python, "").words(), "ValueError: bad: 7");
        assert_eq!(read("KeyboardInterrupt", "").words(), "KeyboardInterrupt");
    }

    #[test]
    fn the_backtrace_is_all_that_was_said_beyond_the_message() {
        assert_eq!(read("no\n", "").backtrace, None);
        assert_eq!(read("ValueError: no\n", "").backtrace, None);
        assert_eq!(read("a\nno\n", "").backtrace.as_deref(), Some("a\nno"));
        let long = "x".repeat(2 * MESSAGE_CHARS_MAX);
        let said = read(&long, "");
        assert_eq!((said.message.len(), said.backtrace), (MESSAGE_CHARS_MAX, Some(long)));
    }
}
