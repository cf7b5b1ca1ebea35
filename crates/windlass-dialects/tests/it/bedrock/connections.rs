//! Headers common to all commands, limits, tokens, and commands that do not concern jobs.

use super::*;
use windlass_core::Tenant;
use windlass_dialects::auth::{Role, TokenRecord, Tokens, generate_token};
use windlass_dialects::listener::ListenerLimits;

#[tokio::test]
async fn the_server_answers_about_itself() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let ping = c.ask("ping", &[]).await;
        assert_eq!((ping.status.as_str(), ping.body.as_str()), ("200 OK", ""));
        assert_eq!(ping.header("commitCount"), None);
        let status = c.ask("Status", &[]).await;
        assert_eq!(status.header("commitCount"), None);
        let json = status.json();
        assert_eq!((&json["isLeader"], &json["state"]), (&true.into(), &"LEADING".into()));
        assert_eq!(json["plugins"][0]["name"], "DB");
        assert_eq!(json["plugins"][1]["name"], "Jobs");
        let keys: Vec<String> = json.as_object().unwrap().keys().cloned().collect();
        for key in ["commandCount", "CommitCount", "host", "isDetached", "peerList", "priority", "version"] {
            assert!(keys.contains(&key.to_owned()), "{key}");
        }
        let unknown = c.ask("MakeCoffee", &[]).await;
        assert_eq!(unknown.status, "430 Unrecognized command");
        assert!(unknown.header("commitCount").is_some());
        c.send("GET /status/isFollower HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert_eq!(c.reply().await.unwrap().status, "HTTP/1.1 500 Not Following. State=LEADING");
        c.send("GET /status/handlingCommands HTTP/1.1\r\n\r\n").await;
        assert_eq!(c.reply().await.unwrap().status, "HTTP/1.1 200 LEADING");
    }
}

#[tokio::test]
async fn replies_tell_commits_and_times_in_order() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let made = c.ask("CreateJob", &[("name", "a")]).await;
    let names: Vec<&str> = made.headers.iter().map(|(name, _)| name.as_str()).collect();
    let expected =
        ["commitCount", "nodeName", "processTime", "totalTime", "unaccountedTime", "Content-Length"];
    assert_eq!(names, expected);
    assert!(made.header("processTime").unwrap().parse::<u64>().unwrap() > 0, "clients look for that");
    let asked = c.ask("QueryJob", &[("jobID", "1")]).await;
    assert!(asked.header("processTime").is_none() && asked.header("commitCount").is_some());
    let refused = c.ask("FinishJob", &[("jobID", "1")]).await;
    assert_eq!(refused.body, "");
    assert!(refused.header("processTime").is_none() && refused.header("commitCount").is_some());
}

/// Behavior of the PHP client: it stores the commit count of a reply with `processTime` and sends it from
/// then on.
#[tokio::test]
async fn the_commit_count_never_goes_back_and_may_be_sent_back() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let mut last = 0;
    for _ in 0..5 {
        let count = last.to_string();
        let reply = c.ask("CreateJob", &[("name", "a"), ("commitCount", &count)]).await.ok();
        let now: u64 = reply.header("commitCount").unwrap().parse().unwrap();
        assert!(now > last, "no two commits have the same");
        last = now;
    }
    let future = (last * 2).to_string();
    assert_eq!(c.status("GetJob", &[("name", "a"), ("commitCount", &future)]).await, "200 OK");
}

#[tokio::test]
async fn unknown_headers_are_ignored() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let headers = [
        ("name", "a"),
        ("idempotent", "true"),
        ("lastIP", "1.2.3.4"),
        ("requestID", "x1"),
        ("writeConsistency", "ASYNC"),
        ("logParam", "z"),
    ];
    assert_eq!(c.status("CreateJob", &headers).await, "200 OK");
}

#[tokio::test]
async fn a_connection_is_closed_when_asked() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let reply = c.ask("Ping", &[("Connection", "close")]).await;
    assert_eq!(reply.header("Connection"), Some("close"));
    assert!(c.reply().await.is_none());
}

#[tokio::test]
async fn a_forgotten_command_is_carried_out_after_the_connection_is_closed() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let reply = c.ask("CreateJob", &[("name", "a"), ("Connection", "forget")]).await;
    assert_eq!(reply.status, "202 Successfully queued");
    assert_eq!((reply.header("Connection"), reply.header("commitCount")), (Some("close"), None));
    assert!(c.reply().await.is_none());
    let mut c = server.connect().await;
    c.becomes(1, "QUEUED").await;
    let mut forgetful = server.connect().await;
    forgetful.ask("GetJob", &[("name", "a"), ("Connection", "forget")]).await;
    c.becomes(1, "QUEUED").await;
    eventually(async || c.status("GetJob", &[("name", "a")]).await == "200 OK").await;
}

#[tokio::test]
async fn a_command_for_later_is_carried_out_then() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let in_a_minute = ((START_MS + 60_000) * 1_000).to_string();
    let reply = c.ask("CreateJob", &[("name", "a"), ("commandExecuteTime", &in_a_minute)]).await;
    assert_eq!(reply.status, "202 Successfully queued");
    assert_eq!(c.state(1).await, "gone");
    server.advance_s(60);
    c.becomes(1, "QUEUED").await;
    let past = c.ask("CreateJob", &[("name", "b"), ("commandExecuteTime", "1000")]).await;
    assert_eq!(past.status, "200 OK");
}

