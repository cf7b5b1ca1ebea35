//! The bodies of queuey-queue.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/windlass-dialects/src/queuey"]
#[allow(dead_code)]
mod queuey {
    pub mod ids;
    pub mod wire;
}

use queuey::ids::Uuid;
use queuey::wire;

fuzz_target!(|input: &[u8]| {
    if let Ok(create) = wire::create(input) {
        let addresses = [Some(&create.binary_addr), create.input_addr.as_ref()];
        assert!(addresses.into_iter().flatten().all(|one| (1..=wire::ADDR_BYTES_MAX).contains(&one.len())));
        let written = serde_json::to_vec(&create).expect("JSON");
        assert_eq!(wire::create(&written), Ok(create), "what is written is read again as it was");
    }
    if let Ok(claim) = wire::claim(input) {
        assert_eq!(Uuid::parse(&claim.runner.to_string()), Some(claim.runner));
    }
    // A body that need not be JSON is refused only for what it says.
    let strict = wire::tickle(input, true);
    match wire::tickle(input, false) {
        Ok(tickle) => assert!(strict.is_err() || strict == Ok(tickle)),
        Err(bad) => assert_eq!(strict, Err(bad)),
    }
    let _ = wire::complete(input);
    let text = String::from_utf8_lossy(input);
    let _ = wire::is_json(&text);
    if let Some(uuid) = Uuid::parse(&text) {
        assert_eq!(Uuid::parse(&uuid.to_string()), Some(uuid));
        if let Some(number) = uuid.number() {
            assert_eq!(Uuid::of_number(number), uuid);
        }
    }
});
