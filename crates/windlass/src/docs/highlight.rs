//! Colours of code: comments, strings and keywords of the languages in the documents, and the commands of
//! consoles.

use super::render::escape;

/// Lexical rules of a language.
struct Rules {
    comment: &'static str,
    quotes: &'static [char],
    keywords: &'static [&'static str],
}

const SHELL: Rules = Rules { comment: "#", quotes: &['"', '\''], keywords: &[] };
const PYTHON: Rules = Rules {
    comment: "#",
    quotes: &['"', '\''],
    keywords: &[
        "and", "as", "async", "await", "class", "def", "elif", "else", "except", "False", "finally", "for",
        "from", "if", "import", "in", "is", "lambda", "None", "not", "or", "raise", "return", "True", "try",
        "while", "with", "yield",
    ],
};
const SCRIPT: Rules = Rules {
    comment: "//",
    quotes: &['"', '\'', '`'],
    keywords: &[
        "async",
        "await",
        "class",
        "const",
        "else",
        "export",
        "false",
        "for",
        "from",
        "function",
        "if",
        "import",
        "let",
        "new",
        "null",
        "of",
        "return",
        "throw",
        "true",
        "try",
        "type",
        "undefined",
        "while",
    ],
};
const RUST: Rules = Rules {
    comment: "//",
    quotes: &['"'],
    keywords: &[
        "as", "async", "await", "const", "else", "enum", "Err", "false", "fn", "for", "if", "impl", "let",
        "match", "mod", "move", "mut", "None", "Ok", "pub", "return", "Some", "struct", "true", "type",
        "use", "while",
    ],
};
const TOML: Rules = Rules { comment: "#", quotes: &['"', '\''], keywords: &["true", "false"] };
const JSON: Rules = Rules { comment: "//", quotes: &['"'], keywords: &["true", "false", "null"] };
const SQL: Rules = Rules {
    comment: "--",
    quotes: &['\''],
    keywords: &[
        "AND", "BEGIN", "COMMIT", "CREATE", "FROM", "GRANT", "INSERT", "INTO", "NULL", "ON", "SELECT", "SET",
        "TO", "UPDATE", "VALUES", "WHERE",
    ],
};

fn rules(language: &str) -> Option<Rules> {
    Some(match language {
        "sh" | "bash" => SHELL,
        "python" | "py" => PYTHON,
        "js" | "ts" | "javascript" | "typescript" => SCRIPT,
        "rust" => RUST,
        "toml" => TOML,
        "json" => JSON,
        "sql" => SQL,
        _ => return None,
    })
}

/// Block of code as HTML.
pub(super) fn block(language: &str, code: &str) -> String {
    let inner = match language {
        "console" => console(code),
        "rust" => paint(&without_hidden_lines(code), &RUST),
        _ => rules(language).map_or_else(|| escape(code), |rules| paint(code, &rules)),
    };
    let class = match language {
        "" => String::new(),
        language => format!(" class=\"language-{}\"", escape(language)),
    };
    format!("<div class=\"code\"><pre><code{class}>{inner}</code></pre></div>\n")
}

/// Removes the lines that rustdoc does not show.
fn without_hidden_lines(code: &str) -> String {
    let is_shown = |line: &&str| *line != "#" && !line.starts_with("# ");
    code.lines().filter(is_shown).map(|line| format!("{line}\n")).collect()
}

/// Session: commands after `$ `, also over several lines, and their output. A command that stays open ends with the
/// next one, or with the block.
fn console(code: &str) -> String {
    let mut html = String::new();
    let mut command: Option<String> = None;
    for line in code.lines() {
        match (line.strip_prefix("$ "), &mut command) {
            (None, Some(open)) => {
                open.push('\n');
                open.push_str(line);
            }
            (Some(first), before) => {
                html.extend(before.take().map(|open| prompt(&open)));
                command = Some(first.to_owned());
            }
            (None, None) => html.push_str(&format!("<span class=\"o\">{}</span>\n", escape(line))),
        }
        let is_whole = |text: &String| !text.ends_with('\\') && text.matches('\'').count().is_multiple_of(2);
        html.extend(command.take_if(|text| is_whole(text)).map(|whole| prompt(&whole)));
    }
    html.extend(command.map(|open| prompt(&open)));
    html
}

/// Command after its prompt.
fn prompt(command: &str) -> String {
    format!("<span class=\"p\">$ </span><span class=\"cmd\">{}</span>\n", paint(command, &SHELL))
}

fn paint(code: &str, rules: &Rules) -> String {
    let mut html = String::with_capacity(code.len() * 2);
    let mut at = 0;
    while let Some(c) = code[at..].chars().next() {
        let (class, length) = token(code, at, c, rules);
        let text = escape(&code[at..at + length]);
        match class {
            "" => html.push_str(&text),
            class => html.push_str(&format!("<span class=\"{class}\">{text}</span>")),
        }
        at += length;
    }
    html
}

/// Class and length of the token at this position, which begins with `c`.
fn token(code: &str, at: usize, c: char, rules: &Rules) -> (&'static str, usize) {
    let rest = &code[at..];
    let begins_word = code[..at].chars().next_back().is_none_or(char::is_whitespace);
    if rest.starts_with(rules.comment) && begins_word {
        return ("c", rest.find('\n').unwrap_or(rest.len()));
    }
    if rules.quotes.contains(&c) {
        return string_length(rest, c).map_or(("", c.len_utf8()), |length| ("s", length));
    }
    if c.is_alphanumeric() || c == '_' {
        let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let is_keyword = rules.keywords.contains(&&rest[..length]);
        return (if is_keyword { "k" } else { "" }, length);
    }
    ("", c.len_utf8())
}

/// Length of the string at the beginning of the text; `None` if it has no end.
fn string_length(text: &str, quote: char) -> Option<usize> {
    let triple = quote.to_string().repeat(3);
    if text.starts_with(&triple) {
        return text[3..].find(&triple).map(|end| end + 6);
    }
    let mut is_escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return Some(index + c.len_utf8()),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text of a session as a reader sees it.
    fn text(code: &str) -> String {
        let html = console(code);
        html.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect()
    }

    #[test]
    fn a_command_that_stays_open_is_not_lost() {
        for code in [
            "$ echo it's\nits output\n",
            "$ echo it's\nits output\n$ echo two\ntwo\n",
            "$ echo \\\n",
            "$ echo 'a\nb'\na\nb\n",
        ] {
            assert_eq!(text(code), code);
        }
    }
}
