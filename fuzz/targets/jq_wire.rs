//! The bodies of JQ, in MessagePack and JSON.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/windlass-dialects/src"]
#[allow(dead_code, unused_imports)]
mod dialects {
    pub mod codec;
    pub mod jq {
        pub mod wire;
    }
}

use codec::{Encoding, Out};
use dialects::codec;
use dialects::jq::wire;
use windlass_core::{Format, Payload};

fuzz_target!(|input: &[u8]| {
    let Some((&kind, body)) = input.split_first() else { return };
    let encoding = if kind & 1 == 0 { Encoding::Json } else { Encoding::Msgpack };
    if let Ok(job) = wire::job(encoding, body) {
        match wire::as_msgpack(job.argument) {
            Ok(argument) => {
                assert_eq!(codec::msgpack_length(&argument), Ok(argument.len()), "one whole value")
            }
            // JSON knows numbers that MessagePack does not, such as 1e999.
            Err(_) => assert_eq!(encoding, Encoding::Json, "what was read can be handed on"),
        }
        assert!(job.timeout_s >= 1);
    }
    let _ = wire::worker(encoding, body);
    let _ = wire::done(encoding, body);
    // Whatever a worker sends as its result is shown to people in JSON that can be read.
    let mut out = Out::new(Encoding::Json, body.len());
    out.content(&Payload::new(Format::Msgpack, body));
    let shown = out.into_bytes();
    serde_json::from_slice::<serde::de::IgnoredAny>(&shown).expect("JSON");
});
