//! Main loop of the process that runs statements: it receives its limits, confines itself, and runs one
//! statement after the other until its input ends. It holds pipes, and no store, token or file.

use super::message::{Found, Order, QueryLimits, Reply, Run, rows};
use super::sandbox::{QueryError, Sandbox};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::time::{Duration, Instant};

/// Capacity of a pipe.
const BUFFER_BYTES: usize = 64 * 1024;
/// OOM score: the kernel kills this process before others when memory is short, since it can be restarted.
const FIRST_TO_GO: &str = "1000";

/// Serves statements until the other end of the pipe closes. `confine` drops the privileges that statements
/// must not have, and returns the confinements in force.
pub fn serve(
    orders: impl Read,
    replies: impl Write,
    confine: impl FnOnce(QueryLimits) -> Vec<String>,
) -> io::Result<()> {
    let mut orders = BufReader::with_capacity(BUFFER_BYTES, orders);
    let mut replies = BufWriter::with_capacity(BUFFER_BYTES, replies);
    let limits = match Order::read(&mut orders)? {
        None => return Ok(()),
        Some(Order::Begin(limits)) => limits,
        Some(_) => return Err(out_of_turn("limits")),
    };
    // Not available everywhere, and optional.
    let _ = std::fs::write("/proc/self/oom_score_adj", FIRST_TO_GO);
    warm_up()?;
    Reply::Ready(confine(limits)).write(&mut replies)?;
    while let Some(order) = Order::read(&mut orders)? {
        let Order::Run(run) = order else { return Err(out_of_turn("a statement")) };
        if let Some(reply) = run_statement(&run, &mut orders, &mut replies)? {
            reply.write(&mut replies)?;
        }
    }
    Ok(())
}

/// Makes SQLite read its random seed and the time zone, which come from files, before the process is
/// confined.
fn warm_up() -> io::Result<()> {
    Sandbox::open(Instant::now() + Duration::from_secs(60))
        .and_then(|sandbox| sandbox.warm_up())
        .map_err(|trouble| io::Error::other(format!("SQLite: {trouble:?}")))
}

/// Runs one statement; `None`: the server abandoned it.
fn run_statement(run: &Run, orders: &mut impl Read, replies: &mut impl Write) -> io::Result<Option<Reply>> {
    let until = Instant::now() + Duration::from_millis(run.left_ms);
    let opened = Sandbox::open(until).and_then(|mut sandbox| {
        let wants = sandbox.look(&run.sql)?;
        Ok((sandbox, wants))
    });
    let (mut sandbox, wants) = match opened {
        Ok(opened) => opened,
        Err(trouble) => return Ok(Some(Reply::Trouble(trouble))),
    };
    Reply::Wants(wants.clone()).write(replies)?;
    let mut outcome = Ok(());
    loop {
        match Order::read(orders)? {
            Some(Order::Rows(bytes)) if outcome.is_ok() => outcome = fill(&mut sandbox, &bytes)?,
            // The error is reported after the last row, since the server does not read before.
            Some(Order::Rows(_)) => {}
            Some(Order::Go) => break,
            Some(Order::GiveUp) => return Ok(None),
            Some(_) => return Err(out_of_turn("rows")),
            None => return Ok(None),
        }
    }
    let found = outcome.and_then(|()| {
        let (table, touched) = sandbox.run(&run.sql, &wants)?;
        let body = if table.headers.is_empty() { Vec::new() } else { run.format.write(&table) };
        super::sandbox::check_answer(body.len())?;
        Ok(Found { body, touched })
    });
    Ok(Some(found.map_or_else(Reply::Trouble, Reply::Found)))
}

fn fill(sandbox: &mut Sandbox, bytes: &[u8]) -> io::Result<Result<(), QueryError>> {
    let rows = rows(bytes).collect::<io::Result<Vec<_>>>()?;
    Ok(sandbox.fill(rows.into_iter()))
}

fn out_of_turn(wanted: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected message; expected {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bedrock::query::format::{Format, Typing};

    fn run(sql: &str) -> Order {
        Order::Run(Run { sql: sql.to_owned(), format: Format::Arrays(Typing::Plain), left_ms: 60_000 })
    }

    fn answers(orders: &[Order]) -> Vec<String> {
        let mut pipe = Order::Begin(QueryLimits::default()).encode().unwrap();
        for order in orders {
            pipe.extend_from_slice(&order.encode().unwrap());
        }
        let mut replies = Vec::new();
        serve(pipe.as_slice(), &mut replies, |_| vec!["nothing".to_owned()]).unwrap();
        let mut rest = replies.as_slice();
        let mut told = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
            let reply = Reply::decode(rest[4], rest[5..5 + length].to_vec()).unwrap();
            told.push(match reply {
                Reply::Found(found) => String::from_utf8(found.body).unwrap(),
                Reply::Wants(wants) => format!("jobs: {}", wants.reads_jobs),
                Reply::Trouble(trouble) => format!("{trouble:?}"),
                Reply::Ready(confined) => confined.join(","),
            });
            rest = &rest[5 + length..];
        }
        told
    }

    #[test]
    fn statements_are_run_one_after_the_other_and_none_sees_the_rows_of_another() {
        let one = run("SELECT count(*) FROM jobs;");
        let mut rows = Vec::new();
        let mut row = [const { rusqlite::types::Value::Integer(1) }; 11];
        row[5] = rusqlite::types::Value::Null;
        crate::bedrock::query::message::put_row(&row, &mut rows).unwrap();
        let orders = [
            one.clone(),
            Order::Rows(rows.clone()),
            Order::Go,
            run("SELECT nonsense;"),
            one.clone(),
            Order::GiveUp,
            one,
            Order::Go,
            // A duplicate id is an error; the rows after it are skipped.
            run("SELECT jobID FROM jobs;"),
            Order::Rows(rows.clone()),
            Order::Rows(rows.clone()),
            Order::Rows(rows),
            Order::Go,
            run("SELECT 1+1;"),
            Order::Go,
        ];
        let told = answers(&orders);
        let (jobs, none) = ("jobs: true", "jobs: false");
        assert_eq!(told[..3], ["nothing", jobs, "[[1]]"]);
        assert!(told[3].contains("no such column: nonsense"), "{}", told[3]);
        assert_eq!(told[4..7], [jobs, jobs, "[[0]]"]);
        assert_eq!(told[7], jobs);
        assert!(told[8].starts_with("Constraint"), "{}", told[8]);
        assert_eq!(told[9..], [none, "[[2]]"]);
    }
}
