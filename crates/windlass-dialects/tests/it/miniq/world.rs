//! Test rig: a server with runners controlled by the test.

use crate::stores::Chosen;
use crate::support::{Reply, TestServer};
use bytes::Bytes;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::{Notify, mpsc};
use windlass_core::Timestamp;
use windlass_core::handler::HandlerText;
use windlass_dialects::ServerOptions;
use windlass_dialects::dialect::Soon;
use windlass_dialects::miniq::Settings;
use windlass_dialects::runners::{Batch, Booking, Ended, NoRoom, Report, Resource, Run, Runners};
use windlass_dialects::settings::DialectSettings;
use windlass_engine::ManualClock;
use windlass_engine::journal;
use windlass_store::Store;

pub const LOCK_MS: i64 = 10_000;
pub const RETRY_MS: i64 = 20_000;
pub const GIVE_UP_MS: i64 = 100_000;
pub const KEEP_MS: i64 = 1_000_000;

pub fn settings() -> Settings {
    Settings {
        lock_ms: LOCK_MS,
        retry_delay_ms: RETRY_MS,
        give_up_after_ms: GIVE_UP_MS,
        archive_keep_ms: KEEP_MS,
        log: None,
        host: "tester".to_owned(),
    }
}

/// Used in place of an exit code: the job was not run, for reasons outside the job.
pub const NOT_RUN: u16 = 0;

/// Outcome of a job by its payload and attempt. The default is 200.
type Script = Box<dyn Fn(&str, u32) -> Report + Send>;

#[derive(Default)]
struct Desk {
    /// Every started batch: client, type, payloads.
    started: Vec<(String, String, Vec<String>)>,
    versions: Vec<String>,
    /// Slots that are booked or in use.
    taken: usize,
    stopped: Vec<String>,
    /// Number of cut batches.
    cut: usize,
}

/// Runners that record their batches.
pub struct Fake {
    desk: Mutex<Desk>,
    script: Mutex<Script>,
    /// While `is_gated`, a job ends only with a permit.
    gate: Arc<tokio::sync::Semaphore>,
    is_gated: Mutex<bool>,
    room: Arc<Notify>,
    rooms: usize,
    pub complains: Mutex<Option<String>>,
}

impl Fake {
    pub fn new(rooms: usize) -> Arc<Fake> {
        Arc::new(Fake {
            desk: Mutex::default(),
            script: Mutex::new(Box::new(|_, _| report(200))),
            gate: Arc::new(tokio::sync::Semaphore::new(0)),
            is_gated: Mutex::new(false),
            room: Arc::default(),
            rooms,
            complains: Mutex::default(),
        })
    }

    pub fn answers(&self, script: impl Fn(&str, u32) -> Report + Send + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    /// Holds jobs until `let_end`.
    pub fn hold(&self) {
        *self.is_gated.lock().unwrap() = true;
    }

    pub fn let_end(&self, jobs: usize) {
        self.gate.add_permits(jobs);
    }

    /// Payloads of started jobs, in order.
    pub fn payloads(&self) -> Vec<String> {
        self.desk.lock().unwrap().started.iter().flat_map(|(_, _, payloads)| payloads.clone()).collect()
    }

    /// `client/type: payloads` of each batch.
    pub fn batches(&self) -> Vec<String> {
        let desk = self.desk.lock().unwrap();
        desk.started
            .iter()
            .map(|(client, jobtype, payloads)| format!("{client}/{jobtype}: {}", payloads.join(" ")))
            .collect()
    }

    pub fn versions(&self) -> Vec<String> {
        self.desk.lock().unwrap().versions.clone()
    }

    pub fn cuts(&self) -> usize {
        self.desk.lock().unwrap().cut
    }

    pub fn stopped(&self) -> Vec<String> {
        self.desk.lock().unwrap().stopped.clone()
    }
}

pub fn report(exitcode: u16) -> Report {
    Report { exitcode, code: String::new(), run_ms: 7, ..Report::default() }
}

pub fn with_result(result: &str) -> Report {
    Report { result: Bytes::copy_from_slice(result.as_bytes()), ..report(200) }
}

pub struct FakeRunners(pub Arc<Fake>);

impl Runners for FakeRunners {
    fn check(&self, _: &HandlerText) -> Result<(), String> {
        self.0.complains.lock().unwrap().clone().map_or(Ok(()), Err)
    }
    fn resource(&self, _: &HandlerText) -> Resource {
        "rooms"
    }
    fn book(&self, _: &str, _: &str, handler: &HandlerText) -> Result<Box<dyn Booking>, NoRoom> {
        let mut desk = self.0.desk.lock().unwrap();
        if desk.taken == self.0.rooms {
            return Err(NoRoom::Full("rooms"));
        }
        desk.taken += 1;
        let asked = handler.options.as_ref().and_then(|options| options.get("batchSize")?.as_u64());
        let jobs_max = asked.map_or(10, |size| size as usize);
        Ok(Box::new(Place { fake: Arc::clone(&self.0), jobs_max, is_used: false }))
    }
    fn room(&self) -> Soon<'static, ()> {
        let room = Arc::clone(&self.0.room);
        Box::pin(async move { room.notified().await })
    }
    fn isolation(&self) -> String {
        "isolated by nothing".to_owned()
    }
    fn warm(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn stop(&self, _: Duration) -> Soon<'_, ()> {
        self.0.let_end(1_000_000);
        Box::pin(async {})
    }
}

