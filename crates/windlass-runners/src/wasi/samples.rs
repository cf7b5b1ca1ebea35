//! Small WebAssembly modules for tests, in text format.

pub(crate) fn compile(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Copies stdin to stdout and converts a-z to capitals.
pub(crate) const UPPER: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "_start") (local $n i32) (local $i i32) (local $c i32)
        (loop $more
            (i32.store (i32.const 0) (i32.const 1024))
            (i32.store (i32.const 4) (i32.const 4096))
            (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
            (local.set $n (i32.load (i32.const 8)))
            (if (local.get $n) (then
                (local.set $i (i32.const 0))
                (loop $next
                    (local.set $c (i32.load8_u (i32.add (i32.const 1024) (local.get $i))))
                    (if (i32.and (i32.ge_u (local.get $c) (i32.const 97)) (i32.le_u (local.get $c) (i32.const 122)))
                        (then (i32.store8 (i32.add (i32.const 1024) (local.get $i))
                            (i32.sub (local.get $c) (i32.const 32)))))
                    (local.set $i (i32.add (local.get $i) (i32.const 1)))
                    (br_if $next (i32.lt_u (local.get $i) (local.get $n))))
                (i32.store (i32.const 4) (local.get $n))
                (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
                (br $more))))))"#;

/// Writes `out` to stdout and `err` to stderr, then exits with `code`.
pub(crate) fn exit(code: i32) -> String {
    format!(
        r#"(module
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\40\00\00\00\03\00\00\00\43\00\00\00\03\00\00\00")
    (data (i32.const 64) "outerr")
    (func (export "_start")
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 32)))
        (drop (call $write (i32.const 2) (i32.const 8) (i32.const 1) (i32.const 32)))
        (call $exit (i32.const {code}))))"#
    )
}

/// Writes `err` to standard error, then traps.
pub(crate) const TRAP: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\40\00\00\00\03\00\00\00")
    (data (i32.const 64) "err")
    (func (export "_start")
        (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 32)))
        unreachable))"#;

pub(crate) const LOOP: &str = r#"(module (func (export "_start") (loop $for_ever (br $for_ever))))"#;

/// Grows its memory until refused, then traps as an allocator would.
pub(crate) const MEMORY_BOMB: &str = r#"(module (memory (export "memory") 1)
    (func (export "_start")
        (loop $more (br_if $more (i32.ge_s (memory.grow (i32.const 16)) (i32.const 0))))
        unreachable))"#;

/// Grows its memory until refused, then returns normally.
pub(crate) const MEMORY_ASKER: &str = r#"(module (memory (export "memory") 1)
    (func (export "_start")
        (loop $more (br_if $more (i32.ge_s (memory.grow (i32.const 16)) (i32.const 0))))))"#;

/// Writes the same 64 bytes without end.
pub(crate) const OUTPUT_BOMB: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\40\00\00\00\40\00\00\00")
    (func (export "_start")
        (loop $more (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 32))) (br $more))))"#;

/// Sleeps, then returns.
pub(crate) fn sleep(ms: u64) -> String {
    let ns = ms * 1_000_000;
    format!(
        r#"(module
    (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "_start")
        (i32.store (i32.const 16) (i32.const 1))
        (i64.store (i32.const 24) (i64.const {ns}))
        (if (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)) (then unreachable))))"#
    )
}

/// Exits with the sum of both numbers.
pub(crate) fn serval_add(a: i32, b: i32) -> String {
    format!(
        r#"(module
    (import "serval" "add" (func $add (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (func (export "_start") (call $exit (call $add (i32.const {a}) (i32.const {b})))))"#
    )
}
