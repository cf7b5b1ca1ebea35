//! Readable file trees of a context, without the server's own files.

use std::path::{Path, PathBuf};

/// Canonical paths. Files that do not exist yet are included: they may be created while a context runs.
pub(super) fn resolve(paths: &[PathBuf]) -> Vec<PathBuf> {
    let resolve = |path: &PathBuf| {
        let by_parent = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
        path.canonicalize().ok().or_else(by_parent).unwrap_or_else(|| path.clone())
    };
    paths.iter().map(resolve).collect()
}

/// Returns the tree, or if it contains hidden paths, its parts without them. `hidden` must be canonical.
pub(super) fn without(tree: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(real) = tree.canonicalize() else { return Vec::new() };
    if hidden.iter().any(|hidden| real.starts_with(hidden)) {
        return Vec::new();
    }
    if !holds_any(&real, hidden) {
        return vec![tree.to_owned()];
    }
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(&real).into_iter().flatten().flatten() {
        let path = entry.path();
        // A symlink to a parent folder would recurse without end.
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if is_link && path.canonicalize().is_ok_and(|target| holds_any(&target, hidden)) {
            continue;
        }
        parts.extend(without(&path, hidden));
    }
    parts
}

fn holds_any(tree: &Path, hidden: &[PathBuf]) -> bool {
    hidden.iter().any(|hidden| hidden.starts_with(tree))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_hidden_is_in_none_of_the_parts_whichever_way_leads_there() {
        let folder = tempfile::TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for path in ["lib/a", "lib/deep/b", "srv/data/contexts", "srv/other"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        for path in ["srv/jobs.db", "srv/windlass.toml", "srv/key.pem"] {
            fs::write(root.join(path), "x").unwrap();
        }
        symlink(root.join("srv/data"), root.join("srv/by-link")).unwrap();
        symlink(&root, root.join("srv/loop")).unwrap();
        let hidden = ["srv/data", "srv/jobs.db", "srv/jobs.db-wal", "srv/windlass.toml", "no/such/folder"];
        let hidden = resolve(&hidden.map(|path| root.join(path)));
        let check = |tree: &str, wanted: &[&str]| {
            let mut parts = without(&root.join(tree), &hidden);
            parts.sort();
            let wanted: Vec<_> = wanted.iter().map(|path| root.join(path)).collect();
            assert_eq!(parts, wanted, "{tree}");
        };
        check("lib", &["lib"]);
        check("srv", &["srv/key.pem", "srv/other"]);
        check("", &["lib", "srv/key.pem", "srv/other"]);
        check("srv/data", &[]);
        check("srv/data/contexts", &[]);
        check("srv/by-link", &[]);
        check("srv/jobs.db", &[]);
        check("nowhere", &[]);
        assert_eq!(hidden[2], root.join("srv/jobs.db-wal"), "a file that may come is hidden");
    }
}
