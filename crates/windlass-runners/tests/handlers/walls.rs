//! Attacks of a handler on the server and other handlers, whatever user the server is: every test here is
//! also run as an ordinary user, see [`as_an_ordinary_user`].

use crate::rig::{Rig, brief, handler, log, outcomes, sh};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use windlass_runners::handlers::{Handler, Lang};

const SOMEBODY: u32 = 54_321;

/// Runs the tests of this file and of `hostile.rs` again as a user other than root, as most servers run.
#[test]
fn as_an_ordinary_user() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let bring = |path: &Path| {
        let copy = folder.path().join(path.file_name().unwrap());
        std::fs::copy(path, &copy).unwrap();
        copy
    };
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    std::os::unix::fs::chown(&temporary, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    let (tests, helper) = (bring(&std::env::current_exe().unwrap()), bring(&crate::rig::helper()));
    let run = |modules: &[&str], variable: &str| {
        let ran = Command::new(&tests)
            .args(modules)
            .arg("--test-threads=2")
            .env("WINDLASS_TEST_HELPER", &helper)
            .env("TMPDIR", &temporary)
            .env(variable, "1")
            .current_dir(&temporary)
            .uid(SOMEBODY)
            .gid(SOMEBODY)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{variable}: {said}\n{}", String::from_utf8_lossy(&ran.stderr));
        assert!(said.contains("walls::as_an_ordinary_user ... ok"), "{said}");
    };
    run(&["walls::", "hostile::", "interpreters::", "calls::", "cgroups::"], "WINDLASS_TEST_NAMESPACES");
    // As on a kernel that allows no namespaces.
    run(&["walls::", "calls::each_language"], "WINDLASS_TEST_NO_NAMESPACES");
}

fn python(body: &str) -> Handler {
    let before = "import ctypes, os, socket, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n\
                  def call(number, *args):\n    \
                  ctypes.set_errno(0)\n    \
                  got = libc.syscall(number, *args)\n    \
                  return 'done' if got >= 0 else errno.errorcode[ctypes.get_errno()]\n\
                  def tried(what, *args):\n    \
                  try:\n        what(*args)\n        return 'done'\n    \
                  except OSError as error:\n        return errno.errorcode[error.errno]\n";
    Handler { before: Some(before.to_owned()), ..handler(Lang::Python, body) }
}

/// With [`strict`](windlass_runners::handlers::Settings::strict) a handler runs with complete isolation or
/// not at all.
#[tokio::test]
async fn strict_isolation_is_all_or_nothing() {
    let rig = Rig::with(|settings| settings.strict = true);
    let told = rig.one(&sh("true"), "x").await;
    let missing = rig.isolation.missing();
    if missing.is_empty() {
        assert_eq!(brief(&told), "200 OK", "{told:?}");
        return;
    }
    assert_eq!(told.code, "BAD_HANDLER");
    let why = told.message.unwrap();
    assert!(why.contains("runners.isolation") && why.contains(&missing[0]), "{why}");
    assert_eq!(rig.handlers.check(&sh("true")), Err(why));
}

/// In namespaces of its own a handler sees neither processes nor files of the server, and can do anything
/// with its own.
#[tokio::test]
async fn a_view_of_its_own_holds_what_programs_need_and_nothing_else() {
    let rig = Rig::new();
    if !rig.isolation.is_apart() {
        let is_expected = rustix::process::geteuid().is_root()
            || std::env::var_os("WINDLASS_TEST_NO_NAMESPACES").is_some()
            || rig.isolation.no_namespaces.is_some();
        assert!(is_expected, "{:?}", rig.isolation);
        return;
    }
    let body = "pwd; ls /; [ $$ -lt 10 ] && touch x && chmod 640 x && ls -l x && sleep 0 & wait $!";
    let told = rig.one(&sh(body), "x").await;
    let log = log(&told);
    assert_eq!(told.exitcode, 200, "{log}");
    assert!(log.starts_with("/windlass/work\n") && log.contains("-rw-r-----"), "{log}");
    for absent in ["home", "root", "tmp", "var", "run", "boot", "mnt", "srv"] {
        assert!(!log.lines().any(|line| line == absent), "{absent}: {log}");
    }
}

