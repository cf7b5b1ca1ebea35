//! Clients that use the whole API, and record requests and responses.

use super::dice::Dice;
use super::dump::timeless;
use super::history::{Action, Grant, History, How, Key, Outcome, Pushing, Record, What, now_us};
use super::http::{Client, Reply};
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub const QUEUES: [&str; 3] = ["red", "green", "blue"];
/// Most leases a client keeps for later; more are settled first.
const HELD_MAX: usize = 24;
/// Most ids a client keeps for actions and reads.
const KNOWN_MAX: usize = 200;

/// State shared by the clients of a load.
pub struct Load {
    pub history: History,
    /// Addresses of running servers; empty while there is none. Each call goes to any of them.
    addresses: Mutex<Vec<SocketAddr>>,
    /// Locked for reading during each call; locked for writing, no call is in flight.
    gate: RwLock<()>,
    over: AtomicBool,
}

impl Load {
    pub fn new() -> Arc<Load> {
        Arc::new(Load {
            history: History::default(),
            addresses: Mutex::default(),
            gate: RwLock::new(()),
            over: AtomicBool::new(false),
        })
    }

    pub fn set_address(&self, address: Option<SocketAddr>) {
        self.set_addresses(address.into_iter().collect());
    }

    pub fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        *self.addresses.lock() = addresses;
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.lock().clone()
    }

    /// Runs `what` while no client sends requests.
    pub fn in_silence<T>(&self, what: impl FnOnce() -> T) -> T {
        let _silence = self.gate.write();
        what()
    }

    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Starts a thread that sends requests until the load is over.
    pub fn client(self: &Arc<Load>, number: u64, seed: u64) -> std::thread::JoinHandle<()> {
        let load = Arc::clone(self);
        std::thread::spawn(move || {
            let mut asker = Asker::new(load, number, seed);
            while !asker.load.over.load(Ordering::Acquire) {
                asker.step();
            }
        })
    }
}

/// Client: a connection, its leases, and known jobs.
pub struct Asker {
    load: Arc<Load>,
    client: Client,
    dice: Dice,
    number: u64,
    made: u64,
    held: Vec<Grant>,
    /// Tokens of ended runs, for attempts that must be refused.
    spent: Vec<(u64, u64)>,
    known: Vec<u64>,
    /// Pushes without a response that have an idempotency key.
    again: Vec<Pushing>,
}

impl Asker {
    pub fn new(load: Arc<Load>, number: u64, seed: u64) -> Asker {
        Asker {
            load,
            client: Client::default(),
            dice: Dice::new(seed ^ (number << 32)),
            number,
            made: 0,
            held: Vec::new(),
            spent: Vec::new(),
            known: Vec::new(),
            again: Vec::new(),
        }
    }

    pub fn step(&mut self) {
        let load = Arc::clone(&self.load);
        let gate = load.gate.read();
        if load.addresses().is_empty() {
            drop(gate);
            std::thread::sleep(Duration::from_millis(2));
            return;
        }
        if let Some(push) = self.again.pop() {
            return self.push(vec![push]);
        }
        if self.held.len() > HELD_MAX {
            return self.settle_one();
        }
        match self.dice.range(0, 100) {
            0..=19 => self.push_one(),
            20..=25 => self.push_batch(),
            26..=47 => self.claim_some(),
            48..=55 => self.extend_one(),
            56..=80 => self.settle_one(),
            81..=83 => self.settle_spent(),
            84..=92 => self.act_on_one(),
            93..=94 => self.pause_or_resume(),
            _ => self.read_one(),
        }
    }

    /// Sends a request. While the server is down, a request counts as not sent only if no byte was sent.
    fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> (Reply, u64, i64, i64) {
        let call = self.load.history.next_call();
        let start = now_us();
        let reply = match *self.load.addresses() {
            [] => Reply::NotSent,
            [to] => self.client.call(to, method, path, body),
            // A job claimed at one server may be finished at another.
            ref servers => {
                let to = servers[self.dice.range(0, servers.len() as u64) as usize];
                self.client.call(to, method, path, body)
            }
        };
        match reply {
            // Backs off, though not as long as requested.
            Reply::Answer(503, _) => std::thread::sleep(Duration::from_millis(20)),
            Reply::Answer(..) => {}
            Reply::NotSent | Reply::Lost => std::thread::sleep(Duration::from_millis(1)),
        }
        (reply, call, start, now_us())
    }

