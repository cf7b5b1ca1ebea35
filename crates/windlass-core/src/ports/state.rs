//! Custom state: keys and values that a job keeps from run to run.

use super::RawJson;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Map shared by all versions of a job that do not change it. The size in bytes is counted incrementally,
/// because every operation on a port creates a version and checks its size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    values: Arc<BTreeMap<String, RawJson>>,
    bytes: usize,
}

impl State {
    pub(super) fn values(&self) -> &BTreeMap<String, RawJson> {
        &self.values
    }

    /// Sum of the costs of all keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn set(&mut self, values: BTreeMap<String, RawJson>) {
        let all = Arc::make_mut(&mut self.values);
        for (key, value) in values {
            let key_bytes = key.len();
            self.bytes += key_bytes + value.cost();
            if let Some(before) = all.insert(key, value) {
                self.bytes -= key_bytes + before.cost();
            }
        }
    }

    pub(super) fn unset(&mut self, key: &str) {
        if !self.values.contains_key(key) {
            return;
        }
        if let Some(before) = Arc::make_mut(&mut self.values).remove(key) {
            self.bytes -= key.len() + before.cost();
        }
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.values.serialize(to)
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<State, D::Error> {
        let mut state = State::default();
        state.set(BTreeMap::deserialize(from)?);
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(values: &[(&str, &str)]) -> BTreeMap<String, RawJson> {
        values.iter().map(|(key, value)| ((*key).to_owned(), RawJson::new(value).unwrap())).collect()
    }

    #[test]
    fn it_knows_its_weight_after_every_change() {
        let mut state = State::default();
        let check = |state: &State| {
            let counted: usize = state.values().iter().map(|(key, value)| key.len() + value.cost()).sum();
            assert_eq!(state.bytes(), counted);
            let bytes = rmp_serde::to_vec_named(state).unwrap();
            assert_eq!(bytes, rmp_serde::to_vec_named(state.values()).unwrap(), "written as a plain map");
            assert_eq!(&rmp_serde::from_slice::<State>(&bytes).unwrap(), state);
        };
        check(&state);
        state.set(set(&[("a", "1"), ("long", r#""text""#)]));
        check(&state);
        let before = state.clone();
        state.set(set(&[("a", "[1,2,3]"), ("b", "null")]));
        check(&state);
        state.unset("long");
        state.unset("never there");
        check(&state);
        assert_eq!(
            before.values(),
            &set(&[("a", "1"), ("long", r#""text""#)]),
            "older versions stay as they were"
        );
    }
}
