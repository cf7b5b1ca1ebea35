//! Tests of the environment of a guest: each module makes a call and returns the answer as its exit code.

use crate::wasi::machine::Machine;
use crate::wasi::message::{How, Limits};
use crate::wasi::samples;

/// Exit code of a module whose `_start` leaves it on the stack.
fn asked(imports: &str, body: &str) -> i32 {
    let text = format!(
        r#"(module {imports}
            (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (memory (export "memory") 1)
            (data (i32.const 512) "/etc/passwd")
            (func (export "_start") (call $exit {body})))"#
    );
    let mut machine = Machine::new(Limits { time_limit_ms: 60_000, ..Limits::default() }).unwrap();
    let module = samples::compile(&text);
    let ended = machine.run("a", b"input".to_vec(), || Ok(module), || Ok(())).unwrap();
    match ended.how {
        How::Exit(code) => code,
        How::Failed(why) | How::TooMuchOutput(why) => panic!("{why}\n{text}"),
    }
}

fn import(name: &str, params: &str) -> String {
    format!(r#"(import "wasi_snapshot_preview1" "{name}" (func $call (param {params}) (result i32)))"#)
}

const SUCCESS: i32 = 0;
const BADF: i32 = 8;

#[test]
fn there_are_no_arguments_and_no_environment() {
    for (sizes, get) in [("args_sizes_get", "args_get"), ("environ_sizes_get", "environ_get")] {
        let poison = "(i32.store (i32.const 8) (i32.const 9)) (i32.store (i32.const 12) (i32.const 9))";
        let sum = "(i32.add (i32.load (i32.const 8)) (i32.load (i32.const 12)))";
        let body = format!(
            "(block (result i32) {poison} (i32.add (call $call (i32.const 8) (i32.const 12)) {sum}))"
        );
        assert_eq!(asked(&import(sizes, "i32 i32"), &body), 0, "{sizes}");
        let body = "(call $call (i32.const 8) (i32.const 12))";
        assert_eq!(asked(&import(get, "i32 i32"), body), SUCCESS, "{get}");
    }
}

#[test]
fn there_is_no_folder_to_open_anything_in() {
    let prestat = import("fd_prestat_get", "i32 i32");
    for fd in [0, 3, 4, 1000] {
        assert_eq!(asked(&prestat, &format!("(call $call (i32.const {fd}) (i32.const 8))")), BADF);
        let open = format!(
            "(call $call (i32.const {fd}) (i32.const 0) (i32.const 512) (i32.const 11) (i32.const 0)
                (i64.const -1) (i64.const -1) (i32.const 0) (i32.const 8))"
        );
        assert_eq!(asked(&import("path_open", "i32 i32 i32 i32 i32 i64 i64 i32 i32"), &open), BADF);
    }
    let stat = "(call $call (i32.const 3) (i32.const 0) (i32.const 512) (i32.const 11) (i32.const 8))";
    assert_eq!(asked(&import("path_filestat_get", "i32 i32 i32 i32 i32"), stat), BADF);
    let unlink = "(call $call (i32.const 3) (i32.const 512) (i32.const 11))";
    assert_eq!(asked(&import("path_unlink_file", "i32 i32 i32"), unlink), BADF);
}

#[test]
fn there_is_no_socket() {
    let send = "(call $call (i32.const 3) (i32.const 512) (i32.const 1) (i32.const 0) (i32.const 8))";
    assert_eq!(asked(&import("sock_send", "i32 i32 i32 i32 i32"), send), BADF);
    let accept = "(call $call (i32.const 3) (i32.const 0) (i32.const 8))";
    assert_eq!(asked(&import("sock_accept", "i32 i32 i32"), accept), BADF);
}

#[test]
fn streams_are_read_or_written_never_both() {
    let four = "(i32.const 0) (i32.const 0) (i32.const 8)";
    let read = import("fd_read", "i32 i32 i32 i32");
    let write = import("fd_write", "i32 i32 i32 i32");
    for (fd, reads, writes) in [(0, SUCCESS, BADF), (1, BADF, SUCCESS), (2, BADF, SUCCESS), (3, BADF, BADF)] {
        let call = format!("(call $call (i32.const {fd}) {four})");
        assert_eq!(asked(&read, &call), reads, "reading {fd}");
        assert_eq!(asked(&write, &call), writes, "writing {fd}");
    }
    let closed = "(block (result i32) (drop (call $close (i32.const 1)))
        (call $call (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 8)))";
    let close = r#"(import "wasi_snapshot_preview1" "fd_close" (func $close (param i32) (result i32)))"#;
    assert_eq!(asked(&format!("{write}{close}"), closed), BADF, "what was closed is closed");
}

#[test]
fn addresses_outside_the_memory_are_refused() {
    const FAULT: i32 = 21;
    for at in ["-1", "65533", "0x7fffffff"] {
        let body = format!("(call $call (i32.const {at}) (i32.const 100))");
        assert_eq!(asked(&import("random_get", "i32 i32"), &body), FAULT, "{at}");
        let body = format!("(call $call (i32.const 1) (i64.const 0) (i32.const {at}))");
        assert_eq!(asked(&import("clock_time_get", "i32 i64 i32"), &body), FAULT, "{at}");
        let body = format!("(call $call (i32.const 1) (i32.const {at}) (i32.const 900) (i32.const 0))");
        assert_eq!(asked(&import("fd_write", "i32 i32 i32 i32"), &body), FAULT, "{at}");
        let body = format!("(call $call (i32.const {at}) (i32.const 0) (i32.const 7) (i32.const 0))");
        assert_eq!(asked(&import("poll_oneoff", "i32 i32 i32 i32"), &body), FAULT, "{at}");
    }
}

