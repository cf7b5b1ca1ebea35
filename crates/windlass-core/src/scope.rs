//! Scope: the jobs of a tenant that a caller may access.

use crate::matching::Glob;
use std::fmt;
use std::sync::Arc;

/// Patterns of queues and of names in them. The default includes everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope(Option<Arc<[Part]>>);

/// `QUEUE`: all jobs of the matching queues; `QUEUE/NAME`: only jobs with matching names. Both are GLOB
/// patterns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Part {
    queues: Glob,
    /// `None`: all.
    names: Option<Glob>,
}

/// Most parts of a scope: a claim checks each of them against every lane it may read.
pub const PARTS_MAX: usize = 100;
/// Bytes of one part: two names and the slash between them.
pub const PART_BYTES_MAX: usize = 2 * crate::names::NAME_BYTES_MAX + 1;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadScope {
    #[error("a queue must not be empty; use QUEUE or QUEUE/NAME, both may be GLOB patterns")]
    Empty,
    #[error("too many queues; the maximum is {PARTS_MAX}")]
    TooMany,
    #[error("the name of a queue or job is too long")]
    TooLong,
    #[error("the name of a queue or job must not contain control characters")]
    Character,
}

impl Part {
    fn parse(text: &str) -> Result<Part, BadScope> {
        if text.len() > PART_BYTES_MAX {
            return Err(BadScope::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(BadScope::Character);
        }
        let (queue, name) = text.split_once('/').map_or((text, None), |(queue, name)| (queue, Some(name)));
        if queue.is_empty() || name == Some("") {
            return Err(BadScope::Empty);
        }
        let names = name.map(Glob::new).filter(|names| !names.is_everything());
        Ok(Part { queues: Glob::new(queue), names })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.names {
            None => write!(f, "{}", self.queues),
            Some(names) => write!(f, "{}/{names}", self.queues),
        }
    }
}

impl Scope {
    /// Parses the parts; an empty list is everything.
    pub fn parse<T: AsRef<str>>(parts: &[T]) -> Result<Scope, BadScope> {
        if parts.len() > PARTS_MAX {
            return Err(BadScope::TooMany);
        }
        let parts: Vec<Part> =
            parts.iter().map(|part| Part::parse(part.as_ref())).collect::<Result<_, _>>()?;
        Ok(Scope((!parts.is_empty()).then(|| parts.into())))
    }

    pub fn is_everything(&self) -> bool {
        self.0.is_none()
    }

    pub fn allows(&self, queue: &str, name: &str) -> bool {
        self.any(|part| {
            part.queues.matches(queue) && part.names.as_ref().is_none_or(|names| names.matches(name))
        })
    }

    /// True if the scope includes every name in this queue.
    pub fn allows_queue(&self, queue: &str) -> bool {
        self.any(|part| part.names.is_none() && part.queues.matches(queue))
    }

    /// True if the scope may include a name in this queue.
    pub fn touches_queue(&self, queue: &str) -> bool {
        self.any(|part| part.queues.matches(queue))
    }

    /// True if every part includes all names in its queues.
    pub fn has_whole_queues(&self) -> bool {
        self.0.as_ref().is_none_or(|parts| parts.iter().all(|part| part.names.is_none()))
    }

    fn any(&self, fits: impl Fn(&Part) -> bool) -> bool {
        self.0.as_ref().is_none_or(|parts| parts.iter().any(fits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_names_queues_and_names_in_them() {
        let scope = Scope::parse(&["mail", "media-*", "default/report-*"]).unwrap();
        for (queue, name, expected) in [
            ("mail", "anything", true),
            ("mails", "anything", false),
            ("media-large", "x", true),
            ("default", "report-weekly", true),
            ("default", "report", false),
            ("jq", "report-weekly", false),
        ] {
            assert_eq!(scope.allows(queue, name), expected, "{queue} {name}");
        }
        assert!(scope.allows_queue("mail") && scope.allows_queue("media-") && !scope.allows_queue("default"));
        assert!(scope.touches_queue("default") && !scope.touches_queue("jq"));
    }

    #[test]
    fn a_scope_without_parts_is_everything() {
        let none: [&str; 0] = [];
        assert!(Scope::parse(&none).unwrap().is_everything());
        assert!(Scope::default().allows("any", "thing"));
        let all = Scope::parse(&["default/*"]).unwrap();
        assert!(!all.is_everything() && all.allows_queue("default"));
    }

    #[test]
    fn the_first_stroke_parts_queue_and_name() {
        let scope = Scope::parse(&["default/www/LowPriority*"]).unwrap();
        assert!(scope.allows("default", "www/LowPriority?to=1"));
        assert!(!scope.allows("default", "www/High"));
        assert!(Scope::parse(&["a?b"]).unwrap().allows("a/b", "x"));
    }

    #[test]
    fn what_names_no_queue_is_refused() {
        let check = |part: &str, expected: BadScope| assert_eq!(Scope::parse(&[part]).unwrap_err(), expected);
        check("", BadScope::Empty);
        check("/name", BadScope::Empty);
        check("queue/", BadScope::Empty);
        check("a\nb", BadScope::Character);
        check(&"x".repeat(PART_BYTES_MAX + 1), BadScope::TooLong);
        assert_eq!(Scope::parse(&vec!["a"; PARTS_MAX + 1]).unwrap_err(), BadScope::TooMany);
    }
}
