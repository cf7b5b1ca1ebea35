//! Selection of the jobs that a statement can concern, to avoid loading all jobs.
//!
//! SQLite evaluates the statement; this module only has to return a superset of the matching jobs. It
//! understands conditions on `jobID`, `name` and `state` that are joined by AND in the WHERE clause of a
//! statement on one table, and treats everything else as "any job".

use super::tokens::{Token, tokens};
use windlass_core::{NameMatch, StateName};

#[cfg(test)]
mod tests;

/// Conditions that a job must meet; `None`: no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Candidates {
    pub ids: Option<Vec<u64>>,
    pub names: Option<NameMatch>,
    pub states: Option<Vec<StateName>>,
}

impl Candidates {
    pub(super) fn of(sql: &str) -> Candidates {
        tokens(sql).and_then(|tokens| conditions(&tokens)).unwrap_or_default()
    }

    /// Keeps the first of two conditions on the same column: a superset is sufficient.
    fn and(&mut self, condition: Condition) {
        match condition {
            Condition::Ids(ids) => drop(self.ids.get_or_insert(ids)),
            Condition::Names(names) => drop(self.names.get_or_insert(names)),
            Condition::States(states) => drop(self.states.get_or_insert(states)),
        }
    }
}

enum Condition {
    Ids(Vec<u64>),
    Names(NameMatch),
    States(Vec<StateName>),
}

/// Keywords after which AND may not join conditions, or the table may not be the only one.
const TOO_MUCH: [&str; 9] =
    ["between", "case", "join", "with", "union", "intersect", "except", "exists", "or"];

fn conditions(tokens: &[Token]) -> Option<Candidates> {
    let selects = tokens.iter().filter(|token| token.is("select")).count();
    let is_select = tokens.first()?.is("select");
    if selects != usize::from(is_select) || tokens.iter().any(|t| TOO_MUCH.iter().any(|word| t.is(word))) {
        return None;
    }
    let table = tables(tokens)?;
    let start = at_depth_0(tokens, 0, |token| token.is("where"))? + 1;
    let ends = ["group", "order", "limit", "having", "window", "returning"];
    let is_end = |token: &Token| token.is_sign(";") || ends.iter().any(|word| token.is(word));
    let end = at_depth_0(tokens, start, is_end).unwrap_or(tokens.len());
    let mut found = Candidates::default();
    gather(&tokens[start..end], &table, &mut found);
    Some(found)
}

/// Names of the table in the statement; `None`: several tables, or another table.
fn tables(tokens: &[Token]) -> Option<Vec<String>> {
    let is_update = tokens.first()?.is("update");
    let intro = if is_update { 1 } else { at_depth_0(tokens, 0, |token| token.is("from"))? + 1 };
    let is_after = |token: &Token| {
        matches!(token, Token::Word(word)
            if ["where", "set", "group", "order", "limit", "having", "window", "returning"].contains(&word.as_str()))
            || token.is_sign(";")
    };
    let end = at_depth_0(tokens, intro, is_after).unwrap_or(tokens.len());
    let name = match &tokens[intro..end] {
        [Token::Word(table)] if table == "jobs" => None,
        [Token::Word(table), Token::Word(alias)] if table == "jobs" => Some(alias),
        [Token::Word(table), Token::Word(r#as), Token::Word(alias)] if table == "jobs" && r#as == "as" => {
            Some(alias)
        }
        _ => return None,
    };
    // UPDATE … SET … FROM another table.
    if is_update && tokens.iter().any(|token| token.is("from")) {
        return None;
    }
    Some(vec![name.map_or_else(|| "jobs".to_owned(), Clone::clone)])
}

fn at_depth_0(tokens: &[Token], from: usize, wanted: impl Fn(&Token) -> bool) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        if token.is_sign("(") {
            depth += 1;
        } else if token.is_sign(")") {
            depth = depth.checked_sub(1)?;
        } else if depth == 0 && wanted(token) {
            return Some(at);
        }
    }
    None
}

