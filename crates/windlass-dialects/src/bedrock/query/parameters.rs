//! Bound parameters: headers `sql-param-NAME` give the values of `:NAME`, `@NAME`, `$NAME` and `?NUMBER`.
//!
//! The values are inserted into the statement as quoted strings. For SQLite this equals a bound text: it is
//! never parsed as SQL, and a comparison with a numeric column converts it to a number.

/// Size of a statement with its values: within SQLite's own limit, and a value may occur often.
const SQL_BYTES_MAX: usize = 16 << 20;

/// Replaces the parameters of a statement by their values. `value_of` receives names in lower case.
pub fn expand<'v>(sql: &str, value_of: impl Fn(&str) -> Option<&'v str>) -> Result<String, String> {
    let (mut out, mut rest, mut numbered) = (String::with_capacity(sql.len()), sql, 0_usize);
    while let Some(first) = rest.chars().next() {
        let (piece, after) = rest.split_at(length_of_piece(rest, first));
        rest = after;
        let Some(name) = parameter(piece, &mut numbered) else {
            out.push_str(piece);
            continue;
        };
        let value = value_of(&name.to_ascii_lowercase()).ok_or_else(|| {
            format!("the parameter {piece} has no value; send it in the header sql-param-{name}")
        })?;
        if value.contains('\0') || out.len() + value.len() > SQL_BYTES_MAX {
            return Err(format!("the value of {piece} is too long, or contains a NUL byte"));
        }
        out.push('\'');
        out.push_str(&value.replace('\'', "''"));
        out.push('\'');
    }
    Ok(out)
}

/// Length of the token at the start: a comment, a quoted string or name, a word, a parameter, or one
/// character.
fn length_of_piece(rest: &str, first: char) -> usize {
    let upto = |from: usize, end: &str| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    let word = |from: usize| rest[from..].find(|c| !is_word(c)).map_or(rest.len(), |at| from + at);
    match first {
        '-' if rest.starts_with("--") => upto(2, "\n"),
        '/' if rest.starts_with("/*") => upto(2, "*/"),
        // A doubled quote ends one string and begins the next, which gives the same result here.
        '\'' => upto(1, "'"),
        '"' => upto(1, "\""),
        '`' => upto(1, "`"),
        '[' => upto(1, "]"),
        ':' | '@' | '$' => word(1),
        '?' => rest[1..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |at| 1 + at),
        c if is_word(c) => word(0),
        c => c.len_utf8(),
    }
}

/// Name of a parameter, if the piece is one. A bare `?` has the number after the largest so far.
fn parameter(piece: &str, numbered: &mut usize) -> Option<String> {
    match piece.as_bytes() {
        [b'?', digits @ ..] => {
            let digits = std::str::from_utf8(digits).unwrap_or_default();
            let number = if digits.is_empty() { *numbered + 1 } else { digits.parse().ok()? };
            *numbered = number.max(*numbered);
            Some(number.to_string())
        }
        [b':' | b'@' | b'$', name @ ..] if !name.is_empty() => Some(piece[1..].to_owned()),
        _ => None,
    }
}

/// Characters of a name in SQLite, which may contain `$`.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sql: &str, expected: Result<&str, &str>) {
        let values = [("id", "7"), ("name", "it's; --"), ("1", "one"), ("2", "two")];
        let value_of = |name: &str| values.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
        let expanded = expand(sql, value_of);
        assert_eq!(expanded.as_deref().map_err(|_| "refused"), expected, "{sql}");
    }

    #[test]
    fn parameters_are_texts_wherever_they_stand() {
        check("SELECT 1;", Ok("SELECT 1;"));
        check("SELECT :id, @ID, $Id;", Ok("SELECT '7', '7', '7';"));
        check("WHERE name=:name AND x=1;", Ok("WHERE name='it''s; --' AND x=1;"));
        check("SELECT ?2, ?1, ?;", Err("refused"));
        check("SELECT ?, ?, ?1;", Ok("SELECT 'one', 'two', 'one';"));
        check("SELECT (:id);", Ok("SELECT ('7');"));
    }

    #[test]
    fn what_only_looks_like_one_is_left_alone() {
        for sql in [
            "SELECT ':id', 'it''s :id', \"a:id\", [:id], `:id`;",
            "SELECT 1 -- :id",
            "SELECT /* :id ? */ 1;",
            "SELECT data->>'$.id', a$id FROM jobs;",
            "SELECT 'ends nowhere :id",
            "SELECT : 1;",
            "SELECT é, '日本' ;",
        ] {
            check(sql, Ok(sql));
        }
    }

    #[test]
    fn one_without_a_value_or_with_too_long_a_one_is_refused() {
        check("SELECT :other;", Err("refused"));
        let long = "x".repeat(SQL_BYTES_MAX / 2);
        assert!(expand("SELECT :a;", |_| Some(&long)).is_ok());
        assert!(expand("SELECT :a, :a;", |_| Some(&long)).is_err());
        assert!(expand("SELECT :a;", |_| Some("a\0b")).is_err());
    }
}
