//! The bodies of SideJob: every field is asked for as everything that it could be.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/windlass-dialects/src"]
#[allow(dead_code, unused_imports)]
mod dialects {
    pub mod codec;
    pub mod sidejob {
        pub mod wire;
    }
}

use dialects::codec;
use dialects::sidejob::wire::{self, Ask};
use windlass_core::Timestamp;
use windlass_core::ports::RawJson;

fn now() -> Timestamp {
    Timestamp::from_millis(1_763_200_000_000)
}

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    if let Some(id) = wire::job_id(&text) {
        assert_eq!(wire::job_id(&id.to_string()), Some(id));
    }
    if let Ok(ask) = Ask::read(input) {
        whole(&ask);
        for (key, written) in ask.fields() {
            field(&ask, key, written);
        }
    }
});

fn whole(ask: &Ask<'_>) {
    let _ = ask.token();
    if let Ok(wish) = ask.run_wish() {
        assert!(wish.when.is_none_or(|when| when.from(now()) >= now()), "nothing runs in the past");
    }
    let _ = ask.port_alone();
    if let Err(bad) = ask.only(&["data"], wire::OF_ANY_CALL) {
        assert!(bad.to_string().len() < 1_000, "what is said of a long name is short");
    }
    if let Ok(Some(values)) = ask.values() {
        values.iter().for_each(is_json);
    }
    let _ = ask.context();
}

fn field(ask: &Ask<'_>, key: &str, written: &str) {
    serde_json::from_str::<serde::de::IgnoredAny>(written).expect("a field's value is JSON");
    let _ = (ask.text(key), ask.flag(key), ask.number(key), ask.seconds(key), ask.job(key));
    if let Ok(Some(value)) = ask.value(key) {
        is_json(&value);
    }
    if let Ok(Some(values)) = ask.list(key) {
        values.iter().for_each(is_json);
    }
    if let Ok(Some(texts)) = ask.texts(key) {
        assert!(texts.len() <= wire::LIST_MAX);
    }
    for one in ask.objects(key).into_iter().flatten() {
        whole(&one);
    }
    if let Ok(Some(declared)) = ask.declared(key) {
        declared.values().flatten().for_each(is_json);
    }
    let _ = (ask.configured(key), ask.writes(key));
}

/// Values are handed on as they were written, so they must be something that others can read.
fn is_json(value: &RawJson) {
    serde_json::from_str::<serde::de::IgnoredAny>(value.as_str()).expect("JSON");
}