/// Slot of a batch until its end.
struct Place {
    fake: Arc<Fake>,
    jobs_max: usize,
    is_used: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_used {
            self.fake.desk.lock().unwrap().taken -= 1;
        }
    }
}

impl Booking for Place {
    fn jobs_max(&self) -> usize {
        self.jobs_max
    }
    fn start(mut self: Box<Self>, batch: Batch) -> Box<dyn Run> {
        self.is_used = true;
        let fake = Arc::clone(&self.fake);
        let (send, receive) = mpsc::unbounded_channel();
        let is_gated = *fake.is_gated.lock().unwrap();
        let script = fake.script.lock().unwrap();
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let payloads: Vec<String> = batch.jobs.iter().map(|job| text(&job.payload)).collect();
        let reports: Vec<Report> =
            batch.jobs.iter().map(|job| script(&text(&job.payload), job.attempt)).collect();
        drop(script);
        let mut desk = fake.desk.lock().unwrap();
        desk.started.push((batch.client.clone(), batch.jobtype.clone(), payloads.clone()));
        desk.versions.push(batch.handler.body.clone());
        drop(desk);
        let its = Arc::clone(&fake);
        let stopping = Arc::new(Notify::new());
        let stop = Arc::clone(&stopping);
        let is_cut = Arc::<AtomicBool>::default();
        let cut = Arc::clone(&is_cut);
        tokio::spawn(async move {
            for (place, report) in reports.into_iter().enumerate() {
                let ended = if place > 0 && cut.load(Ordering::SeqCst) {
                    Ended::Unrun("cut".to_owned())
                } else if is_gated {
                    tokio::select! {
                        permit = its.gate.acquire() => { permit.unwrap().forget(); Ended::Done(report) }
                        () = stop.notified() => Ended::Unrun("stopped".to_owned()),
                    }
                } else if report.exitcode == NOT_RUN {
                    Ended::Unrun("the script says so".to_owned())
                } else {
                    Ended::Done(report)
                };
                let _ = send.send((place, ended));
            }
            its.desk.lock().unwrap().taken -= 1;
            its.room.notify_one();
        });
        Box::new(FakeRun { receive, fake, payloads, stopping, is_cut })
    }
}

struct FakeRun {
    receive: mpsc::UnboundedReceiver<(usize, Ended)>,
    fake: Arc<Fake>,
    payloads: Vec<String>,
    stopping: Arc<Notify>,
    is_cut: Arc<AtomicBool>,
}

impl Run for FakeRun {
    fn next(&mut self) -> Soon<'_, Option<(usize, Ended)>> {
        Box::pin(self.receive.recv())
    }
    fn stop(&self, place: usize) {
        self.fake.desk.lock().unwrap().stopped.push(self.payloads[place].clone());
        self.stopping.notify_one();
    }
    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        self.fake.desk.lock().unwrap().cut += 1;
    }
}

pub struct World {
    pub server: TestServer,
    pub clock: Arc<ManualClock>,
    pub fake: Arc<Fake>,
    /// Folder of its store, if it has one.
    _folder: Option<TempDir>,
}