#[tokio::test]
async fn no_time_is_no_answer() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    for verb in ["CreateJob", "GetJob", "QueryJob", "Ping"] {
        let status = c.status(verb, &[("name", "a"), ("jobID", "1"), ("timeout", "0")]).await;
        assert_eq!(status, "555 Timeout", "{verb}");
    }
    assert_eq!(
        c.status("CreateJob", &[("name", "a"), ("timeout", "5000"), ("processTimeout", "5000")]).await,
        "200 OK"
    );
}

#[tokio::test]
async fn an_http_tail_is_harmless_but_for_cancelling_in_the_current_profile() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let parent = c.ask("CreateJob / HTTP/1.1", &[("name", "p")]).await.ok().job_id();
        c.ask("GETJOB / HTTP/1.1", &[("name", "p")]).await.ok();
        let child = c.create("c", &[("parentJobID", &parent.to_string())]).await;
        c.create("c2", &[("parentJobID", &parent.to_string())]).await;
        c.ask("FinishJob / HTTP/1.1", &[("jobID", &parent.to_string())]).await.ok();
        c.ask("CancelJob / HTTP/1.1", &[("jobID", &child.to_string())]).await.ok();
        let expected = if profile == Profile::Seed { "CANCELLED" } else { "QUEUED" };
        assert_eq!(c.state(child).await, expected);
        assert_eq!(c.to("CancelJob", child, &[]).await, "200 OK");
        assert_eq!(c.state(child).await, "CANCELLED");
    }
}

struct Guarded {
    server: Bedrock,
    tokens: Vec<(Role, String)>,
}

async fn guarded() -> Guarded {
    let mut tokens = vec![];
    let mut records = vec![];
    for role in Role::ALL {
        let token = generate_token().unwrap();
        records.push(TokenRecord::of(&token, Tenant::new("team").unwrap(), role, None).unwrap());
        tokens.push((role, token));
    }
    let known = Arc::new(Tokens::new(records).unwrap());
    let server = Bedrock::with(ServerOptions { tokens: known, ..ServerOptions::default() }).await;
    Guarded { server, tokens }
}

#[tokio::test]
async fn with_tokens_only_their_holders_are_served() {
    let Guarded { server, tokens } = guarded().await;
    let mut c = server.connect().await;
    let needed = "401 Unauthorized: send a valid token in the header token";
    assert_eq!(c.status("CreateJob", &[("name", "a")]).await, needed);
    assert_eq!(c.status("GetJob", &[("name", "a"), ("token", "wl_wrong")]).await, needed);
    assert_eq!(c.status("Ping", &[]).await, "200 OK", "everyone may ask whether it is there");
    let of = |role: Role| tokens.iter().find(|(known, _)| *known == role).unwrap().1.as_str();
    let worker = of(Role::Worker);
    let id = c.ask("CreateJob", &[("name", "a"), ("token", worker)]).await.ok().job_id();
    let bearer = format!("Bearer {}", of(Role::Viewer));
    let asked = c.ask("QueryJob", &[("jobID", &id.to_string()), ("authorization", &bearer)]).await;
    assert_eq!(asked.status, "200 OK");
    let status = c.status("GetJob", &[("name", "a"), ("authorization", &bearer)]).await;
    assert_eq!(status, "403 Forbidden: this command requires a token with the role worker");
    let status = c.status("DeleteJob", &[("jobID", &id.to_string()), ("token", worker)]).await;
    assert_eq!(status, "403 Forbidden: this command requires a token with the role operator");
    let jobs =
        server.engine.get(&Tenant::default(), vec![windlass_core::JobId::new(id).unwrap()]).await.unwrap();
    assert!(jobs[0].is_none(), "it is the token's tenant's");
    let delete = [("query", "DELETE FROM jobs WHERE jobID = 1;"), ("token", worker)];
    assert_eq!(c.status("Query", &delete).await, "502 Query aborted", "writing by SQL is for admins");
}

#[tokio::test]
async fn too_many_connections_are_turned_away() {
    let limits = ListenerLimits { connections_max: 2, ..ListenerLimits::default() };
    let server = Bedrock::with(ServerOptions { limits, ..ServerOptions::default() }).await;
    let (mut a, mut b) = (server.connect().await, server.connect().await);
    assert_eq!(a.status("Ping", &[]).await, "200 OK");
    assert_eq!(b.status("Ping", &[]).await, "200 OK");
    let mut c = server.connect().await;
    assert_eq!(c.reply().await.unwrap().status, "503 Too many connections");
    assert!(c.reply().await.is_none());
    drop(a);
    eventually(async || server.connect().await.ask_or_nothing("Ping").await == Some("200 OK".to_owned()))
        .await;
}

#[tokio::test]
async fn a_request_that_stops_in_the_middle_is_cut_off() {
    let limits = ListenerLimits { idle_timeout: Duration::from_millis(50), ..ListenerLimits::default() };
    let server = Bedrock::with(ServerOptions { limits, ..ServerOptions::default() }).await;
    let mut c = server.connect().await;
    c.send("CreateJob\nname: a").await;
    assert!(c.reply().await.is_none());
}

#[tokio::test]
async fn what_was_asked_is_answered_before_the_server_stops() {
    let mut server = Bedrock::seed().await;
    let mut c = server.connect().await;
    assert_eq!(c.status("Ping", &[]).await, "200 OK");
    server.stop();
    assert!(c.reply().await.is_none(), "an idle connection is closed");
    (&mut server.serving).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.addr).await.is_err());
}

impl Conn {
    async fn ask_or_nothing(&mut self, verb: &str) -> Option<String> {
        self.stream.write_all(format!("{verb}\n\n").as_bytes()).await.ok()?;
        self.reply().await.map(|reply| reply.status)
    }
}
