//! Fixed scenario that uses every feature, for faults at the n-th system call.

use super::history::{Action, Grant, How, Key, Pushing};
use super::http::{Client, Reply};
use super::load::{Asker, Load};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: &str = "/api/v1/limits/mail";

/// Acknowledged changes besides jobs.
#[derive(Debug, Default)]
pub struct Beside {
    limit_is_set: bool,
}

pub struct Scenario {
    asker: Asker,
    made: u64,
    pub beside: Beside,
}

fn red() -> Vec<String> {
    vec!["red".to_owned()]
}

impl Scenario {
    pub fn new(load: &Arc<Load>) -> Scenario {
        Scenario { asker: Asker::new(Arc::clone(load), 7, 7), made: 0, beside: Beside::default() }
    }

    /// Runs to the end, or until the server stops answering; then each call is recorded as not sent.
    pub fn run(&mut self, to: SocketAddr) {
        self.pushes();
        self.runs();
        self.a_family();
        self.steering();
        self.a_lapse();
        self.a_limit(to);
    }

    fn job(&mut self) -> Pushing {
        self.made += 1;
        Pushing {
            mark: format!("s{}", self.made),
            queue: "red".to_owned(),
            max_attempts: 3,
            ..Pushing::default()
        }
    }

    fn pushes(&mut self) {
        let plain = self.job();
        self.asker.push(vec![plain]);
        let rich = Pushing { priority: 2, tags: vec!["tag".to_owned()], ..self.job() };
        self.asker.push(vec![rich]);
        let delayed = Pushing { delay_ms: 3_600_000, ..self.job() };
        self.asker.push(vec![delayed]);
        for refuse in [false, false, true] {
            let key = Some(Key { key: "one".to_owned(), forever: false, refuse });
            let unique = Pushing { key, ..self.job() };
            self.asker.push(vec![unique]);
        }
        let batch = (0..5).map(|_| Pushing { forget: true, ..self.job() }).collect();
        self.asker.push(batch);
        let repeats = Pushing { repeats: true, queue: "green".to_owned(), ..self.job() };
        self.asker.push(vec![repeats]);
    }

    fn runs(&mut self) {
        let granted = self.asker.claim(red(), 5, 60_000, 0);
        let hows = [(How::Finish, 0), (How::Fail, 40), (How::Release, 0), (How::Fail, 0)];
        for (grant, (how, delay_ms)) in granted.iter().zip(hows) {
            self.asker.extend(grant.id, grant.token, 90_000);
            self.asker.settle(grant.id, grant.token, how, delay_ms);
        }
        if let Some(Grant { id, token, .. }) = granted.first() {
            self.asker.settle(*id, *token, How::Finish, 0);
        }
    }

    fn a_family(&mut self) {
        let parent = Pushing { queue: "blue".to_owned(), ..self.job() };
        self.asker.push(vec![parent]);
        let blue = || vec!["blue".to_owned()];
        let Some(parent) = self.asker.claim(blue(), 1, 60_000, 0).pop() else { return };
        for _ in 0..2 {
            let child = Pushing { parent: Some(parent.id), queue: "blue".to_owned(), ..self.job() };
            self.asker.push(vec![child]);
        }
        self.asker.settle(parent.id, parent.token, How::Finish, 0);
        for child in self.asker.claim(blue(), 2, 60_000, 0) {
            self.asker.settle(child.id, child.token, How::Finish, 0);
        }
        if let Some(again) = self.asker.claim(blue(), 1, 60_000, 0).pop() {
            self.asker.settle(again.id, again.token, How::Finish, 0);
        }
    }

    fn steering(&mut self) {
        self.asker.act(3, Action::Run);
        self.asker.act(2, Action::CancelNow);
        self.asker.act(2, Action::Retry);
        self.asker.act(4, Action::CancelAsk);
        self.asker.act(5, Action::Delete);
        self.asker.pause("red", true);
        self.asker.claim(red(), 1, 60_000, 0);
        self.asker.pause("red", false);
        self.asker.pause("blue", true);
    }

    /// A worker that disappears: the job is queued again after the lease expires.
    fn a_lapse(&mut self) {
        let lone = Pushing { queue: "green".to_owned(), delay_ms: 0, ..self.job() };
        self.asker.push(vec![lone]);
        self.asker.claim(vec!["green".to_owned()], 2, 20, 0);
        std::thread::sleep(Duration::from_millis(60));
        for grant in self.asker.claim(vec!["green".to_owned()], 1, 60_000, 200) {
            self.asker.settle(grant.id, grant.token, How::Finish, 0);
        }
    }

    fn a_limit(&mut self, to: SocketAddr) {
        let body = json!({ "matcher": { "name": "mail" }, "max_running": 3 });
        let mut client = Client::default();
        self.beside.limit_is_set =
            matches!(client.call(to, "PUT", LIMIT, Some(&body)), Reply::Answer(200, _));
    }
}

impl Beside {
    /// Checks the changes besides jobs.
    #[track_caller]
    pub fn assert_kept(&self, to: SocketAddr) {
        let limits = Client::default().get(to, "/api/v1/limits");
        let found = limits["limits"].as_array().is_some_and(|limits: &Vec<Value>| !limits.is_empty());
        assert!(found || !self.limit_is_set, "an acknowledged limit is gone: {limits}");
    }
}
