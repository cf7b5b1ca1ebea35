//! http handlers, with a server whose responses the test chooses.

use crate::rig::{Rig, batch, briefs, ends, handler, log, new_jobs, outcomes};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass_core::handler::{Ended, NoRoom, Run};
use windlass_runners::handlers::{Handler, HandlerOptions, Lang};

/// Server that responds with the status and body that `answer` returns for a request body. `None`: closes the
/// connection.
struct Site {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Site {
    fn start(answer: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (requests, connections) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicUsize>::default());
        let (answer, seen, met) = (Arc::new(answer), requests.clone(), connections.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                met.fetch_add(1, Ordering::SeqCst);
                let (answer, seen) = (answer.clone(), seen.clone());
                std::thread::spawn(move || serve(stream, &*answer, &seen));
            }
        });
        Site { address, requests, connections }
    }

    fn handler(&self, options: HandlerOptions) -> Handler {
        Handler { options, ..handler(Lang::Http, &format!("http://{}/run?a=b", self.address)) }
    }
}

fn serve(
    stream: TcpStream,
    answer: &dyn Fn(&str) -> Option<(u16, String)>,
    seen: &Mutex<Vec<String>>,
) -> Option<()> {
    let mut from = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if from.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let lower = head.to_lowercase();
        let length = lower.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
        let mut body = vec![0; length];
        from.read_exact(&mut body).ok()?;
        let body = String::from_utf8_lossy(&body).into_owned();
        let first = head.lines().next()?.to_owned();
        seen.lock().unwrap().push(format!("{first}|{body}"));
        let (status, text) = answer(&body)?;
        let reply = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        (&stream).write_all(reply.as_bytes()).ok()?;
    }
}

#[tokio::test]
async fn each_job_is_posted_and_the_status_of_the_answer_is_its_own() {
    let site =
        Site::start(|body| Some((body.trim().parse().unwrap_or(200), format!("got {body}J: next|x\n"))));
    let rig = Rig::new();
    let handler = site.handler(HandlerOptions::default());
    let told = rig.run(&handler, &["200", "404", "503", "302", "word | bar"]).await;
    let codes: Vec<String> = told.iter().map(|o| format!("{} {}", o.exitcode, o.code)).collect();
    assert_eq!(codes, ["200 OK", "404 FAILED", "503 ERROR", "302 RETRY", "200 OK"]);
    assert_eq!(told[4].result, "got word | bar\n", "without the line that is a job");
    assert_eq!(new_jobs(&told[4]), ["next=x"]);
    let mut requests = site.requests.lock().unwrap().clone();
    requests.sort();
    assert_eq!(requests[0], "POST /run?a=b HTTP/1.1|200\n");
    assert_eq!(requests.len(), 5);
}

#[tokio::test]
async fn connections_are_kept_and_never_too_many() {
    let site = Site::start(|_| Some((200, String::new())));
    let rig = Rig::new();
    let handler = site.handler(HandlerOptions::default());
    for _ in 0..5 {
        let payloads = ["x"; 50];
        assert!(rig.run(&handler, &payloads).await.iter().all(|outcome| outcome.exitcode == 200));
    }
    let connections = site.connections.load(Ordering::SeqCst);
    assert!(connections <= 10, "{connections} connections for 250 jobs");
}

#[tokio::test]
async fn a_batch_is_one_request_and_a_line_each() {
    let site = Site::start(|body| match body.lines().next() {
        Some("short") => Some((200, "200\n200\n".to_owned())),
        Some("broken") => Some((500, "200\noops\n200\n".to_owned())),
        _ => Some((200, "200 data\n# a comment\n#J: next|x\n200\n500\n".to_owned())),
    });
    let rig = Rig::new();
    let handler = site.handler(HandlerOptions { batch: true, ..HandlerOptions::default() });
    let told = rig.run(&handler, &["a", "b", "c"]).await;
    assert_eq!(briefs(&told), ["200 OK data", "200 OK", "500 ERROR"]);
    assert_eq!(new_jobs(&told[0]), ["next=x"]);
    assert_eq!(site.requests.lock().unwrap()[0], "POST /run?a=b HTTP/1.1|a\nb\nc\n");
    let told = rig.run(&handler, &["short", "b", "c"]).await;
    assert_eq!(briefs(&told), ["200 OK", "200 OK", "500 NO_RESPONSE"]);
    let told = rig.run(&handler, &["broken", "b", "c"]).await;
    assert_eq!(briefs(&told), ["200 OK", "500 INVALID_RESPONSE", "500 INVALID_RESPONSE"]);
}

