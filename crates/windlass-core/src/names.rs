//! Validated names of tenants, queues and jobs. Validation happens once, when a request is parsed. Cloning is
//! cheap: the text is shared (`Arc<str>`), so a batch of a thousand jobs holds one copy.

use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Longest queue or job name in bytes: the limit of the oldest dialect. Longer texts belong in the payload.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest tenant name in bytes. The name appears in paths, metrics and every key.
pub const TENANT_BYTES_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error("{what} must not be empty")]
    Empty { what: &'static str },
    #[error("{what} is {bytes} bytes long; the maximum is {max}")]
    TooLong { what: &'static str, bytes: usize, max: usize },
    #[error("{what} must not contain the character {character:?}")]
    Character { what: &'static str, character: char },
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $max:expr, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            pub fn new(text: &str) -> Result<Self, BadName> {
                if text.is_empty() {
                    return Err(BadName::Empty { what: $what });
                }
                if text.len() > $max {
                    return Err(BadName::TooLong { what: $what, bytes: text.len(), max: $max });
                }
                let allowed: fn(char) -> bool = $allowed;
                match text.chars().find(|c| !allowed(*c)) {
                    Some(character) => Err(BadName::Character { what: $what, character }),
                    None => Ok(Self(text.into())),
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Deref for $type {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $type {
            type Error = BadName;
            fn try_from(text: String) -> Result<Self, BadName> {
                Self::new(&text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0.to_string()
            }
        }
    };
}

name!(
    /// Tenant that owns a job. Answers to one tenant never show jobs of another.
    Tenant, "tenant", TENANT_BYTES_MAX, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
);
name!(
    /// Queue in which a job waits. A queue exists from its first use and can be paused.
    Queue, "queue", NAME_BYTES_MAX, |c| !c.is_control()
);
name!(
    /// Kind of a job. A worker claims by exact name, by list or by GLOB.
    Name, "name", NAME_BYTES_MAX, |c| c != '\0'
);

impl Default for Tenant {
    fn default() -> Self {
        Tenant("default".into())
    }
}

impl Default for Queue {
    fn default() -> Self {
        Queue("default".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_at_the_door() {
        assert!(Queue::new("mail out").is_ok());
        assert_eq!(Queue::new("").unwrap_err(), BadName::Empty { what: "queue" });
        assert_eq!(Tenant::new("a/b").unwrap_err(), BadName::Character { what: "tenant", character: '/' });
        assert!(Name::new(&"x".repeat(255)).is_ok());
        assert!(matches!(Name::new(&"x".repeat(256)), Err(BadName::TooLong { bytes: 256, max: 255, .. })));
    }
}
