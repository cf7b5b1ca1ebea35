//! Client of beanstalkd's text protocol, pipelined: one write carries a whole batch of commands.

use super::super::client::{Client, Held, Shape, Target, blank_payload, parse_digits, read_stamp, stamp};
use super::super::wire::Wire;
use std::io;
use std::io::Write as _;
use std::time::Duration;

/// Time-to-run; long enough that no reservation expires during a run.
const TIME_TO_RUN_S: u32 = 600;
/// Pause before reading the replies to a pipeline. beanstalkd writes each reply separately; a client blocked
/// in read is woken by each of them, which costs the server more than the command itself, while a client that
/// reads after a pause gets many replies at once. Measured: up to 15 % more puts per second.
const PAUSE: Duration = Duration::from_micros(100);
/// Shortest pipeline with a pause; the replies to shorter ones arrive before the pause would end.
const PAUSE_FROM_REPLIES: usize = 50;

pub(crate) struct Beanstalkd {
    pub address: String,
    pub pid: Option<u32>,
}

impl Target for Beanstalkd {
    type Client = Beanstalk;

    async fn connect(&self, shape: &Shape) -> io::Result<Beanstalk> {
        Beanstalk::connect(&self.address, shape).await
    }

    fn pid(&self) -> Option<u32> {
        self.pid
    }
}

pub(crate) struct Beanstalk {
    wire: Wire,
    /// Put command with its body; repeated for a batch.
    put: Vec<u8>,
    payload_at: usize,
    /// Commands of the batch being built.
    out: Vec<u8>,
    /// Number of replies still expected.
    outstanding: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Inserted,
    Reserved { id: u64, bytes: usize },
    Deleted,
    NothingThere,
    Using,
}

impl Beanstalk {
    pub(crate) async fn connect(address: &str, shape: &Shape) -> io::Result<Beanstalk> {
        let (put, payload_at) = put_command(shape.payload_bytes);
        let mut client = Beanstalk {
            wire: Wire::connect(address).await?,
            put,
            payload_at,
            out: Vec::new(),
            outstanding: 3,
        };
        let tube = &shape.queue;
        client.wire.send(format!("use {tube}\r\nwatch {tube}\r\nignore default\r\n").as_bytes()).await?;
        for _ in 0..3 {
            client.expect(Reply::Using).await?;
        }
        Ok(client)
    }

    async fn reply(&mut self) -> io::Result<Reply> {
        if self.outstanding >= PAUSE_FROM_REPLIES && self.wire.unread().is_empty() {
            // Blocks the whole thread on purpose, so that no other task of this client wakes it either.
            std::thread::sleep(PAUSE);
        }
        self.outstanding = self.outstanding.saturating_sub(1);
        let line = self.wire.line().await?;
        let reply = parse_reply(&self.wire.unread()[..line])?;
        self.wire.consume(line);
        Ok(reply)
    }

    async fn expect(&mut self, expected: Reply) -> io::Result<()> {
        let reply = self.reply().await?;
        if reply == expected {
            Ok(())
        } else {
            Err(io::Error::other(format!("expected {expected:?}, got {reply:?}")))
        }
    }

    async fn send_out(&mut self, replies: usize) -> io::Result<()> {
        self.wire.send(&self.out).await?;
        self.out.clear();
        self.outstanding = replies;
        Ok(())
    }

    fn ask_to_delete(&mut self, held: &[Held]) {
        for job in held {
            // Writing into a Vec cannot fail.
            let _ = write!(self.out, "delete {}\r\n", job.id);
        }
    }

    fn ask_to_reserve(&mut self, limit: usize) {
        for _ in 0..limit {
            self.out.extend_from_slice(b"reserve-with-timeout 0\r\n");
        }
    }

    async fn read_deleted(&mut self, jobs: usize) -> io::Result<()> {
        for _ in 0..jobs {
            self.expect(Reply::Deleted).await?;
        }
        Ok(())
    }

