use super::*;
use tempfile::TempDir;

/// Temporary tree of plain files in place of /proc and /sys/fs/cgroup.
struct Tree(TempDir);

const MOUNTS: &str =
    "24 1 0:22 / /proc rw - proc proc rw\n31 24 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

impl Tree {
    fn new(group: &str, controllers: &str, procs: &str) -> Tree {
        let tree = Tree(TempDir::new().unwrap());
        tree.put("proc/self/cgroup", &format!("4:memory:/elsewhere\n0::{group}\n"));
        tree.put("proc/self/mountinfo", MOUNTS);
        let folder = format!("sys/fs/cgroup{group}");
        for (file, text) in [
            ("cgroup.controllers", controllers),
            ("cgroup.procs", procs),
            ("cgroup.subtree_control", ""),
            ("cgroup.type", "domain"),
        ] {
            tree.put(&format!("{folder}/{file}"), text);
        }
        tree
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.0.path().join("sys/fs/cgroup").join(path))
            .unwrap_or_else(|error| error.to_string())
    }

    /// Sets the xattr by which systemd marks delegation, for tests run as root.
    fn delegate(self, group: &str) -> Tree {
        let folder = self.0.path().join("sys/fs/cgroup").join(group);
        let marked = rustix::fs::setxattr(folder, "user.delegate", b"1", rustix::fs::XattrFlags::empty());
        if rustix::process::geteuid().is_root() {
            marked.unwrap();
        }
        self
    }
}

#[test]
fn the_server_moves_to_a_group_of_its_own_and_contexts_get_theirs() {
    let tree = Tree::new("/a/b.service", "cpu io memory pids", "700\n701\n").delegate("a/b.service");
    tree.put("proc/701/status", "Name:\tx\nPPid:\t700\n");
    let groups = prepare(tree.0.path(), 700).unwrap();
    assert_eq!(tree.text("a/b.service/windlass-server/cgroup.procs"), "701", "the last that was moved");
    assert_eq!(tree.text("a/b.service/cgroup.subtree_control"), "+io", "the last that was handed down");
    let leaf = groups.make(100 << 20, 64).unwrap();
    let name = format!("a/b.service/windlass-{}-0", std::process::id());
    assert_eq!(tree.text(&format!("{name}/memory.max")), (132_u64 << 20).to_string());
    assert_eq!(tree.text(&format!("{name}/memory.swap.max")), "0");
    assert_eq!(tree.text(&format!("{name}/pids.max")), "68");
    leaf.enter(4711).unwrap();
    assert_eq!(tree.text(&format!("{name}/cgroup.procs")), "4711");
    assert!(!leaf.is_out_of_memory());
    tree.put(&format!("sys/fs/cgroup/{name}/memory.events"), "low 0\noom 3\noom_kill 0\n");
    assert!(!leaf.is_out_of_memory());
    tree.put(&format!("sys/fs/cgroup/{name}/memory.events"), "low 0\noom 3\noom_kill 2\noom_group_kill 0\n");
    assert!(leaf.is_out_of_memory());
}

#[test]
fn a_server_that_has_moved_already_finds_the_group_above() {
    let tree = Tree::new("/x.service", "memory pids", "").delegate("x.service");
    tree.put("sys/fs/cgroup/x.service/cgroup.subtree_control", "memory pids");
    tree.put("proc/self/cgroup", "0::/x.service/windlass-server\n");
    let own = find(tree.0.path(), 700).unwrap();
    assert_eq!(own, Own { folder: tree.0.path().join("sys/fs/cgroup/x.service"), is_prepared: true });
    // An empty cgroup of a killed server is removed; one with processes stays.
    for left in ["windlass-1-1", "windlass-1-2/cgroup.procs", "other"] {
        fs::create_dir_all(own.folder.join(left)).unwrap();
    }
    prepare(tree.0.path(), 700).unwrap();
    let mut left: Vec<_> =
        fs::read_dir(&own.folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.retain(|name| !name.to_string_lossy().starts_with("cgroup."));
    left.sort();
    assert_eq!(left, ["other", "windlass-1-2"]);
}

#[test]
fn where_there_is_nothing_to_be_had_the_reason_is_told() {
    let why = |tree: &Tree| prepare(tree.0.path(), 700).unwrap_err();
    let tree = Tree::new("/a", "cpu io", "700\n").delegate("a");
    assert!(why(&tree).contains("memory and pids"), "{}", why(&tree));
    let tree = Tree::new("/a", "memory pids", "700\n800\n").delegate("a");
    assert!(why(&tree).contains("other processes"), "{}", why(&tree));
    assert_eq!(tree.text("a/cgroup.subtree_control"), "", "and nothing was changed");
    tree.put("proc/self/cgroup", "4:memory:/a\n");
    assert!(why(&tree).contains("not supported by the kernel"));
    let tree = Tree::new("/a", "memory pids", "700\n");
    tree.put("proc/self/mountinfo", "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    assert!(why(&tree).contains("not mounted"));
    if rustix::process::geteuid().is_root() {
        let tree = Tree::new("/a", "memory pids", "700\n");
        assert!(why(&tree).contains("not delegated"), "{}", why(&tree));
    }
}