#[test]
fn clocks_and_chance_are_real() {
    // Seconds since the epoch, plausible for this century.
    let body = "(block (result i32) (drop (call $call (i32.const 0) (i64.const 0) (i32.const 8)))
        (i32.wrap_i64 (i64.div_u (i64.load (i32.const 8)) (i64.const 1000000000))))";
    assert!(asked(&import("clock_time_get", "i32 i64 i32"), body) > 1_700_000_000);
    let body =
        "(block (result i32) (drop (call $call (i32.const 8) (i32.const 4))) (i32.load (i32.const 8)))";
    let random = import("random_get", "i32 i32");
    assert_ne!(asked(&random, body), asked(&random, body), "once in four thousand million");
}

#[test]
fn a_poll_tells_of_streams_at_once_and_of_clocks_when_they_are_due() {
    let poll = import("poll_oneoff", "i32 i32 i32 i32");
    // Subscribes to stdin (tag 1) and a clock in an hour: one event, errno 0, with five readable bytes.
    let body = "(block (result i32)
        (i32.store8 (i32.const 1008) (i32.const 1))
        (i32.store (i32.const 1064) (i32.const 1))
        (i64.store (i32.const 1072) (i64.const 3600000000000))
        (drop (call $call (i32.const 1000) (i32.const 2000) (i32.const 2) (i32.const 8)))
        (i32.add (i32.mul (i32.load (i32.const 8)) (i32.const 100)) (i32.load (i32.const 2016))))";
    assert_eq!(asked(&poll, body), 105);
    let none = "(call $call (i32.const 1000) (i32.const 2000) (i32.const 0) (i32.const 8))";
    assert_eq!(asked(&poll, none), 28, "nothing to wait for is invalid");
}

/// Links a module that imports every function of the protocol with its type.
#[test]
fn the_protocol_is_complete() {
    let all: &[(&str, &str)] = &[
        ("args_get", "i32 i32"),
        ("args_sizes_get", "i32 i32"),
        ("environ_get", "i32 i32"),
        ("environ_sizes_get", "i32 i32"),
        ("clock_res_get", "i32 i32"),
        ("clock_time_get", "i32 i64 i32"),
        ("fd_advise", "i32 i64 i64 i32"),
        ("fd_allocate", "i32 i64 i64"),
        ("fd_close", "i32"),
        ("fd_datasync", "i32"),
        ("fd_fdstat_get", "i32 i32"),
        ("fd_fdstat_set_flags", "i32 i32"),
        ("fd_fdstat_set_rights", "i32 i64 i64"),
        ("fd_filestat_get", "i32 i32"),
        ("fd_filestat_set_size", "i32 i64"),
        ("fd_filestat_set_times", "i32 i64 i64 i32"),
        ("fd_pread", "i32 i32 i32 i64 i32"),
        ("fd_prestat_get", "i32 i32"),
        ("fd_prestat_dir_name", "i32 i32 i32"),
        ("fd_pwrite", "i32 i32 i32 i64 i32"),
        ("fd_read", "i32 i32 i32 i32"),
        ("fd_readdir", "i32 i32 i32 i64 i32"),
        ("fd_renumber", "i32 i32"),
        ("fd_seek", "i32 i64 i32 i32"),
        ("fd_sync", "i32"),
        ("fd_tell", "i32 i32"),
        ("fd_write", "i32 i32 i32 i32"),
        ("path_create_directory", "i32 i32 i32"),
        ("path_filestat_get", "i32 i32 i32 i32 i32"),
        ("path_filestat_set_times", "i32 i32 i32 i32 i64 i64 i32"),
        ("path_link", "i32 i32 i32 i32 i32 i32 i32"),
        ("path_open", "i32 i32 i32 i32 i32 i64 i64 i32 i32"),
        ("path_readlink", "i32 i32 i32 i32 i32 i32"),
        ("path_remove_directory", "i32 i32 i32"),
        ("path_rename", "i32 i32 i32 i32 i32 i32"),
        ("path_symlink", "i32 i32 i32 i32 i32"),
        ("path_unlink_file", "i32 i32 i32"),
        ("poll_oneoff", "i32 i32 i32 i32"),
        ("proc_raise", "i32"),
        ("random_get", "i32 i32"),
        ("sched_yield", ""),
        ("sock_accept", "i32 i32 i32"),
        ("sock_recv", "i32 i32 i32 i32 i32 i32"),
        ("sock_send", "i32 i32 i32 i32 i32"),
        ("sock_shutdown", "i32 i32"),
    ];
    let imports: String = all
        .iter()
        .map(|(name, params)| {
            format!(r#"(import "wasi_snapshot_preview1" "{name}" (func (param {params}) (result i32)))"#)
        })
        .collect();
    assert_eq!(asked(&imports, "(i32.const 5)"), 5);
}