    async fn read_reserved(&mut self, replies: usize, held: &mut Vec<Held>) -> io::Result<()> {
        for _ in 0..replies {
            match self.reply().await? {
                Reply::Reserved { id, bytes } => {
                    self.wire.fill_to(bytes + 2).await?;
                    let pushed_ns = read_stamp(self.wire.unread());
                    self.wire.consume(bytes + 2);
                    held.push(Held { id, token: 0, pushed_ns });
                }
                Reply::NothingThere => {}
                other => return Err(io::Error::other(format!("expected a reservation, got {other:?}"))),
            }
        }
        Ok(())
    }
}

impl Client for Beanstalk {
    async fn push(&mut self, jobs: usize, stamp_ns: u64) -> io::Result<()> {
        stamp(&mut self.put[self.payload_at..], stamp_ns);
        for _ in 0..jobs {
            self.out.extend_from_slice(&self.put);
        }
        self.send_out(jobs).await?;
        for _ in 0..jobs {
            self.expect(Reply::Inserted).await?;
        }
        Ok(())
    }

    async fn claim(&mut self, limit: usize, wait_ms: u64, held: &mut Vec<Held>) -> io::Result<()> {
        if wait_ms == 0 {
            self.ask_to_reserve(limit);
        } else {
            // The protocol counts in seconds. Only the first reservation waits; the others take available
            // jobs.
            let _ = write!(self.out, "reserve-with-timeout {}\r\n", wait_ms.div_ceil(1000));
            self.ask_to_reserve(limit - 1);
        }
        self.send_out(limit).await?;
        self.read_reserved(limit, held).await
    }

    async fn finish(&mut self, held: &[Held]) -> io::Result<()> {
        self.ask_to_delete(held);
        self.send_out(held.len()).await?;
        self.read_deleted(held.len()).await
    }

    async fn turn(&mut self, held: &mut Vec<Held>, limit: usize) -> io::Result<()> {
        self.ask_to_delete(held);
        self.ask_to_reserve(limit);
        self.send_out(held.len() + limit).await?;
        self.read_deleted(held.len()).await?;
        held.clear();
        self.read_reserved(limit, held).await
    }
}

fn put_command(payload_bytes: usize) -> (Vec<u8>, usize) {
    let payload = blank_payload(payload_bytes);
    let mut put = format!("put 0 0 {TIME_TO_RUN_S} {}\r\n", payload.len()).into_bytes();
    let payload_at = put.len();
    put.extend_from_slice(&payload);
    put.extend_from_slice(b"\r\n");
    (put, payload_at)
}

fn parse_reply(line: &[u8]) -> io::Result<Reply> {
    let unknown = || io::Error::other(format!("beanstalkd said {:?}", String::from_utf8_lossy(line)));
    let line = line.strip_suffix(b"\r\n").ok_or_else(unknown)?;
    let mut words = line.split(|byte| *byte == b' ');
    match words.next().unwrap_or_default() {
        b"INSERTED" => Ok(Reply::Inserted),
        b"DELETED" => Ok(Reply::Deleted),
        b"TIMED_OUT" | b"DEADLINE_SOON" => Ok(Reply::NothingThere),
        b"USING" | b"WATCHING" => Ok(Reply::Using),
        b"RESERVED" => {
            let mut number = || words.next().and_then(parse_digits).ok_or_else(unknown);
            Ok(Reply::Reserved { id: number()?, bytes: number()? as usize })
        }
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Reply) {
        assert_eq!(parse_reply(line.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn replies_are_read_by_their_first_word() {
        check("INSERTED 12\r\n", Reply::Inserted);
        check("RESERVED 7 100\r\n", Reply::Reserved { id: 7, bytes: 100 });
        check("DELETED\r\n", Reply::Deleted);
        check("TIMED_OUT\r\n", Reply::NothingThere);
        check("WATCHING 2\r\n", Reply::Using);
    }

    #[test]
    fn trouble_is_an_error_that_quotes_the_server() {
        for line in ["OUT_OF_MEMORY\r\n", "RESERVED 7\r\n", "INSERTED 12", "NOT_FOUND\r\n"] {
            let error = parse_reply(line.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(line.trim_end()), "{error}");
        }
    }

    #[test]
    fn a_put_carries_its_length_and_its_payload() {
        let (put, at) = put_command(24);
        assert!(put.starts_with(b"put 0 0 600 24\r\n"));
        assert_eq!((put.len(), &put[at..at + 4]), (at + 24 + 2, b"0000".as_slice()));
    }
}
