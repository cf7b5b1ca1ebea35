//! Seccomp filters of a context: allowed system calls and arguments.
//!
//! Two filters are installed; the kernel applies the stricter result. The first knows the calls that the
//! context's language needs and returns ENOSYS for all others, so that C libraries fall back to an older
//! call. The second returns EPERM for calls and arguments that exist but are forbidden to a context.
//!
//! The lists per language come from traces of the interpreters (`strace -f`): startup, modules, files,
//! threads, processes, signals, timers, sockets. A shell script may start any program, so `sh` has all
//! groups.

use super::handler::Lang;
use super::memory::SHARED_BYTES_MAX;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

mod list;

/// Groups of calls by purpose, with the languages that get them in addition to [`list::BASE`]. A test
/// compares this table with docs/runners.md.
const GROUPS: &[(&str, &[i64], &[Lang])] = &[
    ("epoll", list::EPOLL, &[Lang::Sh, Lang::Python, Lang::Node]),
    ("vectors", list::VECTORS, &[Lang::Sh, Lang::Python, Lang::Node]),
    ("pidfd", list::PIDFD, &[Lang::Sh, Lang::Python]),
    ("timerfd", list::TIMERFD, &[Lang::Sh, Lang::Python]),
    ("splice", list::SPLICE, &[Lang::Sh, Lang::Python]),
    ("scheduling", list::SCHEDULING, &[Lang::Sh, Lang::Python]),
    ("inotify", list::INOTIFY, &[Lang::Sh, Lang::Node]),
    ("protection", list::PROTECTION, &[Lang::Sh, Lang::Node]),
    ("rights", list::RIGHTS, &[Lang::Sh, Lang::Node]),
    ("programs", list::PROGRAMS, &[Lang::Sh]),
];

/// Properties of a context's confinement that decide which calls the filter must refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    /// Language whose calls are allowed.
    pub lang: Lang,
    /// IPv4 and IPv6 sockets are allowed.
    pub network: bool,
    /// File modes, owners and times may be changed: every file that the context can reach is its own.
    pub owns_files: bool,
    /// Another mechanism already keeps signals from processes outside the context.
    pub keeps_signals: bool,
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Installs the filters for the calling thread and its descendants. `None`: seccomp is not available here.
pub(super) fn filter(fence: Fence) -> Option<()> {
    // Build both programs before installing the first: it could block calls needed to build the second.
    let refused = program(refused(fence)?, SeccompAction::Allow, error(libc::EPERM)?)?;
    let unknown = program(known(fence.lang), error(libc::ENOSYS)?, SeccompAction::Allow)?;
    seccompiler::apply_filter(&refused).ok()?;
    seccompiler::apply_filter(&unknown).ok()
}

fn error(number: i32) -> Option<SeccompAction> {
    Some(SeccompAction::Errno(u32::try_from(number).ok()?))
}

fn program(rules: Rules, otherwise: SeccompAction, matched: SeccompAction) -> Option<BpfProgram> {
    let arch = std::env::consts::ARCH.try_into().ok()?;
    SeccompFilter::new(rules, otherwise, matched, arch).ok()?.try_into().ok()
}

/// Calls that do not return ENOSYS, including the refused ones. x32 call numbers are not listed.
fn known(lang: Lang) -> Rules {
    let common = [list::BASE, list::BASE_OLD, list::REFUSED, list::ATTRIBUTES, list::SOCKETS];
    let own = GROUPS.iter().filter(|(_, _, langs)| langs.contains(&lang)).map(|(_, calls, _)| *calls);
    common.into_iter().chain(own).flatten().map(|call| (*call, Vec::new())).collect()
}

