use super::*;
use crate::bedrock::query::format::{Cli, Typing};

fn row() -> Row {
    let mut row = [const { Value::Null }; COLUMNS.len()];
    row[1] = Value::Integer(0);
    row[2] = Value::Integer(i64::MIN);
    row[3] = Value::Real(-0.5);
    row[4] = Value::Text("é\n".to_owned());
    row[5] = Value::Blob(vec![0, 255]);
    row
}

fn read_back(reply: &Reply) -> io::Result<Reply> {
    let mut bytes = Vec::new();
    reply.write(&mut bytes)?;
    let head: [u8; 5] = bytes[..5].try_into().unwrap();
    assert_eq!(length_of(&head, usize::MAX)?, bytes.len() - 5);
    Reply::decode(head[4], bytes[5..].to_vec())
}

#[test]
fn what_one_side_writes_the_other_reads() {
    let mut rows = Vec::new();
    put_row(&row(), &mut rows).unwrap();
    put_row(&row(), &mut rows).unwrap();
    let run = |format| Order::Run(Run { sql: "SELECT '\u{1f600}';".to_owned(), format, left_ms: 7 });
    let orders = [
        Order::Begin(QueryLimits::default()),
        run(Format::Arrays(Typing::Plain)),
        run(Format::Cli(Cli::default())),
        Order::Rows(rows.clone()),
        Order::Go,
        Order::GiveUp,
    ];
    let mut pipe = Vec::new();
    for order in &orders {
        pipe.extend_from_slice(&order.encode().unwrap());
    }
    let mut from = pipe.as_slice();
    for order in orders {
        assert_eq!(Order::read(&mut from).unwrap(), Some(order));
    }
    assert_eq!(Order::read(&mut from).unwrap(), None);
    let read: Vec<Row> = super::rows(&rows).collect::<io::Result<_>>().unwrap();
    assert_eq!(read, [row(), row()]);
}

#[test]
fn every_reply_is_read_back() {
    let mut wants = Accesses::default();
    wants.reads_jobs = true;
    wants.columns = [1, 10].into();
    wants.updates = [7].into();
    let touched = vec![
        RowChange { id: 3, set: None },
        RowChange {
            id: i64::MAX,
            set: Some(vec![(7, Value::Text("{}".to_owned())), (8, Value::Integer(500))]),
        },
    ];
    for reply in [
        Reply::Ready(vec!["seccomp".to_owned()]),
        Reply::Wants(wants),
        Reply::Trouble(QueryError::Bad { message: "no such column".to_owned(), at: Some(9) }),
        Reply::Trouble(QueryError::TimedOut),
        Reply::Found(Found { body: b"[[1]]\n".to_vec(), touched }),
        Reply::Found(Found::default()),
    ] {
        assert_eq!(read_back(&reply).unwrap(), reply);
    }
}

#[test]
fn frames_that_are_too_long_cut_short_or_nonsense_are_errors() {
    let length = [255, 255, 255, 255, b'r'];
    assert!(Order::read(&mut length.as_slice()).is_err());
    assert!(Order::read(&mut [0, 0, 0, 0, b'?'].as_slice()).is_err());
    assert!(Order::read(&mut [9, 0, 0, 0, b'r', 1].as_slice()).is_err());
    assert!(length_of(&[1, 1, 0, 0, b'f'], 256).is_err());
    for body in [&[4, 0, 0, 0, 1][..], &[0, 0, 0, 0, 1], &[0, 0]] {
        assert!(Reply::decode(b'f', body.to_vec()).is_err(), "{body:?}");
    }
    let mut cut = Vec::new();
    put_row(&row(), &mut cut).unwrap();
    cut.pop();
    assert!(rows(&cut).next().unwrap().is_err());
    assert!(rows(&[77]).next().unwrap().is_err());
}
