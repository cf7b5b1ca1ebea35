//! Whole sessions, byte for byte. In a transcript `>` begins a line that is sent and `<` a line that is
//! received, `<` alone is an empty line, `=` advances the clock by a number of seconds, and `#` begins a
//! comment. `{n}` stands for a number that differs between runs.

use super::*;

const SEED: &str = include_str!("../../../src/bedrock/transcripts/seed.txt");
const CURRENT: &str = include_str!("../../../src/bedrock/transcripts/current.txt");

#[tokio::test]
async fn the_sample_session_of_the_seed_profile() {
    replay(&Bedrock::seed().await, SEED).await;
}

#[tokio::test]
async fn a_session_of_the_current_profile() {
    replay(&Bedrock::current().await, CURRENT).await;
}

async fn replay(server: &Bedrock, transcript: &str) {
    let mut c = server.connect().await;
    let mut sent = String::new();
    let mut lines = transcript.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        match line.split_at_checked(1) {
            Some((">", rest)) => {
                sent.push_str(rest.strip_prefix(' ').unwrap_or(rest));
                sent.push_str("\r\n");
            }
            Some(("=", seconds)) => server.advance_s(seconds.trim().parse().unwrap()),
            Some(("<", _)) => {
                c.send(&std::mem::take(&mut sent)).await;
                let mut expected = vec![line];
                while let Some((_, next)) = lines.next_if(|(_, next)| next.starts_with('<')) {
                    expected.push(next);
                }
                let received = received(&mut c).await;
                let expected: Vec<&str> =
                    expected.iter().map(|line| line[1..].strip_prefix(' ').unwrap_or(&line[1..])).collect();
                compare(&expected, &received, number + 1);
            }
            _ => assert!(line.is_empty() || line.starts_with('#'), "line {}: {line}", number + 1),
        }
    }
    assert_eq!(sent, "", "the last request has a reply");
}

/// Reads one reply as lines.
async fn received(c: &mut Conn) -> Vec<String> {
    let head = c.until(b"\r\n\r\n").await.expect("a reply");
    let head = String::from_utf8(head).unwrap();
    let length: usize = head.trim_end().rsplit_once("Content-Length: ").unwrap().1.parse().unwrap();
    while c.buffer.len() < length {
        c.more().await.expect("the whole body");
    }
    let body = String::from_utf8(c.buffer.drain(..length).collect()).unwrap();
    let mut lines: Vec<String> =
        head.strip_suffix("\r\n").unwrap().split("\r\n").map(str::to_owned).collect();
    if !body.is_empty() {
        lines.extend(body.trim_end_matches('\n').split('\n').map(str::to_owned));
    }
    lines
}

fn compare(expected: &[&str], received: &[String], line: usize) {
    let fits = |pattern: &str, text: &str| match pattern.split_once("{n}") {
        None => pattern == text,
        Some((before, after)) => {
            let middle = text.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            middle
                .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        }
    };
    let same = expected.len() == received.len() && expected.iter().zip(received).all(|(a, b)| fits(a, b));
    assert!(same, "reply at line {line}:\n{}\nexpected:\n{}", received.join("\n"), expected.join("\n"));
}
