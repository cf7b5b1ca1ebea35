//! Number, assignment and lifetime of contexts.

use crate::rig::{PATIENCE, Rig, batch, brief, briefs, handler, outcomes, sh};
use std::time::{Duration, Instant};
use windlass_core::handler::NoRoom;
use windlass_runners::handlers::{CONTEXTS, Handler, HandlerOptions, Lang, Network};

const OWN_PROCESS: &str = "echo $$ > \"$WINDLASS_RESULT\"";

async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "it never comes: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_idle_context_is_ended_after_a_while() {
    let rig =
        Rig::with(|settings| (settings.idle, settings.namespaces) = (Duration::from_millis(300), false));
    let first = rig.one(&sh(OWN_PROCESS), "x").await;
    wait_until("no context", || rig.handlers.warm().is_empty()).await;
    let process = format!("/proc/{}", String::from_utf8_lossy(&first.result).trim());
    wait_until("no process", || !std::path::Path::new(&process).exists()).await;
    wait_until("no folder", || {
        std::fs::read_dir(rig.folder.path().join("contexts")).unwrap().next().is_none()
    })
    .await;
    assert_eq!(rig.one(&sh("true"), "x").await.exitcode, 200);
}

#[tokio::test]
async fn an_idle_context_stands_still_and_goes_on_with_the_next_batch() {
    let rig = Rig::with(|settings| settings.namespaces = false);
    let ticking = "import os, threading, time\nstarted = globals().setdefault('started', [])\nif not started:\n    \
                   started.append(threading.Thread(target=lambda: [time.sleep(0.01) for _ in range(10**9)], daemon=True))\n    \
                   started[0].start()\nreturn str(os.getpid())";
    let first = rig.one(&handler(Lang::Python, ticking), "x").await;
    let process = String::from_utf8_lossy(&first.result).trim().to_owned();
    wait_until("it is stopped", || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    })
    .await;
    let second = rig.one(&handler(Lang::Python, ticking), "x").await;
    assert_eq!((second.exitcode, second.result), (200, first.result), "the same process");
}

#[tokio::test]
async fn idle_contexts_make_room_for_others_and_there_are_never_more_than_allowed() {
    let rig = Rig::with(|settings| settings.contexts_max = 1);
    for client in ["a", "b", "a"] {
        assert!(rig.has_room(client, "t", &sh("true")));
        assert_eq!(outcomes(&mut rig.start(client, "t", &sh("true"), &["x"]), 1).await[0].exitcode, 200);
        assert_eq!(rig.handlers.warm(), [(client.to_owned(), "t".to_owned())]);
    }
    // Four at once, run one after the other.
    let mut runs: Vec<_> =
        (0..4).map(|n| rig.start(&format!("c{n}"), "t", &sh("sleep 0.1"), &["x"])).collect();
    for run in &mut runs {
        assert_eq!(outcomes(run, 1).await[0].exitcode, 200);
    }
}

#[tokio::test]
async fn one_type_has_its_share_of_contexts_and_waits_for_it() {
    let rig = Rig::with(|settings| settings.contexts_per_type = 1);
    let waiting = sh(&format!("while [ ! -e go ]; do sleep 0.02; done; {OWN_PROCESS}"));
    let mut first = rig.start("a", "t", &waiting, &["x"]);
    wait_until("it runs", || !rig.has_room("a", "t", &sh("true"))).await;
    assert!(rig.has_room("b", "t", &sh("true")), "another client is not concerned");
    let mut second = rig.start("a", "t", &waiting, &["x"]);
    let go = rig.first_context().join("go");
    wait_until("its folder", || std::fs::write(&go, "").is_ok()).await;
    let first = outcomes(&mut first, 1).await;
    assert_eq!(first[0].result, outcomes(&mut second, 1).await[0].result, "the same process");
}

#[tokio::test]
async fn a_place_that_is_booked_is_nobody_elses_until_its_batch_has_ended_or_it_is_given_up() {
    let rig = Rig::with(|settings| (settings.contexts_max, settings.contexts_per_type) = (2, 1));
    let quick = sh("true");
    let first = rig.handlers.book("a", "t", &quick).ok().unwrap();
    assert!(!rig.has_room("a", "t", &quick), "the type has its share");
    let second = rig.handlers.book("b", "t", &quick).ok().unwrap();
    assert!(!rig.has_room("c", "t", &quick), "both places are booked");
    drop(second);
    assert!(rig.has_room("c", "t", &quick));
    // An idle context serves the next booking.
    let mut run = first.start(batch("a", "t", &quick, &["x"]));
    assert_eq!(outcomes(&mut run, 1).await[0].exitcode, 200);
    wait_until("room", || rig.has_room("a", "t", &quick)).await;
    let (warm, cold) = (rig.handlers.book("a", "t", &quick), rig.handlers.book("b", "t", &quick));
    assert!(warm.is_ok() && cold.is_ok() && !rig.has_room("c", "t", &quick));
    // Runs without a booking take free contexts; booked runs follow.
    let mut unbooked = rig.start("c", "t", &quick, &["x"]);
    assert_eq!(outcomes(&mut unbooked, 1).await[0].exitcode, 200);
    let mut runs = [("a", warm), ("b", cold)].map(|(client, booking)| {
        let booking = booking.ok().unwrap();
        booking.start(batch(client, "t", &quick, &["x"]))
    });
    for run in &mut runs {
        assert_eq!(outcomes(run, 1).await[0].exitcode, 200);
    }
    wait_until("room", || rig.has_room("c", "t", &quick)).await;
}

