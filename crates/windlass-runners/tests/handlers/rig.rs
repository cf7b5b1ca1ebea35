//! Test rig: handlers in a folder of their own, and short forms for batches.

use async_trait::async_trait;
use bytes::Bytes;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tempfile::TempDir;
use windlass_core::handler::{Batch, BatchJob, Ended, Report, Run as _};
use windlass_http::Allowed;
use windlass_runners::handlers::{
    BlobError, Handler, HandlerOptions, Handlers, HelperProgram, Isolation, Lang, Run, Settings, World,
};

/// Timeout of waits, generous for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

struct Nothing;

#[async_trait]
impl World for Nothing {
    fn addresses(&self) -> Arc<Allowed> {
        Arc::new(Allowed::parse(["loopback"]).unwrap())
    }

    fn tls(&self) -> Result<Arc<rustls::ClientConfig>, String> {
        Err("nobody is trusted here".to_owned())
    }

    async fn blob(&self, _client: &str, address: &str) -> Result<Vec<u8>, BlobError> {
        Err(BlobError::Missing(format!("there is no blob {address}")))
    }
}

pub struct Rig {
    pub handlers: Handlers,
    pub isolation: Isolation,
    pub folder: TempDir,
}

impl Rig {
    pub fn new() -> Rig {
        Rig::with(|_| {})
    }

    /// Working folder of the handlers in the first context.
    pub fn first_context(&self) -> PathBuf {
        self.folder.path().join("contexts").join("0").join("work")
    }

    pub fn with(tune: impl FnOnce(&mut Settings)) -> Rig {
        Rig::in_world(Arc::new(Nothing), tune)
    }

    /// Runs without a process namespace: process ids inside equal those outside, so that a test can identify
    /// processes.
    pub fn with_known_processes() -> Rig {
        Rig::with(|settings| settings.namespaces = false)
    }

    /// Starts with a folder left by an earlier server.
    pub fn over(leave: impl FnOnce(&std::path::Path)) -> Rig {
        Rig::with(|settings| leave(&settings.folder))
    }

    pub fn in_world(world: Arc<dyn World>, tune: impl FnOnce(&mut Settings)) -> Rig {
        let folder = TempDir::new().unwrap();
        // Contexts may run as other users.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        let helper = HelperProgram { path: helper(), args: Vec::new() };
        let mut settings = Settings::new(folder.path().join("contexts"), helper);
        // Tests wait for events, however busy the machine is.
        settings.time_limit = PATIENCE;
        // Concurrent tests must not count each other's processes.
        static RIGS: AtomicU32 = AtomicU32::new(0);
        let others = RIGS.fetch_add(1, Ordering::Relaxed);
        settings.uid_base = settings.uid_base.map(|base| base + others * 8);
        settings.namespaces = std::env::var_os("WINDLASS_TEST_NO_NAMESPACES").is_none();
        tune(&mut settings);
        let isolation = settings.isolation.clone().unwrap_or_else(|| isolation(&settings));
        settings.isolation = Some(isolation.clone());
        Rig { handlers: Handlers::new(settings, world).unwrap(), isolation, folder }
    }

    pub fn has_room(&self, client: &str, jobtype: &str, handler: &Handler) -> bool {
        self.handlers.book(client, jobtype, handler).is_ok()
    }

    pub fn start(&self, client: &str, jobtype: &str, handler: &Handler, payloads: &[&str]) -> Run {
        self.handlers.start(batch(client, jobtype, handler, payloads))
    }

    /// Outcomes in the order of the batch.
    pub async fn run(&self, handler: &Handler, payloads: &[&str]) -> Vec<Report> {
        let mut run = self.start("acme", "resize", handler, payloads);
        outcomes(&mut run, payloads.len()).await
    }

    pub async fn one(&self, handler: &Handler, payload: &str) -> Report {
        self.run(handler, &[payload]).await.remove(0)
    }
}

/// Tested once per process; the result depends on the user, not on the settings of a test.
fn isolation(settings: &Settings) -> Isolation {
    static FOUND: [OnceLock<Isolation>; 4] = [const { OnceLock::new() }; 4];
    let kind = usize::from(settings.namespaces) * 2 + usize::from(settings.uid_base.is_some());
    let found = FOUND[kind].get_or_init(|| {
        let folder = TempDir::new().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        Isolation::find_out(settings, folder.path())
    });
    found.clone()
}

pub fn helper() -> PathBuf {
    // A user without access to the build folder uses a copy: see `as_an_ordinary_user`.
    let copy = std::env::var_os("WINDLASS_TEST_HELPER").map(PathBuf::from);
    copy.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_windlass-run-handler")))
}

pub async fn ends(run: &mut Run, count: usize) -> Vec<Ended> {
    let mut all: Vec<Option<Ended>> = vec![None; count];
    let gather = async {
        while let Some((index, ended)) = run.next().await {
            assert!(all[index].replace(ended).is_none(), "job {index} was told twice");
        }
    };
    tokio::time::timeout(PATIENCE, gather).await.expect("the batch does not end");
    all.into_iter().map(|ended| ended.expect("every job is told")).collect()
}

pub async fn outcomes(run: &mut Run, count: usize) -> Vec<Report> {
    let done = |ended| match ended {
        Ended::Done(outcome) => outcome,
        Ended::Unrun(why) => panic!("a job was not run: {why}"),
    };
    ends(run, count).await.into_iter().map(done).collect()
}

pub fn handler(lang: Lang, body: &str) -> Handler {
    Handler {
        lang,
        eid: None,
        before: None,
        before_each: None,
        body: body.to_owned(),
        after_each: None,
        options: HandlerOptions::default(),
    }
}

pub fn sh(body: &str) -> Handler {
    handler(Lang::Sh, body)
}

/// Status, code and result: `200 OK …`.
pub fn brief(outcome: &Report) -> String {
    format!("{} {} {}", outcome.exitcode, outcome.code, String::from_utf8_lossy(&outcome.result))
        .trim()
        .to_owned()
}

pub fn briefs(outcomes: &[Report]) -> Vec<String> {
    outcomes.iter().map(brief).collect()
}

pub fn log(outcome: &Report) -> String {
    String::from_utf8_lossy(&outcome.log).into_owned()
}

pub fn new_jobs(outcome: &Report) -> Vec<String> {
    let show = |payload: &[u8]| String::from_utf8_lossy(payload).into_owned();
    outcome.new_jobs.iter().map(|job| format!("{}={}", job.jobtype, show(&job.payload))).collect()
}

pub fn batch(client: &str, jobtype: &str, handler: &Handler, payloads: &[&str]) -> Batch<Handler> {
    let job = |(index, payload): (usize, &&str)| BatchJob {
        trace: None,
        id: format!("id-{index}"),
        attempt: 1,
        payload: Bytes::copy_from_slice(payload.as_bytes()),
    };
    let jobs = payloads.iter().enumerate().map(job).collect();
    Batch {
        client: client.to_owned(),
        jobtype: jobtype.to_owned(),
        version: format!("{handler:?}"),
        handler: Arc::new(handler.clone()),
        jobs,
    }
}