    fn tell(&self, call: u64, start: i64, end: i64, what: What, outcome: Outcome) {
        self.load.history.add(Record { call, start, end, what, outcome });
    }

    // --- push ----------------------------------------------------------------------------------------------------

    pub fn draft(&mut self) -> Pushing {
        self.made += 1;
        let mark = format!("c{}-{}", self.number, self.made);
        let dice = &mut self.dice;
        let key = match dice.range(0, 10) {
            0 | 1 => {
                let key = format!("shared-{}", dice.range(0, 12));
                Some(Key { key, forever: false, refuse: dice.percent(40) })
            }
            2 | 3 => Some(Key { key: format!("once-{mark}"), forever: true, refuse: false }),
            _ => None,
        };
        Pushing {
            queue: QUEUES[dice.range(0, 3) as usize].to_owned(),
            priority: dice.range(0, 5) as i64 - 2,
            delay_ms: if dice.percent(25) { dice.range(1, 400) as i64 } else { 0 },
            tags: if dice.percent(20) { vec![format!("tag{}", dice.range(0, 4))] } else { Vec::new() },
            max_attempts: dice.range(1, 5) as i64,
            repeats: dice.percent(2),
            forget: dice.percent(30),
            parent: None,
            id: None,
            existing: false,
            mark,
            key,
        }
    }

    fn push_one(&mut self) {
        let mut push = self.draft();
        let parent = self.dice.pick(&self.held).map(|grant| grant.id);
        if self.dice.percent(15) && push.key.is_none() {
            push.parent = parent;
        }
        self.push(vec![push]);
    }

    fn push_batch(&mut self) {
        let count = self.dice.range(2, 12);
        let batch = (0..count).map(|_| Pushing { key: None, ..self.draft() }).collect();
        self.push(batch);
    }

    pub fn push(&mut self, batch: Vec<Pushing>) {
        let single = batch.len() == 1;
        let body = match single {
            true => push_body(&batch[0]),
            false => json!({ "jobs": batch.iter().map(push_body).collect::<Vec<_>>() }),
        };
        let (reply, call, start, end) = self.call("POST", "/api/v1/jobs", Some(&body));
        for (place, mut push) in batch.into_iter().enumerate() {
            let outcome = match &reply {
                Reply::Answer(201, answer) => {
                    push.id = answer["ids"][place].as_u64();
                    let existing = answer["existing"].as_array();
                    push.existing = existing.is_some_and(|ids| ids.iter().any(|id| id.as_u64() == push.id));
                    self.remember(push.id);
                    Outcome::Ok
                }
                other => outcome(other),
            };
            if let (Reply::Answer(409, answer), true) = (&reply, single) {
                push.id = answer["error"]["id"].as_u64();
            }
            // Repeated with the same key until the result is known: exactly one job must exist in the end.
            if !matches!(reply, Reply::Answer(..)) && push.key.as_ref().is_some_and(|key| key.forever) {
                self.again.push(push.clone());
            }
            self.tell(call, start, end, What::Push(push), outcome);
        }
    }

    fn remember(&mut self, id: Option<u64>) {
        if self.known.len() >= KNOWN_MAX {
            let place = self.dice.range(0, KNOWN_MAX as u64) as usize;
            self.known.swap_remove(place);
        }
        self.known.extend(id);
    }

    // --- runs ----------------------------------------------------------------------------------------------------

    fn claim_some(&mut self) {
        let lease_ms = match self.dice.range(0, 10) {
            0..=1 => self.dice.range(20, 120),
            2..=4 => self.dice.range(300, 1500),
            _ => 60_000,
        };
        let limit = self.dice.range(1, 9);
        let queues = match self.dice.percent(50) {
            true => QUEUES.map(str::to_owned).to_vec(),
            false => vec![QUEUES[self.dice.range(0, 3) as usize].to_owned()],
        };
        let wait_ms = if self.dice.percent(20) { 20 } else { 0 };
        self.claim(queues, limit, lease_ms as i64, wait_ms);
    }

