//! Same assertions for every interpreter.

use crate::rig::{Rig, briefs, ends, handler, log, new_jobs, outcomes};
use std::time::Duration;
use windlass_core::handler::{Ended, Run};
use windlass_runners::handlers::{Handler, HandlerOptions, Lang};

/// Handler texts of one language.
struct Words {
    lang: Lang,
    /// Returns the payload as the result.
    echo: &'static str,
    /// The payload is a status; returns it, with a result.
    status: &'static str,
    /// Prints the payload unchanged to standard output.
    print: &'static str,
    throw: &'static str,
    exit_44: &'static str,
    /// Ends the process at once if the payload is `die`.
    crash_on_die: &'static str,
    endless: &'static str,
    hog: &'static str,
    count: [&'static str; 4],
    whole: &'static str,
    /// Breaks the functions for printing and reading, then prints.
    vandal: &'static str,
    flood: &'static str,
    network: &'static str,
    nonsense: &'static str,
    bytes: &'static str,
}

const PYTHON: Words = Words {
    lang: Lang::Python,
    echo: "return payload",
    status: "return int(payload), 'was ' + payload",
    print: "print(payload)",
    throw: "def f():\n  raise ValueError('bad ' + payload)\nf()",
    exit_44: "import sys\nsys.exit(44)",
    crash_on_die: "import os\nif payload == 'die': os.kill(os.getpid(), 9)\nif payload == 'exit': os._exit(44)\nreturn globals().setdefault('me', os.urandom(8).hex())",
    endless: "while payload == 'endless': pass",
    hog: "x = 'x' * 3_000_000_000\nreturn len(x)",
    count: [
        "batches = 0\nprint('before')",
        "batches += 1",
        "return '%d %s' % (batches, job['id'])",
        "print('afterEach')",
    ],
    whole: "print('# hello')\nfor p, j in zip(payloads, jobs): print(p, 'done', j['id'])",
    vandal: "import os, sys\nif payload == 'a':\n  sys.stdout.close()\n  sys.stdout = None\n  os.close(0); os.close(1)\n\
             else: print('J: x|y')\nreturn 'still here'",
    flood: "print('first')\nfor _ in range(1000): print('x' * 999_999)\nprint('last')",
    network: "import socket\nsocket.create_connection(('127.0.0.1', 9))",
    nonsense: "return 7",
    bytes: "return payload.encode('utf-8', 'surrogateescape')",
};

const NODE: Words = Words {
    lang: Lang::Node,
    echo: "return payload",
    status: "await null; return [Number(payload), 'was ' + payload]",
    print: "console.log(payload)",
    throw: "await new Promise((ok) => setTimeout(ok, 1)); throw new Error('bad ' + payload)",
    exit_44: "process.exit(44)",
    crash_on_die: "if (payload === 'die') { process.kill(process.pid, 'SIGKILL'); for (;;); } \
                   if (payload === 'exit') process.reallyExit(44); return String(globalThis.me ??= Math.random())",
    endless: "while (payload === 'endless');",
    hog: "const all = []; for (;;) all.push(Buffer.alloc(50_000_000, 1))",
    count: [
        "let batches = 0; console.log('before')",
        "batches += 1",
        "return `${batches} ${job.id}`",
        "console.log('afterEach')",
    ],
    whole: "console.log('# hello'); payloads.forEach((p, n) => console.log(p, 'done', jobs[n].id))",
    vandal: "if (payload === 'a') { require('fs').closeSync(1); process.stdout.end(); process.stdout.destroy() } \
             else console.log('J: x|y'); return 'still here'",
    flood: "console.log('first'); for (let n = 0; n < 1000; n++) console.log('x'.repeat(999_999)); console.log('last')",
    network: "await new Promise((ok, no) => require('net').connect(9, '127.0.0.1').on('connect', ok).on('error', no))",
    nonsense: "return 7",
    bytes: "return job.bytes",
};

const PHP: Words = Words {
    lang: Lang::Php,
    echo: "return $payload;",
    status: "<?php\nreturn [(int) $payload, \"was $payload\"];",
    print: "echo $payload, \"\\n\";",
    throw: "throw new ValueError(\"bad $payload\");",
    exit_44: "exit(44);",
    crash_on_die: "if ($payload === 'die') { posix_kill(getmypid(), 9); sleep(9); } \
                   if ($payload === 'exit') { exit(44); } return $GLOBALS['me'] ??= bin2hex(random_bytes(8));",
    endless: "while ($payload === 'endless');",
    hog: "$x = str_repeat('x', 3000000000); return strlen($x);",
    count: [
        "$batches = 0; echo \"before\\n\";",
        "$batches++;",
        "return \"$batches {$job['id']}\";",
        "echo \"afterEach\\n\";",
    ],
    whole: "echo \"# hello\\n\"; foreach ($payloads as $n => $p) { echo \"$p done {$jobs[$n]['id']}\\n\"; }",
    vandal: "if ($payload === 'a') { fclose(STDIN); fclose(STDOUT); while (ob_get_level()) { ob_end_clean(); } } \
             else { echo \"J: x|y\\n\"; } return 'still here';",
    flood: "echo \"first\\n\"; for ($n = 0; $n < 1000; $n++) { echo str_repeat('x', 999999), \"\\n\"; } echo \"last\\n\";",
    network: "if (!@fsockopen('127.0.0.1', 9, $number, $text)) { throw new Exception($text); }",
    nonsense: "return 7;",
    bytes: "return $payload;",
};

async fn check(words: &Words) {
    let rig = Rig::new();
    let lang = words.lang;
    let plain = |body: &str| handler(lang, body);
    if let Err(why) = rig.handlers.check(&plain(words.echo)) {
        panic!("{why}; ./test installs it");
    }
    // Payloads and results, byte by byte.
    let large = "ü|".repeat(300_000);
    for payload in ["plain", "", "é ü | \\ ' \" $x `y` \t\r", "two\nlines", &large] {
        let outcome = rig.one(&plain(words.echo), payload).await;
        assert_eq!(outcome.exitcode, 200, "{lang}: {:?}\n{}", outcome.message, log(&outcome));
        assert_eq!(outcome.result, payload, "{lang}");
    }
    // Statuses.
    let told = rig.run(&plain(words.status), &["200", "101", "404", "503"]).await;
    assert_eq!(
        briefs(&told),
        ["200 OK was 200", "101 RETRY was 101", "404 FAILED was 404", "503 ERROR was 503"]
    );
    let outcome = rig.one(&plain(words.nonsense), "x").await;
    assert_eq!(outcome.code, "INVALID_RESPONSE", "{lang}: {outcome:?}");
    assert_eq!(rig.one(&plain(words.exit_44), "x").await.exitcode, 404, "{lang}");
    // Output belongs to the job that printed it.
    let told = rig.run(&plain(words.print), &["J: thumb|a|b", "hello", "#J: mail|"]).await;
    assert_eq!((new_jobs(&told[0]), log(&told[0])), (vec!["thumb=a|b".to_owned()], String::new()), "{lang}");
    assert_eq!((new_jobs(&told[1]), log(&told[1])), (vec![], "hello\n".to_owned()), "{lang}");
    assert_eq!(new_jobs(&told[2]), ["mail="], "{lang}");
    // An exception is an error of its job, with its trace.
    let told = rig.run(&plain(words.throw), &["one", "two"]).await;
    assert_eq!(briefs(&told), ["500 EXCEPTION"; 2], "{lang}");
    assert!(told[1].message.as_ref().unwrap().contains("bad two"), "{lang}: {:?}", told[1].message);
    assert!(
        log(&told[1]).contains("bad two") && !log(&told[1]).contains("bad one"),
        "{lang}: {}",
        log(&told[1])
    );
    let broken = rig.one(&plain("}} this is no code"), "x").await;
    assert_eq!(broken.code, "BEFORE_FAILED", "{lang}: {broken:?}");
}

async fn check_life(words: &Words) {
    let rig = Rig::new();
    let lang = words.lang;
    let [before, before_each, body, after_each] = words.count.map(str::to_owned);
    let counting = Handler {
        before: Some(before),
        before_each: Some(before_each),
        after_each: Some(after_each),
        ..handler(lang, &body)
    };
    let first = rig.run(&counting, &["a", "b"]).await;
    let second = rig.run(&counting, &["c"]).await;
    assert_eq!(briefs(&first), ["200 OK 1 id-0", "200 OK 1 id-1"], "{lang}: {first:?}");
    assert_eq!(briefs(&second), ["200 OK 2 id-0"], "{lang}: before is run once");
    assert_eq!(log(&first[1]), "afterEach\n", "{lang}");
    // A crash costs only the job that caused it.
    let told = rig.run(&handler(lang, words.crash_on_die), &["a", "b", "die", "c", "exit", "d"]).await;
    let codes: Vec<&str> = told.iter().map(|outcome| outcome.code.as_str()).collect();
    assert_eq!(codes, ["OK", "OK", "SIGNAL", "OK", "FAILED", "OK"], "{lang}: {told:?}");
    assert_eq!(told[0].result, told[1].result, "{lang}");
    assert_ne!(told[1].result, told[3].result, "{lang}");
    // A whole batch.
    let options = HandlerOptions { batch: true, ..HandlerOptions::default() };
    let whole = Handler { options, ..handler(lang, words.whole) };
    let told = rig.run(&whole, &["200", "two\nlines", "404"]).await;
    assert_eq!(briefs(&told), ["200 OK done id-0", "400 BAD_PAYLOAD", "404 FAILED done id-2"], "{lang}");
}

async fn check_harm(words: &Words) {
    let rig = Rig::with(|settings| settings.memory_bytes_max = 300 << 20);
    let lang = words.lang;
    let timed = |body: &str, timeout| {
        let timeout = Some(Duration::from_secs(timeout));
        Handler { options: HandlerOptions { timeout, ..HandlerOptions::default() }, ..handler(lang, body) }
    };
    let told = rig.run(&timed(words.endless, 10), &["fine", "endless", "fine"]).await;
    assert_eq!(briefs(&told), ["200 OK", "500 ETIMEDOUT", "200 OK"], "{lang}");
    let told = rig.run(&timed(words.hog, 200), &["x"]).await;
    assert_eq!(told[0].exitcode, 500, "{lang}: {told:?}");
    let told = rig.run(&handler(lang, words.vandal), &["a", "b"]).await;
    assert_eq!(briefs(&told), ["200 OK still here"; 2], "{lang}: {told:?}");
    assert_eq!(new_jobs(&told[1]), ["x=y"], "{lang}: what comes after it is heard");
    let flood = rig.one(&handler(lang, words.flood), "x").await;
    assert_eq!(flood.exitcode, 200, "{lang}: {:?}", flood.message);
    let text = log(&flood);
    assert!(text.starts_with("first\n") && text.ends_with("\nlast\n") && text.contains("omitted"), "{lang}");
    let network = rig.one(&handler(lang, words.network), "x").await;
    assert_eq!(network.code, "EXCEPTION", "{lang}: {network:?}");
    assert!(!log(&network).to_lowercase().contains("refused"), "{lang} has a network: {}", log(&network));
}

#[tokio::test]
async fn python_handlers_speak_and_are_heard() {
    check(&PYTHON).await;
}

#[tokio::test]
async fn python_contexts_live_and_die_as_they_should() {
    check_life(&PYTHON).await;
}

#[tokio::test]
async fn python_handlers_that_harm_harm_themselves() {
    check_harm(&PYTHON).await;
}

#[tokio::test]
async fn node_handlers_speak_and_are_heard() {
    check(&NODE).await;
}

#[tokio::test]
async fn node_contexts_live_and_die_as_they_should() {
    check_life(&NODE).await;
}

#[tokio::test]
async fn node_handlers_that_harm_harm_themselves() {
    check_harm(&NODE).await;
}

#[tokio::test]
async fn php_handlers_speak_and_are_heard() {
    check(&PHP).await;
}

#[tokio::test]
async fn php_contexts_live_and_die_as_they_should() {
    check_life(&PHP).await;
}

#[tokio::test]
async fn php_handlers_that_harm_harm_themselves() {
    check_harm(&PHP).await;
}

#[tokio::test]
async fn bytes_that_are_no_text_arrive_as_they_are() {
    use bytes::Bytes;
    use std::sync::Arc;
    use windlass_core::handler::{Batch, BatchJob};
    let rig = Rig::new();
    for words in [&PYTHON, &NODE, &PHP] {
        let payload = Bytes::from_static(b"\xff\xfe\0\x80 x");
        let jobs = vec![BatchJob { id: "1".to_owned(), attempt: 1, payload: payload.clone(), trace: None }];
        let handler = Arc::new(handler(words.lang, words.bytes));
        let batch = Batch { client: "a".into(), jobtype: "b".into(), version: "1".into(), handler, jobs };
        let told = crate::rig::outcomes(&mut rig.handlers.start(batch), 1).await;
        assert_eq!(told[0].result, payload, "{}", words.lang);
    }
}

/// A process that forks answers once.
#[tokio::test]
async fn a_python_handler_that_forks_answers_once() {
    let rig = Rig::new();
    let body = "import os\nchild = os.fork()\nif child: os.waitpid(child, 0)\nreturn 'here'";
    let told = rig.run(&handler(Lang::Python, body), &["a", "b", "c"]).await;
    assert_eq!(briefs(&told), ["200 OK here"; 3]);
}

#[tokio::test]
async fn a_node_handler_is_blamed_for_what_it_throws_later() {
    let rig = Rig::new();
    let body =
        "setTimeout(() => { throw new Error('late') }, 5); await new Promise((ok) => setTimeout(ok, 5000))";
    let outcome = rig.one(&handler(Lang::Node, body), "x").await;
    assert_eq!(outcome.code, "EXCEPTION", "{outcome:?}");
    assert!(outcome.message.unwrap().contains("late"));
}

/// Counts its own runs, and declares names that cannot be declared twice.
const BEFORES: [(Lang, &str, &str); 4] = [
    (
        Lang::Node,
        "const runs = globalThis.runs = (globalThis.runs ?? 0) + 1; let other = KIND",
        "return `${runs} ${other} ${process.pid}`",
    ),
    (
        Lang::Python,
        "runs = globals().get('runs', 0) + 1\nother = KIND",
        "import os\nreturn '%d %d %d' % (runs, other, os.getpid())",
    ),
    (Lang::Php, "$runs = ($runs ?? 0) + 1; $other = KIND;", "return \"$runs $other \" . getmypid();"),
    (
        Lang::Sh,
        "runs=$((${runs:-0} + 1)); readonly other=KIND",
        "echo $runs $other $$ > \"$WINDLASS_RESULT\"",
    ),
];

#[tokio::test]
async fn handlers_that_share_a_context_run_their_before_once() {
    for (lang, before, body) in BEFORES {
        let rig = Rig::new();
        let result = async |jobtype: &str, kind: &str| {
            let eid = Some("shared".to_owned());
            let before = Some(before.replace("KIND", kind));
            let mut run = rig.start("acme", jobtype, &Handler { eid, before, ..handler(lang, body) }, &["x"]);
            let told = outcomes(&mut run, 1).await.remove(0);
            assert_eq!(told.code, "OK", "{lang}: {told:?}");
            String::from_utf8_lossy(&told.result).trim().to_owned()
        };
        let first = result("a", "1").await;
        assert!(first.starts_with("1 1 "), "{lang}: {first}");
        assert_eq!(result("b", "1").await, first, "{lang}: the same process, and nothing was run twice");
        assert_eq!(result("a", "1").await, first);
        // A handler with another `before` has a context of its own, and each context keeps its state.
        let other = result("c", "2").await;
        assert!(other.starts_with("1 2 ") && other != first, "{lang}: {other}");
        assert_eq!((result("b", "1").await, result("c", "2").await), (first, other), "{lang}");
    }
}

#[tokio::test]
async fn a_result_that_is_too_large_is_too_much_in_every_language() {
    for (lang, body) in [
        (Lang::Node, "console.log('J: next|x'); return 'x'.repeat(Number(payload))"),
        (Lang::Python, "print('J: next|x')\nreturn 'x' * int(payload)"),
        (Lang::Php, "echo \"J: next|x\\n\"; return str_repeat('x', (int) $payload);"),
        (Lang::Sh, "echo 'J: next|x'; read n; head -c $n /dev/zero > \"$WINDLASS_RESULT\""),
    ] {
        let rig = Rig::with(|settings| settings.result_bytes_max = 100_000);
        // Slightly above the limit, and far above.
        let told = rig.run(&handler(lang, body), &["100001", "100000", "1000000", "1"]).await;
        let codes: Vec<&str> = told.iter().map(|outcome| outcome.code.as_str()).collect();
        assert_eq!(codes, ["TOO_MUCH", "OK", "TOO_MUCH", "OK"], "{lang}: {told:?}");
        let asked: Vec<usize> = told.iter().map(|outcome| outcome.new_jobs.len()).collect();
        assert_eq!(asked, [0, 1, 0, 1], "{lang}: a job that is run again asks again");
        assert!(told[0].message.as_ref().unwrap().contains("100000 bytes"), "{:?}", told[0].message);
    }
}

#[tokio::test]
async fn too_many_new_jobs_are_none() {
    let rig = Rig::with(|settings| settings.new_jobs_max = 3);
    let told = rig.run(&handler(Lang::Sh, "read n; seq $n | sed 's/^/J: next|/'"), &["3", "4"]).await;
    assert_eq!((told[0].new_jobs.len(), told[1].new_jobs.len()), (3, 0));
    assert_eq!(told[1].code, "TOO_MUCH");
}

/// Each waits for the file `go` in its folder, and removes it.
const GATED: [(Lang, &str, &str); 4] = [
    (
        Lang::Node,
        "const fs = require('fs'); while (!fs.existsSync('go')) await new Promise((r) => setTimeout(r, 5)); fs.unlinkSync('go')",
        "console.log('after')",
    ),
    (
        Lang::Python,
        "import os, time\nwhile not os.path.exists('go'): time.sleep(0.005)\nos.unlink('go')",
        "print('after')",
    ),
    (Lang::Php, "while (!@rename('go', 'gone')) usleep(5000);", "echo \"after\\n\";"),
    (Lang::Sh, "while [ ! -e go ]; do sleep 0.005; done; rm go", "echo after"),
];

#[tokio::test]
async fn a_batch_that_is_cut_gives_back_what_has_not_begun_and_keeps_its_context() {
    for (lang, body, after) in GATED {
        let rig = Rig::new();
        let gated = Handler { after_each: Some(after.to_owned()), ..handler(lang, body) };
        let mut run = rig.start("acme", "a", &gated, &["0", "1", "2", "3", "4"]);
        let go = rig.first_context().join("go");
        let let_one_end = async || {
            while std::fs::write(&go, "").is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            while go.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // Longer than the interval in which jobs sent together are started without an acknowledgement.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let_one_end().await;
        // The second waits for its file when the batch is cut. If it has not started yet, it is not started.
        run.cut();
        while std::fs::write(&go, "").is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // One more may have started before the cut arrived: it must not wait for ever.
        let told = {
            let mut ending = std::pin::pin!(ends(&mut run, 5));
            loop {
                tokio::select! {
                    told = &mut ending => break told,
                    () = tokio::time::sleep(Duration::from_secs(1)) => drop(std::fs::write(&go, "")),
                }
            }
        };
        let done = told.iter().take_while(|ended| matches!(ended, Ended::Done(_))).count();
        assert!((1..=4).contains(&done), "{lang}: {told:?}");
        assert!(told[done..].iter().all(|ended| matches!(ended, Ended::Unrun(_))), "{lang}: {told:?}");
        let Ended::Done(last) = &told[done - 1] else { unreachable!() };
        assert!(log(last).contains("after"), "{lang}: afterEach was run: {last:?}");
        assert_eq!(rig.handlers.warm().len(), 1, "{lang}: its context is kept");
        let _ = std::fs::write(&go, "");
        let mut run = rig.start("acme", "a", &gated, &["5"]);
        assert_eq!(outcomes(&mut run, 1).await[0].code, "OK", "{lang}: and runs the next batch");
    }
}

#[tokio::test]
async fn a_batch_takes_no_longer_than_it_may() {
    let rig = Rig::with(|settings| settings.batch_time = Duration::from_millis(1));
    for lang in [Lang::Python, Lang::Sh] {
        let body = if lang == Lang::Sh { "sleep 0.03" } else { "import time\ntime.sleep(0.03)" };
        let told = ends(&mut rig.start("acme", lang.name(), &handler(lang, body), &["x"; 5]), 5).await;
        let done = told.iter().filter(|ended| matches!(ended, Ended::Done(_))).count();
        assert_eq!(done, 1, "{lang}: one is run, the rest another time: {told:?}");
    }
}
