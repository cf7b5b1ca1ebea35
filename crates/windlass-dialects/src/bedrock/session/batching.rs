//! Which requests that came one right behind the other are carried out at the same time.

use super::{Link, Session, is_connection, patience_ms_asked};
use crate::bedrock::commands::Command;
use crate::bedrock::wire::Request;
use std::collections::HashSet;

/// Requests carried out at the same time for one connection: more make a commit no cheaper.
const TOGETHER_MAX: usize = 128;

impl<L: Link> Session<L> {
    /// This request and those of its kind that came right behind it.
    pub(super) fn gather(&mut self, first: Request, command: Command) -> Vec<Request> {
        let mut run = vec![first];
        if !self.goes_together(command, &run[0]) {
            return run;
        }
        let mut company = Company::default();
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

    /// Whether requests like this one can be carried out at the same time with the same outcome as one after the other: each
    /// asks the store for one thing, which gets what it is asked in this order, or they are about jobs that are out.
    fn goes_together(&self, command: Command, request: &Request) -> bool {
        let is_plain = !is_connection(request, "close") && self.put_off(request).is_none();
        is_plain
            && match command {
                Command::CreateJob => request.get("unique").is_none() && request.get("parentjobid").is_none(),
                Command::GetJob => !patience_ms_asked(request, self.shared.profile.waits()),
                Command::FinishJob => true,
                _ => false,
            }
    }
}

/// Requests that are carried out at the same time, of which none may hang on another.
#[derive(Default)]
struct Company {
    /// Jobs that are reported on, as they were named.
    reported: HashSet<Box<str>>,
}

impl Company {
    /// Whether `next` may join the one that `first` began. Of two reports on one job the first counts, and jobs that fit
    /// two questions go to the first: a store that answers several at once knows of no first among them.
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
