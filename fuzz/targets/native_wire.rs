//! The bodies of the native API, in JSON and MessagePack.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/windlass-dialects/src"]
#[allow(dead_code, unused_imports)]
mod dialects {
    pub mod codec;
    pub mod native {
        pub mod wire;
    }
}

use codec::Encoding;
use dialects::codec;
use dialects::native::wire;

fuzz_target!(|input: &[u8]| {
    let Some((&kind, body)) = input.split_first() else { return };
    let encoding = if kind & 1 == 0 { Encoding::Json } else { Encoding::Msgpack };
    let _ = wire::push(encoding, body);
    let _ = codec::read::<wire::ClaimAsk<'_>>(encoding, body);
    let _ = codec::read::<wire::SettleAsk<'_>>(encoding, body);
    let _ = codec::read::<wire::ExtendAsk<'_>>(encoding, body);
    let _ = codec::read::<wire::PatchAsk<'_>>(encoding, body);
    if let Ok(text) = std::str::from_utf8(body) {
        let _ = wire::When::parse(text);
    }
    if let Ok(length) = codec::msgpack_length(body) {
        assert!(length <= body.len(), "a value is no longer than the bytes it is in");
    }
});
