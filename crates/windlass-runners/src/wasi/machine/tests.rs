use super::*;
use crate::wasi::samples;

/// Generous time limit for a busy machine.
fn limits() -> Limits {
    Limits { time_limit_ms: 60_000, memory_bytes_max: 2 << 20, output_bytes_max: 1000, cache_modules: 2 }
}

fn machine() -> Machine {
    Machine::new(limits()).unwrap()
}

fn run_in(machine: &mut Machine, address: &str, module: &[u8], input: &[u8]) -> GuestEnd {
    machine.run(address, input.to_vec(), || Ok(module.to_vec()), || Ok(())).unwrap()
}

fn run(text: &str, input: &[u8]) -> GuestEnd {
    run_in(&mut machine(), "a", &samples::compile(text), input)
}

/// Runs with a time limit of 200 ms.
fn run_briefly(text: &str) -> GuestEnd {
    let mut machine = Machine::new(Limits { time_limit_ms: 200, ..limits() }).unwrap();
    run_in(&mut machine, "a", &samples::compile(text), b"")
}

fn why(ended: &GuestEnd) -> &str {
    match &ended.how {
        How::Failed(why) | How::TooMuchOutput(why) => why,
        How::Exit(code) => panic!("it ended with {code}"),
    }
}

#[test]
fn a_module_reads_its_input_and_its_output_is_gathered() {
    let ended = run(samples::UPPER, b"hello, Wilson!");
    assert_eq!(ended.how, How::Exit(0));
    assert_eq!(ended.stdout, b"HELLO, WILSON!");
    assert_eq!(ended.stderr, b"");
    assert!(ended.began_ns > 0 && ended.began_ns <= monotonic_ns());
}

#[test]
fn input_larger_than_one_read_arrives_whole() {
    let mut large = Machine::new(Limits { output_bytes_max: 1 << 20, ..limits() }).unwrap();
    let ended = run_in(&mut large, "a", &samples::compile(samples::UPPER), &b"ab".repeat(50_000));
    assert_eq!(ended.stdout, b"AB".repeat(50_000));
}

#[test]
fn without_input_the_end_of_standard_input_comes_at_once() {
    let ended = run(samples::UPPER, b"");
    assert_eq!((ended.how, ended.stdout.len()), (How::Exit(0), 0));
}

#[test]
fn the_exit_code_comes_through_with_both_outputs() {
    let ended = run(&samples::exit(3), b"");
    assert_eq!(ended.how, How::Exit(3));
    assert_eq!((ended.stdout.as_slice(), ended.stderr.as_slice()), (&b"out"[..], &b"err"[..]));
    assert_eq!(run(&samples::exit(0), b"").how, How::Exit(0));
}

#[test]
fn a_trap_is_told_with_what_was_written_before_it() {
    let ended = run(samples::TRAP, b"");
    assert!(why(&ended).contains("unreachable"), "{}", why(&ended));
    assert_eq!(ended.stderr, b"err");
}

#[test]
fn an_endless_loop_ends_with_its_time() {
    let ended = run_briefly(samples::LOOP);
    assert_eq!(why(&ended), "the module exceeded its time limit of 0.2 s");
}

#[test]
fn a_sleep_beyond_the_end_ends_with_its_time() {
    let before = std::time::Instant::now();
    assert_eq!(why(&run_briefly(&samples::sleep(3_600_000))), "the module exceeded its time limit of 0.2 s");
    assert!(before.elapsed() < Duration::from_secs(60), "it slept on");
    assert_eq!(run(&samples::sleep(1), b"").how, How::Exit(0));
}

