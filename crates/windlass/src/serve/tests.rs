//! A dialect is a folder and a line in a list: this one is added in twenty lines, and appears in the server,
//! the configuration, the ready file and the API.

use super::*;
use crate::cli::config::listing;
use axum::response::Response;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream as Connection;
use windlass_dialects::ALL;
use windlass_dialects::dialect::{self, Context, Dialect, Dialects, Listen, Running, Soon, Starting, Stream};
use windlass_dialects::route::{Access, Answering, Call, Route};
use windlass_dialects::settings::{BadConfig, Bind, DialectSettings, Key, ValueKind, Values};

struct Toy;

#[derive(Clone, Default)]
struct Settings {
    listen: Option<Bind>,
    word: String,
}

impl Dialect for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn settings(&self) -> &'static [Key] {
        const KEYS: &[Key] = &[
            Key::new("toy", ValueKind::AddressOrOff, "off", "address of the toy"),
            Key::new("toy.word", ValueKind::Text, "hello", "what it says"),
        ];
        KEYS
    }

    fn configure(&self, values: &Values, settings: &mut DialectSettings) -> Result<(), BadConfig> {
        settings
            .put(Settings { listen: values.bind_or_off("toy")?, word: values.text("toy.word").to_owned() });
        Ok(())
    }

    fn routes(&self) -> &'static [Route] {
        static ROUTES: &[Route] = &[Route::brief(("GET", "/toy", Access::Public), say, "Its word")];
        ROUTES
    }

    fn listener(&self, settings: &DialectSettings) -> Option<Listen> {
        settings.get::<Settings>().listen.map(Listen::Tcp)
    }

    fn start(&self, context: Context) -> Starting<'static> {
        Box::pin(async move { Ok(Arc::new(context.settings.get::<Settings>()) as Arc<dyn Running>) })
    }
}

impl Running for Settings {
    fn converse(self: Arc<Self>, stream: Stream, _: dialect::Connection) -> Soon<'static, ()> {
        Box::pin(async move {
            let mut stream = stream.into_any();
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, self.word.as_bytes()).await;
        })
    }
}

fn say(call: Call) -> Answering {
    Box::pin(async move { Response::new(call.server.state::<Settings>().word.clone().into()) })
}

/// Response of a server to `request`, until it closes the connection.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut connection = Connection::connect(address).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: SocketAddr, path: &str) -> String {
    let answer =
        ask(address, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"));
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn a_dialect_is_added_by_one_more_value_in_the_list() {
    let dialects: Dialects = ALL.iter().copied().chain([&Toy as &dyn Dialect]).collect::<Vec<_>>().leak();
    let folder = tempfile::tempdir().unwrap();
    let data = format!("data={}", folder.path().display());
    let set = ["store=memory:", "http=127.0.0.1:0", "bedrock=off", "toy.listen=127.0.0.1:0", "toy.word=ahoy"];
    let set = set.into_iter().chain([data.as_str()]).map(str::to_owned).collect();
    let args = ConfigArgs { set, ..ConfigArgs::default() };
    let config = args.read_with(dialects, std::iter::empty()).unwrap();
    assert_eq!(listing(&config)["toy.word"], serde_json::json!({"value": "ahoy", "source": "--set"}));

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut server = runtime.block_on(Server::start(&config)).unwrap();
    let path = folder.path().join("ready.json");
    let mut ready_file = Readiness::new(Some(path.clone()));
    ready_file.tell(&server.listening).unwrap();
    let ready: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let address = |name: &str| -> SocketAddr { ready[name].as_str().unwrap().parse().unwrap() };
    assert_eq!(get(address("http"), "/toy"), "ahoy");
    assert_eq!(ask(address("toy"), ""), "ahoy");
    let me: Value = serde_json::from_str(&get(address("http"), "/api/v1/me")).unwrap();
    assert_eq!(me["doors"]["toy"], ready["toy"]);

    runtime.block_on(server.stop());
    for name in ["toy", "http"] {
        assert!(is_refused_soon(address(name)), "{name}");
    }
}

/// A process that another test starts has the sockets, too, until its `exec`.
fn is_refused_soon(address: SocketAddr) -> bool {
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while Connection::connect(address).is_ok() {
        if std::time::Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