/// Calls refused with EPERM, some of them only with certain arguments.
fn refused(fence: Fence) -> Option<Rules> {
    let mut rules: Rules = list::REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let mut refuse = |call: i64, when: Vec<SeccompRule>| rules.insert(call, when);
    refuse(libc::SYS_clone, any(list::NAMESPACES.iter().map(|flag| masked(0, *flag, *flag)))?);
    // The first argument is a process id; 0 means the caller.
    for call in list::ON_ITSELF {
        refuse(*call, vec![all([compare(0, SeccompCmpOp::Ne, 0)])?]);
    }
    refuse(libc::SYS_setpriority, vec![others_than(0, &[0])?, others_than(1, &[0])?]);
    refuse(libc::SYS_ioprio_set, vec![others_than(0, &[1])?, others_than(1, &[0])?]);
    for (call, index, values) in list::FORBIDDEN_ARGUMENTS {
        refuse(*call, any(values.iter().map(|value| compare(*index, SeccompCmpOp::Eq, *value)))?);
    }
    refuse(libc::SYS_socketpair, odd_pairs()?);
    refuse(libc::SYS_mmap, vec![large_shared_memory()?]);
    if fence.network {
        let families = [libc::AF_INET, libc::AF_INET6].map(|family| u64::try_from(family).unwrap_or(0));
        refuse(libc::SYS_socket, vec![others_than(0, &families)?]);
    } else {
        list::SOCKETS.iter().filter(|call| **call != libc::SYS_socketpair).for_each(|call| {
            refuse(*call, Vec::new());
        });
    }
    if !fence.owns_files {
        list::ATTRIBUTES.iter().for_each(|call| {
            refuse(*call, Vec::new());
        });
        // With a null path the call changes an open file, and only permitted files can be opened.
        refuse(libc::SYS_utimensat, vec![all([wide(1, SeccompCmpOp::Ne, 0)])?]);
    }
    if !fence.keeps_signals {
        list::SIGNALS.iter().for_each(|call| {
            refuse(*call, Vec::new());
        });
        // `raise` and `abort` send signals with tgkill to the own process.
        let own = u64::from(std::process::id());
        refuse(libc::SYS_tgkill, vec![others_than(0, &[own])?]);
    }
    Some(rules)
}

/// Rule for shared anonymous memory above the amount that the memory watch assumes (`memory.rs`).
fn large_shared_memory() -> Option<SeccompRule> {
    let shared = u64::try_from(libc::MAP_SHARED | libc::MAP_ANONYMOUS).ok()?;
    all([masked(3, shared, shared), wide(1, SeccompCmpOp::Gt, SHARED_BYTES_MAX)])
}

/// Rules against socket pairs other than AF_UNIX streams and seqpackets: a datagram can go to any address.
fn odd_pairs() -> Option<Vec<SeccompRule>> {
    const KIND: u64 = 0xf;
    let fine = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].map(|kind| u64::try_from(kind).unwrap_or(0));
    let odd = (0..=KIND).filter(|kind| !fine.contains(kind));
    let mut rules = any(odd.map(|kind| masked(1, KIND, kind)))?;
    rules.push(others_than(0, &[u64::try_from(libc::AF_UNIX).ok()?])?);
    Some(rules)
}

fn compare(index: u8, how: SeccompCmpOp, value: u64) -> Option<SeccompCondition> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, how, value).ok()
}

fn wide(index: u8, how: SeccompCmpOp, value: u64) -> Option<SeccompCondition> {
    SeccompCondition::new(index, SeccompCmpArgLen::Qword, how, value).ok()
}

fn masked(index: u8, mask: u64, value: u64) -> Option<SeccompCondition> {
    compare(index, SeccompCmpOp::MaskedEq(mask), value)
}

/// Rule that matches if all conditions match.
fn all(conditions: impl IntoIterator<Item = Option<SeccompCondition>>) -> Option<SeccompRule> {
    SeccompRule::new(conditions.into_iter().collect::<Option<_>>()?).ok()
}

/// Rules, one per condition: any of them matches.
fn any(conditions: impl IntoIterator<Item = Option<SeccompCondition>>) -> Option<Vec<SeccompRule>> {
    conditions.into_iter().map(|condition| all([condition])).collect()
}

