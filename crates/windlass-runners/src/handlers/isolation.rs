//! Isolation available on this machine, found by starting a test context.

use super::cgroup::Cgroups;
use super::confine::Bounds;
use super::frames;
use super::guard::{NO_NAMESPACES, Setup, setup_message};
use super::handler::Lang;
use super::place::{make_folders, user_processes_max};
use super::settings::Settings;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time for the test processes to start and exit on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Isolation mechanisms of contexts on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Isolation {
    pub holds: Vec<String>,
    /// Reason why namespaces are not available, if they were tried.
    pub no_namespaces: Option<String>,
    /// Reason why cgroups are not available.
    pub no_cgroups: Option<String>,
}

impl Isolation {
    /// Starts a test context in an existing, empty folder. Blocks while processes run: call it on a blocking
    /// thread.
    pub fn find_out(settings: &Settings, folder: &Path) -> Isolation {
        let mut isolation = Isolation { no_cgroups: Cgroups::check().err(), ..Isolation::default() };
        isolation.holds = isolation.attempts(settings, folder);
        if isolation.no_cgroups.is_none() {
            isolation.holds.push("control groups".to_owned());
        }
        isolation
    }

    fn attempts(&mut self, settings: &Settings, folder: &Path) -> Vec<String> {
        if settings.namespaces && settings.uid_base.is_none() {
            match attempt(settings, folder, true) {
                Ok(holds) => return holds,
                Err(why) => {
                    self.no_namespaces = Some(why.strip_prefix(NO_NAMESPACES).unwrap_or(&why).to_owned());
                }
            }
        }
        attempt(settings, folder, false).unwrap_or_else(|why| {
            tracing::warn!("cannot start a handler process: {why}");
            Vec::new()
        })
    }

    /// Summary for the operator, in one line: mechanisms in force and missing ones.
    pub fn line(&self) -> String {
        let mut missing = self.missing();
        missing.extend(self.no_cgroups.as_ref().map(|why| format!("control groups ({why})")));
        let list = |parts: &[String]| if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") };
        format!("{}; missing: {}", list(&self.holds), list(&missing))
    }

    fn has(&self, part: &str) -> bool {
        self.holds.iter().any(|held| held == part)
    }

    pub fn is_apart(&self) -> bool {
        self.has("namespaces")
    }

    /// Missing mechanisms, as texts for the operator.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if !self.has("separate user") && !self.is_apart() {
            let why = self.no_namespaces.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            missing.push(format!("a separate user or namespaces{why}"));
        }
        missing.extend(self.missing_for_guests());
        missing
    }

    /// Missing mechanisms that WASI guests need as well: they have no files or processes that namespaces
    /// could hide.
    pub fn missing_for_guests(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if !self.has("limits") {
            missing.push("resource limits (setrlimit)".to_owned());
        }
        if !self.has("landlock") {
            let part = if self.has("partial landlock") { "full landlock (Linux 6.12)" } else { "landlock" };
            missing.push(part.to_owned());
        }
        if !self.has("seccomp") {
            missing.push("seccomp".to_owned());
        }
        missing
    }
}

fn attempt(settings: &Settings, folder: &Path, apart: bool) -> Result<Vec<String>, String> {
    let place = folder.join(if apart { "apart" } else { "plain" });
    let said = make_folders(&place, settings.uid_base)
        .and_then(|()| run(settings, &place, apart))
        .map_err(|error| error.to_string());
    if let Err(error) = super::remove::remove_folder(&place) {
        tracing::debug!(%error, "cannot delete the folder of an isolation test");
    }
    let words = frames::words(&said?);
    let find = |wanted: &str| words.iter().find(|(word, _)| word == wanted).map(|(_, text)| text.clone());
    match (find("fault"), find("holds")) {
        (None, Some(holds)) => Ok(holds.split(", ").map(str::to_owned).collect()),
        (Some(why), _) => Err(why),
        (None, None) => Err("it exited without a reply".to_owned()),
    }
}

fn run(settings: &Settings, place: &Path, apart: bool) -> io::Result<Vec<u8>> {
    let (mut ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(PATIENCE))?;
    let mut guard = Command::new(&settings.helper.path)
        .args(&settings.helper.args)
        .env_clear()
        .current_dir(place.join("work"))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let setup = Setup {
        program: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), ":".to_owned()],
        environment: Vec::new(),
        home: None,
        view: apart.then(|| place.join("view")),
        bounds: Bounds {
            lang: Lang::Sh,
            memory_bytes_max: settings.memory_bytes_max,
            file_bytes_max: settings.file_bytes_max,
            user_processes_max: user_processes_max(settings, settings.uid_base, apart),
            work: place.join("work"),
            orders: place.join("in"),
            readable: settings.readable.clone(),
            hidden: settings.hidden.iter().cloned().chain([place.to_owned()]).collect(),
            network: false,
            uid: settings.uid_base,
            is_apart: false,
        },
    };
    let mut said = Vec::new();
    let heard = ours.write_all(&setup_message(&setup)?).and_then(|()| ours.read_to_end(&mut said));
    // The guard exits when its socket is closed.
    drop(ours);
    guard.wait()?;
    heard.map(|_| said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_fits_in_one_line() {
        let holds = ["limits", "landlock", "namespaces", "seccomp"].map(str::to_owned).to_vec();
        let mut isolation = Isolation { holds, ..Isolation::default() };
        assert_eq!(isolation.line(), "limits, landlock, namespaces, seccomp; missing: nothing");
        isolation.no_cgroups = Some("cgroup2 is not mounted".to_owned());
        isolation.holds.pop();
        let line = "limits, landlock, namespaces; missing: seccomp, control groups (cgroup2 is not mounted)";
        assert_eq!(isolation.line(), line);
    }

    #[test]
    fn what_is_missing_is_named() {
        let check = |holds: &[&str], why: Option<&str>, missing: &[&str]| {
            let holds = holds.iter().map(|part| (*part).to_owned()).collect();
            let isolation = Isolation { holds, no_namespaces: why.map(str::to_owned), no_cgroups: None };
            assert_eq!(isolation.missing(), missing, "{isolation:?}");
        };
        let own = "separate user";
        check(&["limits", "landlock", own, "seccomp", "no network"], None, &[]);
        check(&["limits", "landlock", "namespaces", "seccomp", "no network"], None, &[]);
        let without = "a separate user or namespaces (creating namespaces: EPERM)";
        check(&["limits", "landlock", "seccomp"], Some("creating namespaces: EPERM"), &[without]);
        check(&["limits", "partial landlock", own, "seccomp"], None, &["full landlock (Linux 6.12)"]);
        check(
            &[],
            None,
            &["a separate user or namespaces", "resource limits (setrlimit)", "landlock", "seccomp"],
        );
    }
}
