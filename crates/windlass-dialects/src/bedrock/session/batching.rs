//! Selection of pipelined requests that run concurrently.

use super::{Link, Session, is_connection, is_waiting_claim};
use crate::bedrock::commands::Command;
use crate::bedrock::wire::Request;
use std::collections::HashSet;

/// Concurrent requests of one connection; more would not make a commit cheaper.
const TOGETHER_MAX: usize = 128;

impl<L: Link> Session<L> {
    /// Takes this request and the requests of its kind that follow it directly.
    pub(super) fn gather(&mut self, first: Request, command: Command) -> Vec<Request> {
        let mut run = vec![first];
        if !self.goes_together(command, &run[0]) {
            return run;
        }
        let mut company = BatchRules::default();
        company.admits(command, &run[0], &run[0]);
        while run.len() < TOGETHER_MAX {
            match self.parser.take() {
                Ok(None) => break,
                Ok(Some(next))
                    if Command::of(&next).is_some_and(|(other, ..)| other == command)
                        && self.goes_together(command, &next)
                        && company.admits(command, &run[0], &next) =>
                {
                    run.push(next);
                }
                other => {
                    self.ahead = other.transpose();
                    break;
                }
            }
        }
        run
    }

    /// True if requests like this one give the same result concurrently as one after the other: each makes a
    /// single call to the store, which processes calls in this order, or they concern claimed jobs.
    fn goes_together(&self, command: Command, request: &Request) -> bool {
        let is_plain = !is_connection(request, "close") && self.put_off(request).is_none();
        is_plain
            && match command {
                Command::CreateJob => request.get("unique").is_none() && request.get("parentjobid").is_none(),
                Command::GetJob => !is_waiting_claim(request, self.shared.profile.waits()),
                Command::FinishJob => true,
                _ => false,
            }
    }
}

/// Batch of concurrent requests that do not depend on each other.
#[derive(Default)]
struct BatchRules {
    /// Ids of the jobs reported on, as sent.
    reported: HashSet<Box<str>>,
}

impl BatchRules {
    /// True if `next` may join the batch that `first` began. Of two reports on one job the first must win,
    /// and a job that matches two different claims must go to the first; a store that processes several calls
    /// at once does not guarantee this order.
    fn admits(&mut self, command: Command, first: &Request, next: &Request) -> bool {
        match command {
            Command::FinishJob => next.get("jobid").is_none_or(|id| self.reported.insert(id.into())),
            Command::GetJob => {
                let is_same = |name: &str| first.get(name) == next.get(name);
                let is_given = |name: &str| first.get(name).is_some() == next.get(name).is_some();
                ["name", "jobpriority"].into_iter().all(is_same)
                    && ["mockrequest", "getmockedjobs"].into_iter().all(is_given)
            }
            _ => true,
        }
    }
}
