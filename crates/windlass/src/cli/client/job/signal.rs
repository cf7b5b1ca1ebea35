//! `windlass job ID signal NAME [PAYLOAD]`: sends a signal to a job.

use crate::cli::client::payload::Payload;
use crate::client::{Client, escaped};
use crate::fault::{Fault, Outcome};
use crate::output;
use clap::Args;
use serde_json::value::RawValue;
use std::io::Read;

/// Bytes read from standard input: more than any server takes for a signal, so that its error says the limit.
const STDIN_BYTES_MAX: u64 = 16 << 20;

#[derive(Args, Clone, Debug)]
pub(super) struct SignalArgs {
    /// Name of the signal
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    name: String,
    /// Payload: JSON if it parses as JSON, otherwise text; - reads standard input
    payload: Option<String>,
    /// Take the payload as text, even if it looks like JSON
    #[arg(long, requires = "payload")]
    text: bool,
}

impl SignalArgs {
    pub(super) fn send(&self, client: &mut Client, path: &str, json: bool) -> Outcome {
        let payload = self.payload.as_deref().map(typed).transpose()?;
        let body = payload.map(|bytes| body(&bytes, self.text)).transpose()?;
        let path = format!("{path}/signal/{}", escaped(&self.name));
        let answer = client.call("POST", &path, body.as_deref().map(RawValue::get), 0)?.value()?;
        if json {
            return output::say_json(&answer);
        }
        let (id, name) = (output::plain(&answer["id"]), output::harmless(&self.name));
        output::say(match answer["woken"] == true {
            true => format!("job {id} runs again: it waited for signal {name}"),
            false => format!("job {id} does not wait for signal {name}, which is kept until it does"),
        })
    }
}

fn typed(payload: &str) -> Outcome<Vec<u8>> {
    if payload != "-" {
        return Ok(payload.as_bytes().to_vec());
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(STDIN_BYTES_MAX).read_to_end(&mut bytes)?;
    // Removes the newline that an editor or echo appends to text.
    if bytes.ends_with(b"\n") {
        bytes.pop();
    }
    Ok(bytes)
}

/// Body of the call: the payload in JSON.
fn body(bytes: &[u8], as_text: bool) -> Outcome<Box<RawValue>> {
    let payload = Payload::read(bytes, as_text).map_err(|broken| broken.fault("the payload"))?;
    let none = || Fault::usage("the payload of a signal must be JSON or text; it is not UTF-8");
    payload.into_json().ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_sent_as_json_and_broken_json_is_refused() {
        for (typed, as_text, sent) in [
            ("{\"b\":1,\"a\":[ ]}", false, "{\"b\":1,\"a\":[ ]}"),
            ("42", false, "42"),
            ("42", true, "\"42\""),
            ("yes, do", false, "\"yes, do\""),
            ("[draft", true, "\"[draft\""),
        ] {
            assert_eq!(body(typed.as_bytes(), as_text).expect(typed).get(), sent, "{typed}");
        }
        for broken in [&b"{\"by\":\"ann"[..], b"[1,]", b"\xff"] {
            assert!(matches!(body(broken, false), Err(Fault::Usage(_))), "{broken:?}");
        }
    }
}
