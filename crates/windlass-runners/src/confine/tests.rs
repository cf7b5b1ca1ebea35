use super::*;
use crate::wasi::message::Limits;
use std::process::Command;

const INSIDE: &str = "confine::tests::inside";

/// Starts this test program as a confined process that runs [`inside`] and tries forbidden operations.
#[test]
fn a_confined_process_reaches_no_file_no_network_and_no_other_program() {
    let program = std::env::current_exe().unwrap();
    let out = Command::new(program)
        .args(["--exact", INSIDE, "--ignored", "--nocapture", "--test-threads=1"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{}\n{said}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    for door in ["file", "folder", "new file", "socket", "program", "thread", "other's memory", "root"] {
        assert!(said.contains(&format!("{door}: shut")), "{door}\n{said}");
    }
    assert!(said.contains("computing: goes on"), "{said}");
}

#[test]
fn what_a_guest_lacks_is_named() {
    let holds = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
    let all = ["limits", "separate user", "landlock", "no new processes or files", "seccomp"];
    assert_eq!(missing(&holds(&all)), Vec::<&str>::new());
    assert_eq!(missing(&holds(&all[..4])), ["seccomp"]);
    let old = ["limits", "separate user", "partial landlock", "no new processes or files", "seccomp"];
    assert_eq!(missing(&holds(&old)), ["full landlock (Linux 6.12)"]);
}

#[test]
#[ignore = "run by the test above in a process of its own: there is no way back from it"]
fn inside() {
    let parent = rustix::process::getppid().map(|pid| format!("/proc/{}/mem", pid.as_raw_nonzero()));
    let limits = Limits::default();
    let mut holds = begin(8 << 30);
    let is_root = rustix::process::geteuid().is_root() || rustix::process::getegid().is_root();
    let mut machine = crate::wasi::machine::Machine::new(limits).unwrap();
    finish(&mut holds);
    println!("holds: {holds:?}");
    assert!(holds.contains(&"limits".to_owned()), "{holds:?}");
    if cfg!(target_os = "linux") {
        assert!(holds.contains(&"seccomp".to_owned()), "this kernel has no seccomp: {holds:?}");
    }
    let shut = |door: &str, opened: bool| println!("{door}: {}", if opened { "OPEN" } else { "shut" });
    shut("file", std::fs::File::open("/proc/self/environ").is_ok());
    shut("folder", std::fs::read_dir("/").is_ok());
    shut("new file", std::fs::write(std::env::temp_dir().join("wasi-was-here"), b"x").is_ok());
    shut("socket", std::net::UdpSocket::bind("127.0.0.1:0").is_ok());
    shut("program", Command::new("/bin/true").spawn().is_ok());
    shut("thread", std::thread::Builder::new().spawn(|| ()).is_ok());
    shut("root", is_root);
    shut("other's memory", parent.is_some_and(|path| std::fs::File::open(path).is_ok()));
    let module = crate::wasi::samples::compile(crate::wasi::samples::UPPER);
    let ended = machine.run("a", b"goes on".to_vec(), || Ok(module), || Ok(())).unwrap();
    assert_eq!(ended.stdout, b"GOES ON");
    println!("computing: goes on");
}