    pub fn claim(&mut self, queues: Vec<String>, limit: u64, lease_ms: i64, wait_ms: u64) -> Vec<Grant> {
        self.made += 1;
        let worker = format!("w{}-{}", self.number, self.made);
        let body = json!({
            "queues": queues, "limit": limit, "lease_ms": lease_ms, "wait_ms": wait_ms, "worker": worker,
        });
        let (reply, call, start, end) = self.call("POST", "/api/v1/claim", Some(&body));
        let mut granted = Vec::new();
        let outcome = match &reply {
            Reply::Answer(200, answer) => {
                let jobs = answer["jobs"].as_array().cloned().unwrap_or_default();
                granted = jobs.iter().map(|job| grant(job, lease_ms)).collect();
                Outcome::Ok
            }
            other => outcome(other),
        };
        self.held.extend(granted.iter().cloned());
        self.tell(call, start, end, What::Claim { worker, queues, granted: granted.clone() }, outcome);
        granted
    }

    fn extend_one(&mut self) {
        let Some(grant) = self.dice.pick(&self.held).cloned() else { return };
        let lease_ms = self.dice.range(50, 2_000) as i64;
        self.extend(grant.id, grant.token, lease_ms);
    }

    pub fn extend(&mut self, id: u64, token: u64, lease_ms: i64) {
        let entry = json!({
            "id": id, "token": token, "lease_ms": lease_ms, "progress": 50, "note": "half-way",
        });
        let body = json!({ "extend": [entry] });
        let (reply, call, start, end) = self.call("POST", "/api/v1/extend", Some(&body));
        let (outcome, until) = match &reply {
            Reply::Answer(200, answer) => {
                let entry = &answer["extended"][0];
                (entry_outcome(entry), entry["lease_until"].as_i64())
            }
            other => (outcome(other), None),
        };
        self.tell(call, start, end, What::Extend { id, token, until }, outcome);
    }

    fn settle_one(&mut self) {
        if self.held.is_empty() {
            return self.claim_some();
        }
        let place = self.dice.range(0, self.held.len() as u64) as usize;
        let grant = self.held.swap_remove(place);
        // A worker that dies: its lease must expire.
        if self.dice.percent(4) {
            return;
        }
        let how = match self.dice.range(0, 10) {
            0..=5 => How::Finish,
            6..=8 => How::Fail,
            _ => How::Release,
        };
        let delay_ms = if self.dice.percent(30) { self.dice.range(1, 200) as i64 } else { 0 };
        self.settle(grant.id, grant.token, how, delay_ms);
        self.spent.push((grant.id, grant.token));
        if self.spent.len() > HELD_MAX {
            self.spent.remove(0);
        }
    }

    /// Uses a token of an ended run, which must have no effect.
    fn settle_spent(&mut self) {
        let Some((id, token)) = self.dice.pick(&self.spent).copied() else { return };
        match self.dice.percent(70) {
            true => self.settle(id, token, How::Finish, 0),
            false => self.extend(id, token, 5_000),
        }
    }

    pub fn settle(&mut self, id: u64, token: u64, how: How, delay_ms: i64) {
        let mut entry = json!({ "id": id, "token": token, "outcome": how.word() });
        match how {
            How::Finish => entry["result"] = json!({ "of": id }),
            How::Fail => entry["error"] = "on purpose".into(),
            How::Release => {}
        }
        if how != How::Finish && delay_ms > 0 {
            entry["delay_ms"] = delay_ms.into();
        }
        let body = json!({ "settle": [entry] });
        let (reply, call, start, end) = self.call("POST", "/api/v1/settle", Some(&body));
        let (outcome, state) = match &reply {
            Reply::Answer(200, answer) => {
                let entry = &answer["settled"][0];
                (entry_outcome(entry), entry["state"].as_str().map(timeless).map(str::to_owned))
            }
            other => (outcome(other), None),
        };
        self.tell(call, start, end, What::Settle { id, token, how, delay_ms, state }, outcome);
    }

    // --- steering ------------------------------------------------------------------------------------------------

    fn act_on_one(&mut self) {
        let Some(id) = self.dice.pick(&self.known).copied() else { return };
        let action = match self.dice.range(0, 10) {
            0 | 1 => Action::CancelAsk,
            2 => Action::CancelNow,
            3 | 4 => Action::Retry,
            5 => Action::RetryForce,
            6 => Action::Run,
            _ => Action::Delete,
        };
        self.act(id, action);
    }

