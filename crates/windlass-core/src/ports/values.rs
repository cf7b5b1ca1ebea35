//! Queue of the values in a port.

use super::RawJson;
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::VecDeque;
use std::sync::Arc;

/// Values per chunk. A new version of a job shares all chunks with the previous version but the one it
/// changes, so a change copies one chunk and one pointer for each of the others.
const PIECE_LEN: usize = 64;

/// FIFO queue; cheap to clone, with its size in bytes counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    /// Chunks, none of them empty.
    pieces: VecDeque<Arc<VecDeque<RawJson>>>,
    len: usize,
    /// Sum of the costs of all values.
    bytes: usize,
}

impl Values {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &RawJson> {
        self.pieces.iter().flat_map(|piece| piece.iter())
    }

    pub(super) fn push_back(&mut self, value: RawJson) {
        self.len += 1;
        self.bytes += value.cost();
        match self.pieces.back_mut() {
            Some(piece) if piece.len() < PIECE_LEN => Arc::make_mut(piece).push_back(value),
            _ => self.pieces.push_back(Arc::new(VecDeque::from([value]))),
        }
    }

    pub(super) fn push_front(&mut self, value: RawJson) {
        self.len += 1;
        self.bytes += value.cost();
        match self.pieces.front_mut() {
            Some(piece) if piece.len() < PIECE_LEN => Arc::make_mut(piece).push_front(value),
            _ => self.pieces.push_front(Arc::new(VecDeque::from([value]))),
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<RawJson> {
        let piece = self.pieces.front_mut()?;
        let value = if piece.len() == 1 {
            let last = self.pieces.pop_front()?;
            last.front().cloned()?
        } else {
            Arc::make_mut(piece).pop_front()?
        };
        self.len -= 1;
        self.bytes -= value.cost();
        Some(value)
    }

    /// Removes and returns all values, oldest first.
    pub(super) fn take(&mut self) -> Vec<RawJson> {
        let all = std::mem::take(self);
        all.iter().cloned().collect()
    }
}

impl Extend<RawJson> for Values {
    fn extend<T: IntoIterator<Item = RawJson>>(&mut self, values: T) {
        values.into_iter().for_each(|value| self.push_back(value));
    }
}

/// Compares values; the division into chunks does not matter.
impl PartialEq for Values {
    fn eq(&self, other: &Values) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for Values {}

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut list = to.serialize_seq(Some(self.len))?;
        for value in self.iter() {
            list.serialize_element(value)?;
        }
        list.end()
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Values, D::Error> {
        let mut values = Values::default();
        values.extend(Vec::<RawJson>::deserialize(from)?);
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(number: u32) -> RawJson {
        RawJson::new(&number.to_string()).unwrap()
    }

    /// Compares with a plain queue.
    #[track_caller]
    fn check(values: &Values, model: &VecDeque<RawJson>) {
        assert!(values.iter().eq(model));
        assert_eq!((values.len(), values.is_empty()), (model.len(), model.is_empty()));
        assert_eq!(values.bytes(), model.iter().map(RawJson::cost).sum::<usize>());
        assert!(values.pieces.iter().all(|piece| (1..=PIECE_LEN).contains(&piece.len())));
    }

    proptest! {
        #[test]
        fn it_is_a_queue_and_older_versions_stay_as_they_were(
            steps in prop::collection::vec((0..8u8, 1..90u32), 1..60)
        ) {
            let (mut values, mut model) = (Values::default(), VecDeque::new());
            let mut versions = Vec::new();
            for (what, count) in steps {
                versions.push((values.clone(), model.clone()));
                for number in 0..count {
                    match what {
                        0..=3 => {
                            values.push_back(value(number));
                            model.push_back(value(number));
                        }
                        4 => {
                            values.push_front(value(number));
                            model.push_front(value(number));
                        }
                        5..=6 => prop_assert_eq!(values.pop_front(), model.pop_front()),
                        _ => prop_assert_eq!(values.take(), model.drain(..).collect::<Vec<_>>()),
                    }
                }
                check(&values, &model);
            }
            for (values, model) in &versions {
                check(values, model);
            }
        }
    }

    #[test]
    fn it_is_written_as_a_plain_list_and_equal_however_it_is_cut() {
        let mut values = Values::default();
        values.extend((0..200).map(value));
        let plain: VecDeque<RawJson> = (0..200).map(value).collect();
        let bytes = rmp_serde::to_vec_named(&values).unwrap();
        assert_eq!(bytes, rmp_serde::to_vec_named(&plain).unwrap());
        let mut shifted = Values::default();
        shifted.extend((1..200).map(value));
        shifted.push_front(value(0));
        assert_eq!(values, shifted);
        assert_eq!(rmp_serde::from_slice::<Values>(&bytes).unwrap(), values);
        shifted.pop_front();
        assert_ne!(values, shifted);
    }
}
