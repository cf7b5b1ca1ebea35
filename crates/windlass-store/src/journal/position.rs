//! Position of a line as a reader stores it with its results: the place, and the id of the line as a check that
//! the place is one of this journal. A folder that was restored from a backup, copied to another server, or
//! emptied by hand has other lines at the same places, or none.

use super::reservations::Place;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub place: Place,
    /// Id of the line.
    pub line: String,
}

/// Result of the comparison of a position with the files of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionCheck {
    /// The head on disk is behind it: no line up to the position is delivered again.
    Passed,
    /// The line is there.
    Present,
    /// There is no such line: the position was not written for the files as they are.
    Foreign,
}

impl Position {
    /// `FILE BLOCK LINE ID`
    pub fn encode(&self) -> Vec<u8> {
        let Place { file, block, line } = self.place;
        format!("{file} {block} {line} {}", self.line).into_bytes()
    }

    pub fn decode(bytes: &[u8]) -> Option<Position> {
        let mut fields = std::str::from_utf8(bytes).ok()?.splitn(4, ' ');
        let mut number = || fields.next()?.parse::<u64>().ok();
        let place = Place { file: number()?, block: number()?, line: number()? };
        Some(Position { place, line: fields.next()?.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_comes_back_from_its_text() {
        for line in ["Q7TzzMq-vm-aHav-000", "by hand", ""] {
            let position = Position { place: Place { file: 3, block: 40, line: 44 }, line: line.to_owned() };
            assert_eq!(Position::decode(&position.encode()), Some(position));
        }
        for other in ["", "1 2 3", "1 2 x y", "-1 2 3 y"] {
            assert_eq!(Position::decode(other.as_bytes()), None, "{other}");
        }
    }
}