pub struct Setup {
    /// `None`: a new store of the chosen kind.
    pub store: Option<Arc<dyn Store>>,
    pub clock: Arc<ManualClock>,
    pub settings: Settings,
    pub options: ServerOptions,
    pub rooms: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            store: None,
            clock: Arc::new(ManualClock::at(Timestamp::from_millis(1_763_200_000_000))),
            settings: settings(),
            options: ServerOptions::default(),
            rooms: 4,
        }
    }
}

impl Setup {
    pub async fn start(self) -> World {
        let fake = Fake::new(self.rooms);
        let options = ServerOptions {
            settings: DialectSettings::of(self.settings),
            runners: Some(Arc::new(FakeRunners(Arc::clone(&fake)))),
            ..self.options
        };
        let Chosen { store, folder } = match self.store {
            Some(store) => Chosen { store, folder: None },
            None => Chosen::new().await,
        };
        let server = TestServer::start_on(store, options, self.clock.clone()).await;
        World { server, clock: self.clock, fake, _folder: folder }
    }
}

impl World {
    pub async fn new() -> World {
        Setup::default().start().await
    }

    /// Server with a handler for the type.
    pub async fn with(client: &str, jobtype: &str) -> World {
        let world = World::new().await;
        world.handler(client, jobtype, "{}").await;
        world
    }

    pub async fn handler(&self, client: &str, jobtype: &str, options: &str) {
        let body = format!("{{\"lang\":\"sh\",\"body\":\"cat\",\"options\":{options}}}");
        let reply = self.server.post(&format!("/{client}/handler/add/{jobtype}/add"), &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    pub async fn raw_add(&self, client: &str, jobtype: &str, body: &[u8]) -> Reply {
        let mut connection = self.server.connect().await;
        connection.call("POST", &format!("/{client}/job/{jobtype}/add"), &[], body).await
    }

    pub async fn add(&self, client: &str, jobtype: &str, body: &str) -> Vec<String> {
        let reply = self.raw_add(client, jobtype, body.as_bytes()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let ids = reply.json()["ids"].as_array().unwrap().clone();
        ids.iter().map(|id| id.as_str().unwrap().to_owned()).collect()
    }

    pub async fn job(&self, client: &str, jobtype: &str, id: &str) -> Value {
        let reply = self.server.get(&format!("/{client}/job/{jobtype}/{id}")).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// Waits until the job shows this code.
    pub async fn until_code(&self, client: &str, jobtype: &str, id: &str, code: &str) -> Value {
        let mut last = Value::Null;
        for _ in 0..3_000 {
            last = self.job(client, jobtype, id).await;
            if last["code"] == code {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{id} has no code {code}: {last}");
    }

    /// Waits until this number of runs has ended and the job waits for the next attempt.
    pub async fn until_put_off(&self, client: &str, jobtype: &str, id: &str, runs: usize) {
        let mut last = Value::Null;
        for _ in 0..3_000 {
            last = self.job(client, jobtype, id).await;
            if last["attempts"] == runs && last["lock"] == "" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{id} was not run {runs} times: {last}");
    }

    /// Waits until this number of jobs has been started in total.
    pub async fn until_started(&self, jobs: usize) -> Vec<String> {
        eventually("jobs are started", || self.fake.payloads().len() >= jobs).await;
        self.fake.payloads()
    }

    pub fn later(&self, ms: i64) {
        self.clock.advance(ms);
    }
}

pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within thirty seconds");
}

/// Waits long enough for an unwanted effect to happen.
pub async fn settled() {
    tokio::time::sleep(Duration::from_millis(200)).await;
}

/// Journal in a folder.
pub fn journal_in(folder: &std::path::Path) -> journal::Settings {
    journal::Settings {
        home: journal::Location::Folder(folder.join("journal")),
        ..journal::Settings::default()
    }
}

/// Number of batches by client and type.
pub fn by_type(batches: &[String]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for batch in batches {
        let (name, payloads) = batch.split_once(": ").unwrap();
        *counts.entry(name.to_owned()).or_default() += payloads.split(' ').count();
    }
    counts
}

/// Ends with these exit codes in turn; then with the last.
pub fn one_after_another(exitcodes: &[u16]) -> impl Fn(&str, u32) -> Report + Send + 'static {
    let left: Mutex<VecDeque<u16>> = Mutex::new(exitcodes.iter().copied().collect());
    move |_, _| {
        let mut left = left.lock().unwrap();
        let exitcode = if left.len() > 1 { left.pop_front() } else { left.front().copied() };
        report(exitcode.unwrap_or(200))
    }
}