/// Splits at AND and collects the conditions it understands.
fn gather(mut clause: &[Token], table: &[String], found: &mut Candidates) {
    while !clause.is_empty() {
        let end = at_depth_0(clause, 0, |token| token.is("and")).unwrap_or(clause.len());
        let (piece, rest) = clause.split_at(end);
        if let Some(inner) = in_brackets(piece) {
            gather(inner, table, found);
        } else if let Some(condition) = read(piece, table) {
            found.and(condition);
        }
        clause = rest.get(1..).unwrap_or_default();
    }
}

/// Content of the brackets, if they enclose the whole piece.
fn in_brackets(piece: &[Token]) -> Option<&[Token]> {
    let [open, inner @ .., close] = piece else { return None };
    if !open.is_sign("(") || !close.is_sign(")") {
        return None;
    }
    let mut depth = 0_usize;
    for token in inner {
        if token.is_sign("(") {
            depth += 1;
        } else if token.is_sign(")") {
            depth = depth.checked_sub(1)?;
        }
    }
    (depth == 0).then_some(inner)
}

fn read(piece: &[Token], table: &[String]) -> Option<Condition> {
    let piece = match piece {
        [Token::Word(owner), dot, rest @ ..] if dot.is_sign(".") && table.contains(owner) => rest,
        piece => piece,
    };
    let (Token::Word(column), rest) = piece.split_first()? else { return None };
    let (operator, values) = rest.split_first()?;
    let is_equal = operator.is_sign("=") || operator.is_sign("==") || operator.is("is");
    match (column.as_str(), values) {
        ("name", [Token::Text(pattern)]) if operator.is("glob") => {
            Some(Condition::Names(NameMatch::glob(pattern)))
        }
        (column, [value]) if is_equal => one_of(column, std::slice::from_ref(value)),
        (column, list) if operator.is("in") => {
            let list = in_brackets(list)?;
            let values: Vec<Token> = list.iter().step_by(2).cloned().collect();
            let commas = list.iter().skip(1).step_by(2);
            let is_list = list.len() % 2 == 1 && commas.clone().all(|comma| comma.is_sign(","));
            if is_list { one_of(column, &values) } else { None }
        }
        _ => None,
    }
}

fn one_of(column: &str, values: &[Token]) -> Option<Condition> {
    let texts = || {
        values.iter().map(|value| match value {
            Token::Text(text) => Some(text.as_str()),
            _ => None,
        })
    };
    match column {
        "jobid" | "rowid" => {
            let id = |value: &Token| match value {
                // A text of digits is a number, as a bound parameter is.
                Token::Number(digits) | Token::Text(digits) => digits.parse().ok(),
                _ => None,
            };
            Some(Condition::Ids(values.iter().map(id).collect::<Option<_>>()?))
        }
        "name" => {
            let names: Vec<Box<str>> = texts().map(|text| text.map(Box::from)).collect::<Option<_>>()?;
            Some(Condition::Names(NameMatch::OneOf(names)))
        }
        "state" => {
            let mut states = Vec::new();
            for text in texts() {
                states.extend_from_slice(states_shown_as(text?)?);
            }
            Some(Condition::States(states))
        }
        _ => None,
    }
}

/// States that may be shown under this word. A superset is harmless.
fn states_shown_as(word: &str) -> Option<&'static [StateName]> {
    match word {
        "QUEUED" => Some(&[StateName::Ready, StateName::Terminating, StateName::Suspended]),
        "RUNNING" => Some(&[StateName::Running]),
        "RUNQUEUED" => Some(&[StateName::Running, StateName::Ready]),
        "PAUSED" => Some(&[StateName::Waiting, StateName::Suspended]),
        "FINISHED" => Some(&[StateName::Completed, StateName::Terminated]),
        "FAILED" => Some(&[StateName::Failed]),
        "CANCELLED" => Some(&[StateName::Cancelled, StateName::Terminated]),
        _ => None,
    }
}
