//! Client of the Bedrock dialect: text over TCP, one request at a time or pipelined.

use super::client::{Client, Held, Shape, Target, blank_payload, parse_digits, read_stamp, stamp};
use super::wire::Wire;
use std::io;
use std::io::Write as _;

pub(super) struct Bedrock {
    pub address: String,
    pub pid: Option<u32>,
}

impl Target for Bedrock {
    type Client = Worker;

    async fn connect(&self, shape: &Shape) -> io::Result<Worker> {
        let (create, payload_at) = create_request(shape);
        let wire = Wire::connect(&self.address).await?;
        Ok(Worker { wire, create, payload_at, pattern: shape.pattern.clone(), out: Vec::new() })
    }

    fn pid(&self) -> Option<u32> {
        self.pid
    }
}

pub(super) struct Worker {
    wire: Wire,
    /// CreateJob request; repeated for a batch.
    create: Vec<u8>,
    payload_at: usize,
    pattern: String,
    /// Requests of the batch being built.
    out: Vec<u8>,
}

/// JSON around the timestamp and the padding of a payload.
const BEFORE: &[u8] = b"{\"x\":\"";
const AFTER: &[u8] = b"\"}";

fn create_request(shape: &Shape) -> (Vec<u8>, usize) {
    let mut request = format!("CreateJob\r\nname: {}\r\ndata: ", shape.name).into_bytes();
    request.extend_from_slice(BEFORE);
    let payload_at = request.len();
    request.extend_from_slice(&blank_payload(shape.payload_bytes.saturating_sub(BEFORE.len() + AFTER.len())));
    request.extend_from_slice(AFTER);
    request.extend_from_slice(b"\r\nContent-Length: 0\r\n\r\n");
    (request, payload_at)
}

/// Response: status and body.
struct Reply {
    is_ok: bool,
    status: String,
    body: Vec<u8>,
}

impl Worker {
    async fn send_out(&mut self) -> io::Result<()> {
        let sent = self.wire.send(&self.out).await;
        self.out.clear();
        sent
    }

    async fn reply(&mut self) -> io::Result<Reply> {
        let line = self.wire.line().await?;
        let status = String::from_utf8_lossy(&self.wire.unread()[..line]).trim_end().to_owned();
        self.wire.consume(line);
        let mut body_bytes = 0;
        loop {
            let line = self.wire.line().await?;
            let header = &self.wire.unread()[..line];
            let is_last = header == b"\r\n";
            if let Some(length) = header.strip_prefix(b"Content-Length: ") {
                let bad = || io::Error::other("a length that is no number");
                body_bytes = parse_digits(length.trim_ascii()).ok_or_else(bad)? as usize;
            }
            self.wire.consume(line);
            if is_last {
                break;
            }
        }
        self.wire.fill_to(body_bytes).await?;
        let body = self.wire.unread()[..body_bytes].to_vec();
        self.wire.consume(body_bytes);
        Ok(Reply { is_ok: status.starts_with("200"), status, body })
    }

    async fn expect_ok(&mut self, replies: usize) -> io::Result<()> {
        for _ in 0..replies {
            let reply = self.reply().await?;
            if !reply.is_ok {
                return Err(io::Error::other(format!("the server said {}", reply.status)));
            }
        }
        Ok(())
    }

    /// Sends a request that changes nothing, to measure the cost of a round trip.
    pub(super) async fn ping(&mut self) -> io::Result<()> {
        self.out.extend_from_slice(b"Ping\r\n\r\n");
        self.send_out().await?;
        self.expect_ok(1).await
    }

    fn ask_for(&mut self, limit: usize, wait_ms: u64) {
        for _ in 0..limit {
            // Writing into a Vec cannot fail.
            let _ = write!(self.out, "GetJob\r\nname: {}\r\n", self.pattern);
            if wait_ms > 0 {
                let _ = write!(self.out, "Connection: wait\r\ntimeout: {wait_ms}\r\n");
            }
            self.out.extend_from_slice(b"Content-Length: 0\r\n\r\n");
        }
    }

    async fn read_jobs(&mut self, asked: usize, held: &mut Vec<Held>) -> io::Result<()> {
        for _ in 0..asked {
            let reply = self.reply().await?;
            if reply.is_ok {
                held.push(read_job(&reply.body)?);
            } else if !reply.status.starts_with("404") {
                return Err(io::Error::other(format!("the server said {}", reply.status)));
            }
        }
        Ok(())
    }

    fn report_finished(&mut self, held: &[Held]) {
        for job in held {
            let _ = write!(self.out, "FinishJob\r\njobID: {}\r\nContent-Length: 0\r\n\r\n", job.id);
        }
    }
}

impl Client for Worker {
    async fn push(&mut self, jobs: usize, stamp_ns: u64) -> io::Result<()> {
        for number in 0..jobs {
            let at = self.out.len() + self.payload_at;
            self.out.extend_from_slice(&self.create);
            if number == 0 {
                stamp(&mut self.out[at..], stamp_ns);
            }
        }
        self.send_out().await?;
        self.expect_ok(jobs).await
    }

    async fn claim(&mut self, limit: usize, wait_ms: u64, held: &mut Vec<Held>) -> io::Result<()> {
        self.ask_for(limit, wait_ms);
        self.send_out().await?;
        self.read_jobs(limit, held).await
    }

    async fn finish(&mut self, held: &[Held]) -> io::Result<()> {
        self.report_finished(held);
        self.send_out().await?;
        self.expect_ok(held.len()).await
    }

    /// Pipelines the finish requests and the next claims in one write.
    async fn turn(&mut self, held: &mut Vec<Held>, limit: usize) -> io::Result<()> {
        self.report_finished(held);
        self.ask_for(limit, 0);
        self.send_out().await?;
        self.expect_ok(held.len()).await?;
        held.clear();
        self.read_jobs(limit, held).await
    }
}

/// Finds the id and the timestamp by their keys: parsing all JSON would add to the client's cost.
fn read_job(body: &[u8]) -> io::Result<Held> {
    let after = |mark: &[u8]| {
        let at = body.windows(mark.len()).position(|window| window == mark)?;
        Some(&body[at + mark.len()..])
    };
    let digits = after(b"\"jobID\":").map(|rest| {
        let end = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        &rest[..end]
    });
    let id = digits.and_then(parse_digits).ok_or_else(|| io::Error::other("a job without an id"))?;
    Ok(Held { id, token: 0, pushed_ns: after(BEFORE).map_or(0, read_stamp) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_by_its_id_and_its_stamp() {
        let body = br#"{"created":"2026-01-01 00:00:00","data":{"x":"00000000000000000042xxx"},"jobID":17,"name":"a"}"#;
        assert_eq!(read_job(body).unwrap(), Held { id: 17, token: 0, pushed_ns: 42 });
        assert!(read_job(b"{}").is_err());
    }

    #[test]
    fn a_request_carries_a_payload_of_the_length_asked_for() {
        let (request, at) = create_request(&Shape::new("q", 100));
        let data = request.split(|byte| *byte == b'\n').find(|line| line.starts_with(b"data: ")).unwrap();
        assert_eq!(data.trim_ascii_end().len() - b"data: ".len(), 100);
        assert_eq!(read_stamp(&request[at..]), 0);
    }
}
