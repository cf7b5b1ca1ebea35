//! WASI handlers.

use crate::rig::{Rig, briefs, handler, helper, log, new_jobs, outcomes};
use async_trait::async_trait;
use std::sync::Arc;
use windlass_http::Allowed;
use windlass_runners::handlers::{
    BlobError, Handler, HandlerOptions, HelperProgram, Isolation, Lang, Settings, World,
};

/// Module that copies standard input to standard output, prints `hm` on standard error, and exits with the
/// first byte minus `0`, times ten.
const COPY: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (data (i32.const 16) "\40\00\00\00\03\00\00\00")
    (data (i32.const 64) "hm\0a")
    (func (export "_start")
        (i32.store (i32.const 0) (i32.const 1024))
        (i32.store (i32.const 4) (i32.const 4096))
        (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
        (i32.store (i32.const 4) (i32.load (i32.const 8)))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
        (drop (call $write (i32.const 2) (i32.const 16) (i32.const 1) (i32.const 8)))
        (if (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 33)) (then unreachable))
        (if (i32.and (i32.ge_u (i32.load8_u (i32.const 1024)) (i32.const 48))
                     (i32.le_u (i32.load8_u (i32.const 1024)) (i32.const 57)))
            (then (call $exit (i32.mul (i32.const 10)
                (i32.sub (i32.load8_u (i32.const 1024)) (i32.const 48))))))))"#;

/// World with one module, for one client only.
struct Modules;

#[async_trait]
impl World for Modules {
    fn addresses(&self) -> Arc<Allowed> {
        Arc::new(Allowed::parse([]).unwrap())
    }

    fn tls(&self) -> Result<Arc<rustls::ClientConfig>, String> {
        Err("nobody is trusted here".to_owned())
    }

    async fn blob(&self, client: &str, address: &str) -> Result<Vec<u8>, BlobError> {
        match (client, address) {
            ("acme", "copy") => Ok(wat::parse_str(COPY).unwrap()),
            _ => Err(BlobError::Missing(format!("{client} has no blob {address}"))),
        }
    }
}

fn rig() -> Rig {
    rig_with(|_| {})
}

fn rig_with(change: impl FnOnce(&mut Settings)) -> Rig {
    Rig::in_world(Arc::new(Modules), |settings| {
        change(settings);
        settings.wasi_guest = Some(HelperProgram { path: helper(), args: vec!["wasi-guest".to_owned()] });
    })
}

#[tokio::test]
async fn a_module_reads_its_line_and_its_output_is_the_result() {
    let rig = rig();
    let told =
        rig.run(&handler(Lang::Wasi, "copy"), &["hello", "J: next|x", "4 no", "5 oops", "!", "7"]).await;
    let expected =
        ["200 OK hello", "200 OK", "400 FAILED 4 no", "500 ERROR 5 oops", "500 TRAP !", "500 EXIT 7"];
    assert_eq!(briefs(&told), expected);
    assert_eq!(new_jobs(&told[1]), ["next=x"]);
    assert_eq!(log(&told[0]), "hm\n");
}

#[tokio::test]
async fn a_module_may_answer_for_a_whole_batch() {
    let rig = rig();
    let options = HandlerOptions { batch: true, ..HandlerOptions::default() };
    let handler = Handler { options, ..handler(Lang::Wasi, "copy") };
    // The lines are the statuses; the first digit is also the exit code, and 20 is success.
    let told = rig.run(&handler, &["200 a", "404 b", "oops"]).await;
    assert_eq!(briefs(&told), ["200 OK a", "404 FAILED b", "500 INVALID_RESPONSE"]);
}

#[tokio::test]
async fn a_module_that_prints_too_much_ends_as_in_every_language() {
    let rig = rig_with(|settings| settings.result_bytes_max = 16);
    let told = rig.run(&handler(Lang::Wasi, "copy"), &["J: next|x and more than that", "short"]).await;
    assert_eq!((told[0].code.as_str(), told[1].code.as_str()), ("TOO_MUCH", "OK"), "{:?}", briefs(&told));
    assert_eq!(new_jobs(&told[0]), Vec::<String>::new());
}

#[tokio::test]
async fn a_client_has_no_modules_of_another() {
    let rig = rig();
    let mut run = rig.start("other", "a", &handler(Lang::Wasi, "copy"), &["x"]);
    let told = outcomes(&mut run, 1).await;
    assert_eq!(told[0].code, "BAD_HANDLER");
    assert!(told[0].message.as_ref().unwrap().contains("other has no blob copy"), "{:?}", told[0].message);
    let without = Rig::new();
    assert!(without.handlers.check(&handler(Lang::Wasi, "copy")).is_err());
    assert_eq!(without.one(&handler(Lang::Wasi, "copy"), "x").await.code, "BAD_HANDLER");
}

/// Guests have no files and processes to hide, but need seccomp and landlock.
#[tokio::test]
async fn strict_isolation_is_for_modules_too() {
    let held = |parts: &[&str]| {
        let holds = parts.iter().map(|part| (*part).to_owned()).collect();
        move |settings: &mut Settings| {
            settings.strict = true;
            settings.isolation = Some(Isolation { holds, ..Isolation::default() });
        }
    };
    let copy = handler(Lang::Wasi, "copy");
    let rig = rig_with(held(&["limits", "landlock"]));
    let told = rig.one(&copy, "x").await;
    assert_eq!(told.code, "BAD_HANDLER", "{told:?}");
    let why = told.message.unwrap();
    assert!(why.contains("runners.isolation") && why.ends_with("lacks seccomp"), "{why}");
    assert_eq!(rig.handlers.check(&copy), Err(why));
    // Without namespaces; on this machine the guest itself reports its isolation.
    let rig = rig_with(held(&["limits", "landlock", "seccomp"]));
    assert_eq!(rig.handlers.check(&copy), Ok(()));
    let told = rig.one(&copy, "x").await;
    let is_held = told.code == "OK";
    assert!(
        is_held || told.message.as_ref().is_some_and(|why| why.contains("this machine lacks")),
        "{told:?}"
    );
}