/// Server that runs as root and gives its handlers no user ids (`miniq.uid_base = 0`).
#[tokio::test]
async fn a_handler_of_a_root_server_without_other_users_is_not_root_in_namespaces_of_its_own() {
    let rig = Rig::with(|settings| settings.uid_base = None);
    if !rig.isolation.is_apart() {
        return assert!(
            rig.isolation.no_namespaces.is_some()
                || std::env::var_os("WINDLASS_TEST_NO_NAMESPACES").is_some()
        );
    }
    // Version 3 of the structure; effective, permitted and inheritable capabilities, twice.
    let rights = "import ctypes, os\nhead = (ctypes.c_uint32 * 2)(0x20080522, 0)\nrights = (ctypes.c_uint32 * 6)()\n\
                  assert ctypes.CDLL(None).capget(head, rights) == 0\nopen('own', 'w').write('x')\n\
                  print(os.getuid() != 0, sum(rights), open('own').read(), end='')";
    let told = rig.one(&sh("python3 -c \"$(cat)\" > \"$WINDLASS_RESULT\""), rights).await;
    assert_eq!(brief(&told), "200 OK True 0 x", "{}", log(&told));
}

/// Every property that can be set for another process, tried on the server.
#[tokio::test]
async fn limits_priorities_and_processors_of_the_server_are_out_of_reach() {
    let rig = Rig::new();
    let server = std::process::id();
    let limit = || std::fs::read_to_string("/proc/self/limits").unwrap();
    let nice = || rustix::process::getpriority_process(None).unwrap();
    let before = (limit(), nice());
    let body = format!(
        "zero = (ctypes.c_ulong * 2)(0, 0)\n\
         cpus = (ctypes.c_ulong * 16)(1)\n\
         prio = ctypes.c_int(0)\n\
         out = []\n\
         for pid in ({server}, os.getppid(), 1):\n    \
             out += [tried(__import__('resource').prlimit, pid, 1, (0, 0)), \
                     tried(os.sched_setaffinity, pid, [0]), \
                     tried(os.setpriority, os.PRIO_PROCESS, pid, 19), \
                     tried(os.setpriority, os.PRIO_PGRP, pid, 19), \
                     tried(os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0)), \
                     tried(os.sched_setparam, pid, os.sched_param(0))]\n\
         out += [tried(os.setpriority, os.PRIO_USER, os.getuid(), 19), tried(os.setpriority, os.PRIO_USER, 0, 19)]\n\
         own = [tried(__import__('resource').prlimit, 0, 4, (0, 0)), tried(os.sched_setaffinity, 0, os.sched_getaffinity(0)), \
                tried(os.setpriority, os.PRIO_PROCESS, 0, 19)]\n\
         return (200, ' '.join(sorted(set(out))) + ' / ' + ' '.join(own))"
    );
    let told = rig.one(&python(&body), "x").await;
    assert_eq!(brief(&told), "200 OK EPERM / done done done", "{}", log(&told));
    assert_eq!((limit(), nice()), before);
}

