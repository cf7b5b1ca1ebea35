//! The bodies of the native API, in JSON and MessagePack.

#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_dialects::codec::{self, Encoding};
use windlass_dialects::native::calls::read_as_every_body;

fuzz_target!(|input: &[u8]| {
    let Some((&kind, body)) = input.split_first() else { return };
    let encoding = if kind & 1 == 0 { Encoding::Json } else { Encoding::Msgpack };
    read_as_every_body(encoding, body);
    if let Ok(length) = codec::msgpack_length(body) {
        assert!(length <= body.len(), "a value is no longer than the bytes it is in");
    }
});
