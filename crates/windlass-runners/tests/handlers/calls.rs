//! System calls by language: each interpreter works normally with its list, and calls outside of it are
//! refused.

use crate::rig::{Rig, brief, handler, log};
use windlass_runners::handlers::{Lang, Network};

/// System calls by number, with the languages that allow them: see the table in docs/runners.md.
const CALLS: [(i64, &[Lang]); 9] = [
    (libc::SYS_getpid, &[Lang::Sh, Lang::Python, Lang::Node, Lang::Php]),
    (libc::SYS_epoll_create1, &[Lang::Sh, Lang::Python, Lang::Node]),
    (libc::SYS_preadv, &[Lang::Sh, Lang::Python, Lang::Node]),
    (libc::SYS_timerfd_create, &[Lang::Sh, Lang::Python]),
    (libc::SYS_sched_getscheduler, &[Lang::Sh, Lang::Python]),
    (libc::SYS_inotify_init1, &[Lang::Sh, Lang::Node]),
    (libc::SYS_capget, &[Lang::Sh, Lang::Node]),
    (libc::SYS_mincore, &[Lang::Sh]),
    (libc::SYS_vmsplice, &[]),
];

/// Handlers that start Python with the payload as its program: the confinement covers child processes.
const STARTERS: [(Lang, &str); 4] = [
    (Lang::Sh, "python3 -c \"$(cat)\" > \"$WINDLASS_RESULT\""),
    (Lang::Python, "import subprocess\nreturn subprocess.check_output(['python3', '-c', payload])"),
    (Lang::Node, "return require('child_process').execFileSync('python3', ['-c', payload])"),
    (Lang::Php, "return shell_exec('python3 -c ' . escapeshellarg($payload));"),
];

#[tokio::test]
async fn each_language_has_the_calls_of_its_list_and_no_others() {
    let rig = Rig::new();
    if !rig.isolation.holds.iter().any(|part| part == "seccomp") {
        return eprintln!("skipped: this kernel has no seccomp");
    }
    let numbers: Vec<String> = CALLS.iter().map(|(call, _)| call.to_string()).collect();
    let probe = format!(
        "import ctypes, errno; c = ctypes.CDLL(None, use_errno=True); \
         print(*[n for n in ({},) if c.syscall(n, -1, -1, -1, -1, -1) >= 0 or ctypes.get_errno() != errno.ENOSYS], end='')",
        numbers.join(", ")
    );
    for (lang, body) in STARTERS {
        let having =
            CALLS.iter().filter(|(_, langs)| langs.contains(&lang)).map(|(call, _)| call.to_string());
        let wanted = format!("200 OK {}", having.collect::<Vec<_>>().join(" "));
        let told = rig.one(&handler(lang, body), &probe).await;
        assert_eq!(brief(&told), wanted, "{lang}: {:?}\n{}", told.message, log(&told));
    }
}