#[tokio::test]
async fn no_answer_is_an_error_with_the_name_people_look_up() {
    let rig = Rig::new();
    let told_code = async |handler: &Handler| {
        let told = rig.run(handler, &["x"]).await;
        assert_eq!(told[0].exitcode, 500, "{told:?}");
        told[0].code.clone()
    };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nobody = handler(Lang::Http, &format!("http://127.0.0.1:{port}/"));
    assert_eq!(told_code(&nobody).await, "ECONNREFUSED");
    let batch = HandlerOptions { batch: true, ..HandlerOptions::default() };
    assert_eq!(told_code(&Handler { options: batch, ..nobody }).await, "ECONNREFUSED");
    let silent = Site::start(|_| None);
    assert_eq!(told_code(&silent.handler(HandlerOptions::default())).await, "ECONNRESET");
    let slow = Site::start(|_| {
        std::thread::sleep(Duration::from_secs(100));
        None
    });
    let timeout = HandlerOptions { timeout: Some(Duration::from_secs(1)), ..HandlerOptions::default() };
    assert_eq!(told_code(&slow.handler(timeout)).await, "ETIMEDOUT");
    assert_eq!(told_code(&handler(Lang::Http, "http://no-such-host.invalid/")).await, "ENOTFOUND");
    assert_eq!(told_code(&handler(Lang::Http, "ftp://127.0.0.1/")).await, "BAD_HANDLER");
}

#[tokio::test]
async fn an_address_that_is_not_allowed_is_not_called() {
    let rig = Rig::new();
    for url in ["http://169.254.169.254/latest", "https://10.1.2.3/", "http://[::ffff:10.1.2.3]/"] {
        let told = rig.run(&handler(Lang::Http, url), &["x"]).await;
        assert_eq!(told[0].code, "BAD_HANDLER", "{url}: {told:?}");
        assert!(told[0].message.as_ref().unwrap().contains("may not call"), "{url}");
    }
    assert!(rig.handlers.check(&handler(Lang::Http, "nonsense")).unwrap_err().contains("URL"));
}

#[tokio::test]
async fn a_job_that_is_stopped_is_told_at_once_and_the_others_go_on() {
    let site = Site::start(|body| {
        if body.starts_with("slow") {
            std::thread::sleep(Duration::from_secs(100));
        }
        Some((200, String::new()))
    });
    let rig = Rig::new();
    let handler = site.handler(HandlerOptions::default());
    let mut run = rig.start("acme", "a", &handler, &["slow", "quick", "slow"]);
    run.stop(0);
    run.stop(2);
    let told = ends(&mut run, 3).await;
    let unrun: Vec<bool> = told.iter().map(|ended| matches!(ended, Ended::Unrun(_))).collect();
    assert_eq!(unrun, [true, false, true], "{told:?}");
}

#[tokio::test]
async fn there_is_room_for_so_many_batches_and_then_again() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let site = Site::start(move |_| {
        let _ = wait.lock().unwrap().recv();
        Some((200, String::new()))
    });
    let rig = Rig::with(|settings| settings.http_batches_max = 1);
    let handler = site.handler(HandlerOptions::default());
    let booking = rig.handlers.book("acme", "a", &handler).ok().unwrap();
    assert!(!rig.has_room("acme", "a", &handler), "the only place is booked");
    let mut run = booking.start(batch("acme", "a", &handler, &["x"]));
    while site.requests.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!rig.has_room("acme", "a", &handler));
    let room = rig.handlers.room();
    release.send(()).unwrap();
    assert_eq!(outcomes(&mut run, 1).await[0].exitcode, 200);
    tokio::time::timeout(crate::rig::PATIENCE, room).await.unwrap();
    assert!(rig.has_room("acme", "a", &handler));
}

#[tokio::test]
async fn an_answer_without_an_end_is_cut() {
    let site = Site::start(|_| Some((200, "x".repeat(300_000))));
    let rig =
        Rig::with(|settings| (settings.result_bytes_max, settings.new_jobs_bytes_max) = (100_000, 100_000));
    let told = rig.run(&site.handler(HandlerOptions::default()), &["x"]).await;
    assert_eq!(told[0].code, "TOO_MUCH", "{}", log(&told[0]));
}

#[tokio::test]
async fn a_jobs_time_begins_when_it_is_sent() {
    let site = Site::start(|_| {
        std::thread::sleep(Duration::from_secs(2));
        Some((200, String::new()))
    });
    let rig = Rig::new();
    // The last of them wait four seconds for a connection.
    let timeout = HandlerOptions { timeout: Some(Duration::from_secs(5)), ..HandlerOptions::default() };
    let handler = site.handler(timeout);
    let mut runs: Vec<_> = (0..3).map(|_| rig.start("acme", "a", &handler, &["x"; 10])).collect();
    for run in &mut runs {
        let told = outcomes(run, 10).await;
        assert!(told.iter().all(|outcome| outcome.code == "OK"), "{:?}", briefs(&told));
        assert!(told.iter().all(|outcome| outcome.run_ms < 4_500), "waiting is not running");
    }
    assert!(site.connections.load(Ordering::SeqCst) <= 10);
}