#[tokio::test]
async fn a_batch_that_cannot_be_run_gives_its_place_back_and_says_so() {
    let rig = Rig::with(|settings| {
        settings.contexts_max = 1;
        settings.interpreters.php = "no-such-php".to_owned();
    });
    let missing = handler(Lang::Php, "return 1;");
    let booking = rig.handlers.book("a", "t", &missing).ok().unwrap();
    let room = rig.handlers.room();
    let mut run = booking.start(batch("a", "t", &missing, &["x"]));
    assert_eq!(outcomes(&mut run, 1).await[0].code, "BAD_HANDLER");
    tokio::time::timeout(PATIENCE, room).await.unwrap();
    assert!(rig.has_room("b", "t", &sh("true")));
}

#[tokio::test]
async fn whoever_drops_a_batch_stops_it() {
    let rig = Rig::with_known_processes();
    let marker = rig.first_context().join("started");
    let run = rig.start("a", "t", &sh("echo $$ > started; sleep 1000"), &["x", "y"]);
    wait_until("it runs", || std::fs::read(&marker).is_ok_and(|text| text.ends_with(b"\n"))).await;
    let process = format!("/proc/{}", std::fs::read_to_string(&marker).unwrap().trim());
    assert!(std::path::Path::new(&process).exists());
    drop(run);
    wait_until("no process", || !std::path::Path::new(&process).exists()).await;
    wait_until("room", || rig.has_room("a", "t", &sh("true"))).await;
}

#[tokio::test]
async fn a_context_that_grows_is_replaced_before_it_breaks() {
    let rig = Rig::with(|settings| settings.memory_bytes_max = 300 << 20);
    let hoard = Handler {
        before: Some("hoard = []".to_owned()),
        ..handler(Lang::Python, "hoard.append(b'x' * 100_000_000)\nreturn str(len(hoard))")
    };
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(brief(&rig.one(&hoard, "x").await));
    }
    assert_eq!(seen, ["200 OK 1", "200 OK 2", "200 OK 1", "200 OK 2"]);
}

#[tokio::test]
async fn a_network_is_there_for_those_who_ask_where_the_operator_allows_it() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let body = format!(
        "import socket\nsocket.create_connection(('127.0.0.1', {port})).close()\n\
         try: socket.socket(socket.AF_UNIX)\nexcept OSError: return 'internet only'\nreturn 'too much'"
    );
    let quiet = handler(Lang::Python, &body);
    let options = HandlerOptions { network: true, ..HandlerOptions::default() };
    let asking = Handler { options, ..quiet.clone() };
    for (network, handler, expected) in [
        (Network::Never, &asking, "500 EXCEPTION"),
        (Network::WhenAsked, &quiet, "500 EXCEPTION"),
        (Network::WhenAsked, &asking, "200 OK internet only"),
        (Network::Always, &quiet, "200 OK internet only"),
    ] {
        let rig = Rig::with(|settings| settings.network = network);
        assert_eq!(briefs(&rig.run(handler, &["x"]).await), [expected], "{network:?}");
    }
}

#[tokio::test]
async fn one_client_leaves_a_place_for_others() {
    let rig = Rig::with(|settings| (settings.contexts_max, settings.contexts_per_client) = (3, 2));
    let quick = sh("true");
    let held = [rig.handlers.book("a", "t", &quick), rig.handlers.book("a", "u", &quick)];
    assert!(held.iter().all(Result::is_ok));
    assert_eq!(rig.handlers.book("a", "v", &quick).err(), Some(NoRoom::OwnShare));
    let other = rig.handlers.book("b", "t", &quick);
    assert!(other.is_ok());
    assert_eq!(rig.handlers.book("c", "t", &quick).err(), Some(NoRoom::Full(CONTEXTS)));
    drop(held);
    assert!(rig.has_room("a", "v", &quick) && rig.has_room("c", "t", &quick));
}