/// Ordinary work of handlers. Each part prints its name when it is done.
const LIVES: [(Lang, &str); 4] = [
    (
        Lang::Sh,
        "set -e; echo b > f; echo a >> f; sort f | tr a-z A-Z | grep -c A > out; mkdir d; cp -a f d/g; mv d/g d/h; ln -s h d/l; \
         ls -laR d > list; find d -type f -exec stat {} + > /dev/null; tar czf t.tgz d; tar xzf t.tgz; rm -r d; echo files; \
         sleep 0.01 & wait $!; sh -c 'trap \"echo signals\" USR1; kill -USR1 $$'; timeout 50 true; echo timers; \
         nice true; seq 3 | xargs -P2 -n1 true; python3 -c 'import asyncio, subprocess; asyncio.run(asyncio.sleep(0)); \
         subprocess.run([\"true\"], check=True)'; node -e 'require(\"fs\").readFileSync(\"f\")'; php -r 'file(\"f\");'; echo processes; \
         [ \"$(cat out)\" = 1 ]",
    ),
    (
        Lang::Python,
        "import asyncio, concurrent.futures, hashlib, json, os, select, shutil, signal, socket, sqlite3, subprocess, threading, time\n\
         open('f', 'w').write('x' * 100000)\nos.mkdir('d')\nshutil.copy('f', 'd/g')\nshutil.rmtree('d')\n\
         fd = os.open('f', os.O_RDWR)\nos.preadv(fd, [bytearray(4)], 0)\nos.pwritev(fd, [b'ab'], 0)\nos.fsync(fd)\nos.posix_fallocate(fd, 0, 200000)\n\
         db = sqlite3.connect('x.db')\ndb.execute('pragma journal_mode=wal')\ndb.execute('create table t(a)')\ndb.commit()\nprint('files')\n\
         with concurrent.futures.ThreadPoolExecutor(4) as pool: list(pool.map(hashlib.sha256, [b'x' * 1000000] * 8))\nprint('threads')\n\
         assert subprocess.check_output('echo hi | cat', shell=True) == b'hi\\n'\n\
         pid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)\nprint('processes')\n\
         async def main():\n    process = await asyncio.create_subprocess_exec('true')\n    assert await process.wait() == 0\n    \
             await asyncio.to_thread(time.sleep, 0.01)\n\
         asyncio.run(main())\nprint('loops')\n\
         rang = []\nsignal.signal(signal.SIGALRM, lambda *a: rang.append(1))\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\n\
         while not rang: time.sleep(0.01)\nprint('timers')\n\
         server = socket.create_server(('127.0.0.1', 0))\nclient = socket.create_connection(server.getsockname())\n\
         side, _ = server.accept()\nclient.sendall(b'x')\nassert side.recv(1) == b'x'\nprint('sockets')",
    ),
    (
        Lang::Node,
        "const fs = require('fs'), cp = require('child_process'), http = require('http'), { Worker } = require('worker_threads');\n\
         fs.writeFileSync('f', 'x'.repeat(100000)); fs.copyFileSync('f', 'g'); fs.mkdirSync('d/e', { recursive: true }); fs.rmSync('d', { recursive: true });\n\
         await fs.promises.readFile('g'); const fd = fs.openSync('g', 'r+'); fs.writevSync(fd, [Buffer.from('a')], 0); fs.readvSync(fd, [Buffer.alloc(2)], 0); fs.fsyncSync(fd);\n\
         const seen = new Promise((ok) => { const w = fs.watch('.', () => { w.close(); ok() }) }); fs.writeFileSync('h', 'x'); await seen; console.log('files');\n\
         const done = (it, event) => new Promise((ok, bad) => it.on(event, ok).on('error', bad));\n\
         await done(new Worker('require(\"fs\").readFileSync(\"f\")', { eval: true }), 'exit');\n\
         await new Promise((ok) => require('crypto').scrypt('a', 'b', 10, ok)); await new Promise((ok) => require('zlib').gzip('x', ok)); console.log('threads');\n\
         if (cp.execSync('echo hi | cat').toString() !== 'hi\\n') throw 'exec'; await done(cp.spawn('true'), 'exit'); console.log('processes');\n\
         let signals = 0; process.on('SIGUSR2', () => signals++); process.kill(process.pid, 'SIGUSR2'); while (!signals) await new Promise((ok) => setTimeout(ok, 5)); console.log('timers');\n\
         const server = http.createServer((_, answer) => answer.end('x')).listen(0, '127.0.0.1'); await done(server, 'listening');\n\
         if (await (await fetch('http://127.0.0.1:' + server.address().port)).text() !== 'x') throw 'fetch'; server.closeAllConnections(); server.close(); console.log('sockets')",
    ),
    (
        Lang::Php,
        "file_put_contents('f', str_repeat('x', 100000)); copy('f', 'g'); rename('g', 'h'); mkdir('d'); rmdir('d'); scandir('.');\n\
         $file = fopen('h', 'r+'); flock($file, LOCK_EX); fwrite($file, 'y'); fsync($file); ftruncate($file, 10); fclose($file); echo \"files\\n\";\n\
         if (shell_exec('echo hi | cat') !== \"hi\\n\") throw new Exception('shell');\n\
         $process = proc_open(['cat'], [['pipe', 'r'], ['pipe', 'w']], $pipes); fwrite($pipes[0], 'x'); fclose($pipes[0]);\n\
         if (stream_get_contents($pipes[1]) !== 'x' || proc_close($process) !== 0) throw new Exception('cat'); echo \"processes\\n\";\n\
         usleep(1000); set_time_limit(100); random_bytes(8); password_hash('x', PASSWORD_BCRYPT, ['cost' => 4]); echo \"timers\\n\";\n\
         $server = stream_socket_server('tcp://127.0.0.1:0'); $client = stream_socket_client('tcp://' . stream_socket_get_name($server, false));\n\
         $side = stream_socket_accept($server); fwrite($client, 'x'); if (fread($side, 1) !== 'x') throw new Exception('socket');\n\
         $read = [$side]; $write = $odd = null; stream_select($read, $write, $odd, 0, 1000); echo \"sockets\\n\";",
    ),
];

#[tokio::test]
async fn each_interpreter_lives_its_usual_life() {
    let rig = Rig::with(|settings| settings.network = Network::Always);
    for (lang, body) in LIVES {
        let told = rig.one(&handler(lang, body), "x").await;
        assert_eq!(told.code, "OK", "{lang}: {:?}\n{}", told.message, log(&told));
        for part in ["files", "processes", "timers"] {
            assert!(log(&told).lines().any(|line| line == part), "{lang}: {}", log(&told));
        }
    }
}