#[test]
fn memory_has_an_end_that_the_guest_can_survive_and_the_message_names() {
    let ended = run(samples::MEMORY_BOMB, b"");
    assert!(why(&ended).contains("more than its memory limit of 2097152 bytes"), "{}", why(&ended));
    let ended = run(samples::MEMORY_ASKER, b"");
    assert_eq!(ended.how, How::Exit(0), "a growth that is refused is -1 to the guest, not its end");
    let ended = run(r#"(module (memory (export "memory") 100) (func (export "_start")))"#, b"");
    assert!(why(&ended).contains("memory limit of 2097152 bytes"), "{}", why(&ended));
}

#[test]
fn several_memories_share_one_bound() {
    let text = r#"(module (memory (export "memory") 20) (memory 20) (func (export "_start")))"#;
    assert!(why(&run(text, b"")).contains("memory limit of 2097152 bytes"));
}

#[test]
fn output_has_an_end() {
    let ended = run(samples::OUTPUT_BOMB, b"");
    assert_eq!(why(&ended), "the output exceeds the limit of 1000 bytes");
    assert_eq!(ended.stdout.len(), 1000);
}

#[test]
fn a_recursion_without_end_is_a_failure_of_the_guest_alone() {
    let text = r#"(module (func $f (export "_start") call $f i32.const 1 drop))"#;
    let mut machine = machine();
    let ended = run_in(&mut machine, "deep", &samples::compile(text), b"");
    assert!(why(&ended).contains("call stack exhausted"), "{}", why(&ended));
    assert_eq!(run_in(&mut machine, "ok", &samples::compile(samples::UPPER), b"a").stdout, b"A");
}

#[test]
fn imports_that_are_not_there_are_named() {
    let text = r#"(module (import "env" "launch" (func)) (func (export "_start")))"#;
    assert!(why(&run(text, b"")).contains("`env::launch`"));
    let text = r#"(module (import "serval" "add" (func (param i64))) (func (export "_start")))"#;
    assert!(why(&run(text, b"")).contains("serval::add"), "a wrong type is named too");
}

#[test]
fn what_is_no_module_is_said_to_be_none() {
    for junk in [&b""[..], b"hello", b"\0asm\x0d\0\x01\0", b"\0asm\x01\0\0\0\xff"] {
        let ended = run_in(&mut machine(), "junk", junk, b"");
        assert!(why(&ended).starts_with("the module cannot be loaded"), "{}", why(&ended));
    }
    let ended = run("(module)", b"");
    assert!(why(&ended).contains("_start"), "{}", why(&ended));
}

#[test]
fn serval_add_adds() {
    let ended = run(&samples::serval_add(40, 2), b"");
    assert_eq!(ended.how, How::Exit(42));
    assert_eq!(run(&samples::serval_add(i32::MAX, 1), b"").how, How::Exit(i32::MIN));
}

#[test]
fn nothing_of_one_run_is_there_in_the_next() {
    let text = r#"(module
        (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (memory (export "memory") 1)
        (func (export "_start") (local $seen i32)
            (local.set $seen (i32.load (i32.const 64)))
            (i32.store (i32.const 64) (i32.const 7))
            (call $exit (local.get $seen))))"#;
    let mut machine = machine();
    let module = samples::compile(text);
    for _ in 0..3 {
        assert_eq!(run_in(&mut machine, "a", &module, b"").how, How::Exit(0));
    }
}

#[test]
fn a_module_is_fetched_once_and_forgotten_when_others_were_used_since() {
    let mut machine = machine();
    let module = samples::compile(samples::UPPER);
    let mut fetched = Vec::new();
    for address in ["a", "b", "a", "c", "a", "b"] {
        let fetch = || {
            fetched.push(address);
            Ok(module.clone())
        };
        machine.run(address, Vec::new(), fetch, || Ok(())).unwrap();
    }
    assert_eq!(fetched, ["a", "b", "c", "b"], "two are kept: what was used last stays");
}

#[test]
fn what_cannot_be_fetched_is_the_callers_trouble() {
    let lost = machine().run("a", Vec::new(), || Err(io::ErrorKind::BrokenPipe.into()), || Ok(()));
    assert_eq!(lost.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}