#[tokio::test]
async fn no_more_jobs_are_asked_for_than_can_be_sent() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let site = Site::start(move |body| {
        if body.starts_with("slow") {
            let _ = wait.lock().unwrap().recv();
        }
        Some((200, String::new()))
    });
    let rig = Rig::new();
    let handler = site.handler(HandlerOptions { batch_size: Some(50), ..HandlerOptions::default() });
    let booking = rig.handlers.book("acme", "a", &handler).ok().unwrap();
    assert_eq!(booking.jobs_max(), 10, "so many connections there are");
    assert_eq!(rig.handlers.book("acme", "a", &handler).err(), Some(NoRoom::OwnShare));
    assert!(rig.has_room("other", "a", &handler), "another client has its own");
    let room = rig.handlers.room();
    let payloads: Vec<&str> = std::iter::once("slow").chain(["quick"; 9]).collect();
    let mut run = booking.start(batch("acme", "a", &handler, &payloads));
    // An ended job frees its connection, although the batch continues.
    tokio::time::timeout(crate::rig::PATIENCE, room).await.unwrap();
    for _ in 0..9 {
        assert_ne!(run.next().await.unwrap().0, 0);
    }
    assert_eq!(rig.handlers.book("acme", "a", &handler).ok().unwrap().jobs_max(), 9);
    release.send(()).unwrap();
    assert_eq!(run.next().await.unwrap().0, 0);
    // A batch of one job uses a single connection.
    let mut run = rig.start("acme", "a", &handler, &["slow"]);
    let booked = async {
        while rig.handlers.book("acme", "a", &handler).ok().is_none_or(|booking| booking.jobs_max() != 9) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::rig::PATIENCE, booked).await.unwrap();
    release.send(()).unwrap();
    assert_eq!(run.next().await.unwrap().0, 0);
    // All of them in one request: one connection is enough.
    let whole = HandlerOptions { batch_size: Some(50), batch: true, ..HandlerOptions::default() };
    assert_eq!(rig.handlers.book("acme", "a", &site.handler(whole)).ok().unwrap().jobs_max(), 50);
}

/// Server that writes this many bytes as long as the client reads; returns the number written.
fn pour(bytes: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let written = Arc::<AtomicUsize>::default();
    let count = written.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let _ = stream.write_all(b"HTTP/1.1 200 X\r\nConnection: close\r\n\r\n");
            let piece = vec![b'x'; 64 << 10];
            while count.load(Ordering::SeqCst) < bytes && stream.write_all(&piece).is_ok() {
                count.fetch_add(piece.len(), Ordering::SeqCst);
            }
        }
    });
    (address, written)
}

#[tokio::test]
async fn an_answer_that_is_no_result_any_more_is_not_read_to_its_end() {
    let (address, written) = pour(60 << 20);
    let rig = Rig::with(|settings| settings.result_bytes_max = 100_000);
    let told = rig.run(&handler(Lang::Http, &format!("http://{address}/")), &["x"]).await;
    assert_eq!(told[0].code, "TOO_MUCH", "{told:?}");
    // At most the contents of the kernel's buffers.
    assert!(written.load(Ordering::SeqCst) < 30 << 20, "{written:?}");
}

#[tokio::test]
async fn answers_that_are_held_keep_others_waiting_and_not_failing() {
    let site = Site::start(|_| Some((200, "x".repeat(1_000_000))));
    let rig = Rig::with(|settings| settings.answers_bytes_max = 2_000_000);
    let handler = site.handler(HandlerOptions::default());
    let mut run = rig.start("acme", "a", &handler, &["x"; 6]);
    let mut held = Vec::new();
    while site.requests.lock().unwrap().len() < 6 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    while let Ok(Some(ended)) = tokio::time::timeout(Duration::from_secs(1), run.next()).await {
        held.push(ended);
    }
    assert!(!held.is_empty() && held.len() < 4, "{} answers are held at once", held.len());
    let mut told = held.len();
    drop(held);
    while let Some((_, ended)) = run.next().await {
        assert!(matches!(ended, Ended::Done(outcome) if outcome.result.len() == 1_000_000));
        told += 1;
    }
    assert_eq!(told, 6);
}

/// Site whose answers begin and do not end: the address.
fn endless_site(bytes: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4_096]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
                let _ = stream.write_all("x".repeat(bytes).as_bytes());
                // Until the other side closes it.
                let _ = stream.read(&mut [0]);
            });
        }
    });
    address
}

#[tokio::test]
async fn a_client_with_large_slow_answers_does_not_keep_those_of_others_from_being_read() {
    let site = Site::start(|_| Some((200, "y".repeat(100_000))));
    let rig = Rig::with(|settings| {
        (settings.answers_bytes_max, settings.answers_bytes_per_client) = (2 << 20, 7 << 18);
        settings.new_jobs_bytes_max = 100 << 20;
    });
    let endless = handler(Lang::Http, &format!("http://{}/", endless_site(1 << 20)));
    let mut big = rig.start("big", "a", &endless, &["x"; 10]);
    // Nothing that is read here of the big client ends.
    assert!(tokio::time::timeout(Duration::from_millis(500), big.next()).await.is_err());
    let mut small = rig.start("small", "a", &site.handler(HandlerOptions::default()), &["x"; 3]);
    for outcome in outcomes(&mut small, 3).await {
        assert_eq!((outcome.exitcode, outcome.result.len()), (200, 100_000));
    }
}