/// Rule that matches if the argument equals none of the values.
fn others_than(index: u8, values: &[u64]) -> Option<SeccompRule> {
    all(values.iter().map(|value| compare(index, SeccompCmpOp::Ne, *value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANGS: [Lang; 4] = [Lang::Sh, Lang::Python, Lang::Node, Lang::Php];

    #[test]
    fn every_call_is_in_one_group_and_both_programs_fit_the_kernel() {
        let common = [list::BASE, list::BASE_OLD, list::REFUSED, list::ATTRIBUTES, list::SOCKETS];
        let groups = common.into_iter().chain(GROUPS.iter().map(|(_, calls, _)| *calls));
        let mut seen = std::collections::BTreeSet::new();
        for call in groups.flatten() {
            assert!(seen.insert(*call), "{call} is listed twice");
        }
        for bits in 0..32 {
            let fence = Fence {
                lang: LANGS[bits >> 3],
                network: bits & 1 != 0,
                owns_files: bits & 2 != 0,
                keeps_signals: bits & 4 != 0,
            };
            let refused = program(refused(fence).unwrap(), SeccompAction::Allow, error(libc::EPERM).unwrap());
            let unknown = program(known(fence.lang), error(libc::ENOSYS).unwrap(), SeccompAction::Allow);
            assert!(refused.unwrap().len() < 4096 && unknown.unwrap().len() < 4096, "{fence:?}");
        }
    }

    #[test]
    fn every_call_that_is_refused_by_its_arguments_is_known_to_scripts() {
        let fence = Fence { lang: Lang::Sh, network: false, owns_files: false, keeps_signals: false };
        let known = known(Lang::Sh);
        for call in refused(fence).unwrap().keys() {
            assert!(known.contains_key(call), "{call} would be unknown instead of refused");
        }
    }

    #[test]
    fn each_language_has_what_it_needs_and_not_what_others_need() {
        let check = |call: i64, langs: &[Lang]| {
            let having: Vec<Lang> =
                LANGS.into_iter().filter(|lang| known(*lang).contains_key(&call)).collect();
            assert_eq!(having, langs, "{call}");
        };
        for call in
            [libc::SYS_read, libc::SYS_futex, libc::SYS_execve, libc::SYS_eventfd2, libc::SYS_prlimit64]
        {
            check(call, &LANGS);
        }
        check(libc::SYS_epoll_create1, &[Lang::Sh, Lang::Python, Lang::Node]);
        check(libc::SYS_preadv2, &[Lang::Sh, Lang::Python, Lang::Node]);
        check(libc::SYS_pidfd_open, &[Lang::Sh, Lang::Python]);
        check(libc::SYS_sched_setaffinity, &[Lang::Sh, Lang::Python]);
        check(libc::SYS_pkey_alloc, &[Lang::Sh, Lang::Node]);
        check(libc::SYS_inotify_init1, &[Lang::Sh, Lang::Node]);
        check(libc::SYS_mlock, &[Lang::Sh]);
        for call in
            [libc::SYS_clone3, libc::SYS_memfd_create, libc::SYS_seccomp, libc::SYS_vmsplice, libc::SYS_tee]
        {
            check(call, &[]);
        }
    }

    #[test]
    fn the_table_in_the_documentation_is_this_one() {
        let text = include_str!("../../../../docs/runners.md");
        for (name, _, langs) in GROUPS {
            let start = format!("| {name} |");
            let line = text.lines().find(|line| line.starts_with(&start));
            let cells: Vec<&str> =
                line.unwrap_or_else(|| panic!("no row {name}")).split('|').map(str::trim).collect();
            // Columns: name, purpose, then one per language.
            for (lang, cell) in LANGS.iter().zip(&cells[3..]) {
                assert_eq!(*cell == "yes", langs.contains(lang), "{name}, {lang}: {cells:?}");
            }
        }
    }
}
