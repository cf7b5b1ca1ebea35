//! `id`: random id of a journal, by which a store tells the positions of several journals apart.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

const BYTES: usize = 8;

/// Id in the file of this folder. A folder without one, of an older version or after a crash in its first
/// moments, gets one.
pub(super) fn of(folder: &Path) -> io::Result<Arc<str>> {
    let path = folder.join("id");
    match fs::read(&path) {
        Ok(text) => {
            if let Some(id) = parse(&text) {
                return Ok(id.into());
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let id = random()?;
    // Renamed into place: the file is there with its content or not at all.
    let new = folder.join("id.new");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    file.write_all(format!("{id}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, &path)?;
    File::open(folder)?.sync_all()?;
    Ok(id)
}

pub(super) fn random() -> io::Result<Arc<str>> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)).into())
}

/// `None`: the file is damaged.
fn parse(text: &[u8]) -> Option<&str> {
    let id = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
    (id.len() == 2 * BYTES && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_made_once_and_again_only_if_its_file_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let id = of(folder.path()).unwrap();
        assert_eq!(of(folder.path()).unwrap(), id);
        for damaged in ["", "0123456789abcde\n", "0123456789abcdef", "0123456789abcdeg\n"] {
            fs::write(folder.path().join("id"), damaged).unwrap();
            let other = of(folder.path()).unwrap();
            assert_ne!(other, id, "{damaged:?}");
            assert_eq!(of(folder.path()).unwrap(), other);
        }
    }
}