#[tokio::test]
async fn modes_owners_and_times_of_the_servers_files_are_out_of_reach() {
    let rig = Rig::new();
    let store = rig.folder.path().join("windlass.db");
    std::fs::write(&store, "rows").unwrap();
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut neighbour =
        rig.start("other", "t", &sh("while [ ! -e go ]; do sleep 0.02; done; cat ../in/payload"), &["x"]);
    let began = std::time::Instant::now();
    while !rig.first_context().exists() && began.elapsed() < crate::rig::PATIENCE {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let about =
        |path: &Path| path.metadata().map(|about| (about.mode(), about.mtime(), about.uid())).unwrap();
    let before = (about(&store), about(rig.folder.path()), about(&rig.first_context()));
    let paths = [&store, rig.folder.path(), &rig.first_context()]
        .map(|path| format!("{:?}", path.display().to_string()));
    let body = format!(
        "out = []\n\
         for path in [{}, '../../0/work', '../in', '..']:\n    \
             out += [tried(os.chmod, path, 0o777), tried(os.utime, path, (1, 1)), tried(os.chown, path, -1, os.getgid()), \
                     tried(os.setxattr, path, 'user.x', b'1'), tried(os.removexattr, path, 'user.x'), \
                     call(452, -100, path.encode(), 0o777, 0)]\n\
         return (200, ' '.join(sorted(set(out))))",
        paths.join(", ")
    );
    let told = rig.one(&python(&body), "x").await;
    assert!(!brief(&told).contains("done") && told.exitcode == 200, "{}\n{}", brief(&told), log(&told));
    assert_eq!((about(&store), about(rig.folder.path()), about(&rig.first_context())), before);
    std::fs::write(rig.first_context().join("go"), "").unwrap();
    assert_eq!(outcomes(&mut neighbour, 1).await[0].exitcode, 200);
}

#[tokio::test]
async fn memory_that_is_a_file_without_a_name_is_not_to_be_had() {
    let rig = Rig::new();
    let body = "return (200, tried(os.memfd_create, 'x') + ' ' + tried(os.open, '/dev/shm/x', os.O_CREAT | os.O_RDWR))";
    let told = brief(&rig.one(&python(body), "x").await);
    assert!(told.starts_with("200 OK ENOSYS E"), "{told}");
}

#[tokio::test]
async fn pairs_of_sockets_stay_between_their_ends_and_there_are_no_others() {
    let rig = Rig::new();
    let listener = std::os::unix::net::UnixDatagram::bind(rig.folder.path().join("log.sock")).unwrap();
    std::fs::set_permissions(rig.folder.path().join("log.sock"), std::fs::Permissions::from_mode(0o777))
        .unwrap();
    listener.set_nonblocking(true).unwrap();
    let body = format!(
        "name = {:?}\n\
         def send():\n    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n    a.sendto(b'x', name)\n\
         def stream():\n    a, b = socket.socketpair()\n    a.send(b'x')\n    assert b.recv(1) == b'x'\n\
         def pass_on():\n    a, b = socket.socketpair()\n    socket.send_fds(a, [b'x'], [0])\n\
         others = [tried(socket.socket, family, kind) for family in range(0, 46) for kind in (1, 2, 3, 5)]\n\
         return (200, ' '.join([tried(send), tried(stream), tried(pass_on)] + sorted(set(others))))",
        rig.folder.path().join("log.sock").display().to_string()
    );
    let told = rig.one(&python(&body), "x").await;
    assert_eq!(brief(&told), "200 OK EPERM done EPERM EPERM", "{}", log(&told));
    assert!(listener.recv(&mut [0; 8]).is_err());
}

/// Every way to send a signal, including calls of other names.
#[tokio::test]
async fn signals_to_the_server_are_refused_in_every_form() {
    let rig = Rig::new();
    let server = std::process::id();
    let body = format!(
        "import fcntl, signal\n\
         def by_file():\n    a, b = socket.socketpair()\n    fcntl.fcntl(a, fcntl.F_SETOWN, {server})\n\
         def by_number():\n    a, b = socket.socketpair()\n    fcntl.fcntl(a, 10, 9)\n\
         out = [tried(os.kill, pid, sig) for pid in ({server}, -{server}, -1) for sig in (0, 9, 19)]\n\
         out += [tried(by_file), tried(by_number), call(200, {server}, 9), call(234, {server}, {server}, 9)]\n\
         return (200, str('done' in out))"
    );
    // The last of them may end the context itself: it can reach only its own processes.
    let told = rig.one(&python(&body.replace(", -1)", ")")), "x").await;
    assert_eq!(brief(&told), "200 OK False", "{}", log(&told));
}

#[tokio::test]
async fn the_servers_own_files_are_not_read_wherever_they_are() {
    let shared = tempfile::TempDir::new().unwrap();
    std::fs::set_permissions(shared.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let data = shared.path().join("app/data");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("windlass.db-wal"), "a payload").unwrap();
    std::fs::write(shared.path().join("app/key.pem"), "a key").unwrap();
    std::fs::write(shared.path().join("app/lib.txt"), "a library").unwrap();
    let rig = Rig::with(|settings| {
        // Includes the parent of its own folder, as with a data folder below /opt.
        settings.readable = vec![shared.path().to_owned(), settings.folder.parent().unwrap().to_owned()];
        settings.hidden = vec![data.clone(), shared.path().join("app/key.pem")];
    });
    let app = shared.path().join("app").display().to_string();
    let check = async |file: &str, code: u16| {
        let outcome = rig.one(&sh(&format!("cat {app}/{file} || exit 44")), "x").await;
        assert_eq!(outcome.exitcode, code, "{file}: {}", log(&outcome));
    };
    check("lib.txt", 200).await;
    check("data/windlass.db-wal", 404).await;
    check("key.pem", 404).await;
    let contexts = rig.folder.path().join("contexts");
    let told = rig.one(&sh(&format!("ls {} || exit 44; pwd", contexts.display())), "x").await;
    assert!(told.exitcode == 404 || log(&told).starts_with('/'), "{}", log(&told));
    assert_eq!(
        rig.isolation.is_apart(),
        brief(&rig.one(&sh("pwd | grep -q '^/windlass/work$'"), "x").await) == "200 OK"
    );
}

/// Files left by a handler block neither its folder nor the next server.
#[tokio::test]
async fn folders_without_rights_and_without_end_are_removed() {
    let rig = Rig::new();
    let body = "os.mkdir('shut')\nos.mkdir('shut/in')\nopen('shut/in/file', 'w').close()\n\
                os.mkdir('deep')\nhere = os.getcwd()\nos.chdir('deep')\n\
                for n in range(4000):\n    os.mkdir('d')\n    os.chdir('d')\n\
                os.chdir(here)\n\
                old = os.umask(0o777)\nos.mkdir('none')\n\
                for path in ('shut/in', 'shut', 'deep', '.'):\n    tried(os.chmod, path, 0)\n\
                os._exit(40)";
    let told = rig.one(&python(body), "x").await;
    // Stopped for its depth, if the watch is fast enough.
    assert!(told.exitcode == 400 || told.code == "DISK", "{told:?}");
    let contexts = rig.folder.path().join("contexts");
    let began = std::time::Instant::now();
    while std::fs::read_dir(&contexts).unwrap().next().is_some() {
        assert!(began.elapsed() < crate::rig::PATIENCE, "its folder is left behind");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(brief(&rig.one(&sh("true"), "x").await), "200 OK");
}

/// Detected from outside, even if its processes have other ids there.
#[tokio::test]
async fn a_context_in_which_a_job_left_processes_is_not_used_again() {
    let rig = Rig::new();
    let body =
        "[ -e here ] && exit 44; touch here; read -r line; [ $line = tidy ] || { (sleep 9875.25 &) ; }";
    assert_eq!(rig.one(&sh(body), "untidy").await.exitcode, 200);
    assert_eq!(rig.one(&sh(body), "tidy").await.exitcode, 200, "a new one");
    assert_eq!(rig.one(&sh(body), "tidy").await.exitcode, 404, "the same one again");
}

/// By files, unnamed files, and files that are only mapped.
#[tokio::test]
async fn whoever_fills_the_disk_is_stopped() {
    let rig = Rig::with(|settings| settings.disk_bytes_max = 20 << 20);
    let wait = "while True: __import__('time').sleep(1)";
    let named = format!("for n in range(30):\n    open(str(n), 'wb').write(bytes(1 << 20))\n{wait}");
    let open = format!("f = open('x', 'wb')\nos.unlink('x')\nf.write(bytes(30 << 20))\nf.flush()\n{wait}");
    let mapped = format!(
        "f = open('x', 'w+b')\nf.truncate(30 << 20)\nlibc.mmap.restype = ctypes.c_void_p\n\
         libc.mmap(None, ctypes.c_size_t(30 << 20), 3, 1, f.fileno(), ctypes.c_size_t(0))\nos.unlink('x')\nf.close()\n{wait}"
    );
    let shut =
        format!("os.mkdir('d')\nopen('d/x', 'wb').write(bytes(30 << 20))\ntried(os.chmod, 'd', 0)\n{wait}");
    for body in [named, open, mapped, shut] {
        let told = rig.one(&python(&body), "x").await;
        assert_eq!(told.code, "DISK", "{body}: {told:?}");
    }
    assert_eq!(brief(&rig.one(&sh("head -c 10000000 /dev/zero > x"), "x").await), "200 OK");
}

/// Memory that no process shows as its own: shared, and unmapped but for a page, or completely.
#[tokio::test]
async fn whoever_hides_shared_memory_is_stopped() {
    let rig = Rig::with(|settings| settings.memory_bytes_max = 150 << 20);
    let timed = |body: &str| Handler { options: crate::hostile::seconds(100), ..python(body) };
    let unmapped = "libc.mmap.restype = ctypes.c_void_p\nlibc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]\n\
                    size = 16 << 20\n\
                    for n in range(40):\n    \
                        at = libc.mmap(None, ctypes.c_size_t(size), 3, 0x21, -1, ctypes.c_size_t(0))\n    \
                        ctypes.memset(ctypes.c_void_p(at), 1, size)\n    \
                        libc.munmap(at + 4096, size - 4096)\n\
                    while True: __import__('time').sleep(1)";
    let forgotten = "import mmap\nkept = []\n\
                     for n in range(40):\n    \
                         m = mmap.mmap(-1, 16 << 20)\n    \
                         m[:] = bytes(16 << 20)\n    \
                         m.madvise(mmap.MADV_DONTNEED)\n    \
                         kept.append(m)\n\
                     while True: __import__('time').sleep(1)";
    for body in [unmapped, forgotten] {
        let told = rig.one(&timed(body), "x").await;
        assert_eq!(told.code, "MEMORY", "{body}: {told:?}");
    }
    // One piece above the limit for a piece, by either name; a small one is allowed.
    let body = "import mmap\nout = []\n\
                for size in (17 << 20, 1 << 30):\n    out.append(tried(lambda: mmap.mmap(-1, size)))\n\
                out.append(tried(lambda: os.open('/dev/zero', os.O_RDWR)))\n\
                zero = os.open('/dev/zero', os.O_RDONLY)\n\
                out.append(tried(lambda: mmap.mmap(-1, 1 << 20)))\n\
                return ' '.join(out) + ' %d' % sum(os.read(zero, 10))";
    let told = rig.one(&python(body), "x").await;
    let refused = "200 OK EPERM EPERM EACCES done 0";
    assert_eq!(brief(&told), refused, "{}", log(&told));
}

/// The kernel shows the memory of such a process only to root and to the owner of its namespaces.
#[tokio::test]
async fn a_program_whose_memory_cannot_be_counted_is_stopped() {
    let rig = Rig::new();
    let body = "copy = os.open('copy', os.O_CREAT | os.O_WRONLY, 0o111)\n\
                os.write(copy, open('/bin/sleep', 'rb').read())\nos.close(copy)\n\
                __import__('subprocess').run(['./copy', payload])";
    let is_shown = rustix::process::geteuid().is_root() || rig.isolation.is_apart();
    let told = rig.one(&python(body), if is_shown { "2" } else { "1000" }).await;
    assert_eq!(told.code, if is_shown { "OK" } else { "MEMORY" }, "{told:?}");
}

/// As after a kill of the server: the next one finds its running contexts.
#[tokio::test]
async fn what_a_killed_server_left_does_not_keep_the_next_from_running_handlers() {
    let rig = Rig::over(|contexts| {
        let shut = contexts.join("7/work/x");
        std::fs::create_dir_all(&shut).unwrap();
        for path in [shut.as_path(), &contexts.join("7/work"), &contexts.join("7"), contexts] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o000)).unwrap();
        }
    });
    assert_eq!(brief(&rig.one(&sh("true"), "x").await), "200 OK");
    let began = std::time::Instant::now();
    while std::fs::read_dir(rig.folder.path()).unwrap().count() > 1 {
        assert!(began.elapsed() < crate::rig::PATIENCE, "what was left stays");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn code_and_payloads_are_for_nobody_else() {
    let rig = Rig::new();
    let mut run =
        rig.start("acme", "t", &sh("while [ ! -e go ]; do sleep 0.02; done; cat ../in/payload"), &["secret"]);
    let work = rig.first_context();
    let began = std::time::Instant::now();
    let file = work.join("../in/payload");
    while !file.exists() && began.elapsed() < crate::rig::PATIENCE {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let mode = |path: &str| work.join(path).metadata().unwrap().mode() & 0o7;
    assert_eq!((mode(".."), mode("../in"), mode(".")), (0, 0, 0));
    std::fs::write(work.join("go"), "").unwrap();
    let told = outcomes(&mut run, 1).await;
    assert!(log(&told[0]).contains("secret"), "{told:?}");
}