    pub fn act(&mut self, id: u64, action: Action) {
        let path = format!("/api/v1/jobs/{id}");
        let (method, path, body) = match action {
            Action::CancelAsk => ("POST", format!("{path}/cancel"), Some(json!({}))),
            Action::CancelNow => ("POST", format!("{path}/cancel"), Some(json!({ "now": true }))),
            Action::Retry => ("POST", format!("{path}/retry"), Some(json!({}))),
            Action::RetryForce => ("POST", format!("{path}/retry"), Some(json!({ "force": true }))),
            Action::Run => ("POST", format!("{path}/run"), Some(json!({}))),
            Action::Delete => ("DELETE", path, None),
        };
        let (reply, call, start, end) = self.call(method, &path, body.as_ref());
        let (outcome, state) = match &reply {
            Reply::Answer(200, answer) => {
                (Outcome::Ok, answer["state"].as_str().map(timeless).map(str::to_owned))
            }
            other => (outcome(other), None),
        };
        self.tell(call, start, end, What::Act { id, action, state }, outcome);
    }

    fn pause_or_resume(&mut self) {
        let paused = self.dice.percent(40);
        self.pause(QUEUES[2], paused);
    }

    pub fn pause(&mut self, queue: &str, paused: bool) {
        let word = if paused { "pause" } else { "resume" };
        let (reply, call, start, end) =
            self.call("POST", &format!("/api/v1/queues/{queue}/{word}"), Some(&json!({})));
        let outcome = match &reply {
            Reply::Answer(200, _) => Outcome::Ok,
            other => outcome(other),
        };
        self.tell(call, start, end, What::Pause { queue: queue.to_owned(), paused }, outcome);
    }

    fn read_one(&mut self) {
        let Some(id) = self.dice.pick(&self.known).copied() else { return };
        let (reply, call, start, end) = self.call("GET", &format!("/api/v1/jobs/{id}"), None);
        let (outcome, state) = match &reply {
            Reply::Answer(200, job) => (Outcome::Ok, job["state"].as_str().map(timeless).map(str::to_owned)),
            Reply::Answer(404, _) => (Outcome::Ok, None),
            other => (outcome(other), None),
        };
        self.tell(call, start, end, What::Read { id, state }, outcome);
    }
}

fn push_body(push: &Pushing) -> Value {
    let mut body = json!({
        "name": "rig", "payload": push.payload(), "queue": push.queue, "priority": push.priority,
        "retry": { "max_attempts": push.max_attempts, "backoff": { "fixed_ms": 20 } },
    });
    if push.delay_ms > 0 {
        body["delay_ms"] = push.delay_ms.into();
    }
    if !push.tags.is_empty() {
        body["tags"] = json!(push.tags);
    }
    if push.repeats {
        body["repeat"] = "every 1s".into();
    }
    if push.forget {
        body["keep"] = json!({ "completed_ms": 0 });
    }
    if let Some(parent) = push.parent {
        body["parent"] = parent.into();
    }
    if let Some(Key { key, forever, refuse }) = &push.key {
        let held_until = if *forever { "forgotten" } else { "settled" };
        let on_conflict = if *refuse { "refuse" } else { "return" };
        body["unique"] = json!({ "key": key, "held_until": held_until, "on_conflict": on_conflict });
    }
    body
}

fn grant(job: &Value, lease_ms: i64) -> Grant {
    let number = |key: &str| job[key].as_i64().unwrap_or_default();
    Grant {
        id: job["id"].as_u64().unwrap_or_default(),
        token: job["token"].as_u64().unwrap_or_default(),
        attempt: number("attempt"),
        // The lease counts from the grant.
        granted_at: number("lease_until") - lease_ms,
        until: number("lease_until"),
        run_at: number("run_at"),
        payload: job["payload"].clone(),
    }
}

/// Outcome of a response without success. 500 means that the result is unknown.
fn outcome(reply: &Reply) -> Outcome {
    match reply {
        Reply::Lost => Outcome::Unknown,
        Reply::Answer(500, answer) => Outcome::Trouble(answer["error"].to_string()),
        Reply::Answer(status, answer) => {
            let code = answer["error"]["code"].as_str().unwrap_or_default();
            Outcome::Fail(format!("{status} {code}"))
        }
        Reply::NotSent => Outcome::Fail("not sent".to_owned()),
    }
}

fn entry_outcome(entry: &Value) -> Outcome {
    match entry["ok"].as_bool() {
        Some(true) => Outcome::Ok,
        _ => Outcome::Fail(entry["error"]["code"].as_str().unwrap_or_default().to_owned()),
    }
}
