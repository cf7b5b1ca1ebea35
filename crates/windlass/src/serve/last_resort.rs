//! Watchdog thread that exits the process if shutdown takes too long: all runtime threads may be blocked, and
//! then no task would handle the signal.

use std::io;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

pub(super) struct LastResort {
    begin: mpsc::UnboundedSender<()>,
}

impl LastResort {
    /// Starts the watchdog. After the first signal or [`LastResort::count_down`], the process has `patience`
    /// to exit.
    pub(super) fn start(patience: Duration) -> io::Result<LastResort> {
        LastResort::start_with(patience, || {
            tracing::error!("shutdown is blocked; exiting. No acknowledged write is lost");
            std::process::exit(1)
        })
    }

    fn start_with(patience: Duration, end: impl FnOnce() + Send + 'static) -> io::Result<LastResort> {
        let (begin, mut begun) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let waiting = async move {
            let (mut interrupts, mut terms) =
                (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            tokio::select! {
                _ = interrupts.recv() => {}
                _ = terms.recv() => {}
                told = begun.recv() => if told.is_none() { return Ok(()) },
            }
            tokio::time::sleep(patience).await;
            end();
            io::Result::Ok(())
        };
        let run = move || {
            if let Err(error) = runtime.block_on(waiting) {
                tracing::warn!(%error, "cannot start the shutdown watchdog; a blocked shutdown will not be aborted");
            }
        };
        std::thread::Builder::new().name("last-resort".to_owned()).spawn(run)?;
        Ok(LastResort { begin })
    }

    /// Starts the countdown of a shutdown.
    pub(super) fn count_down(&self) {
        // The thread lives as long as the process.
        let _ = self.begin.send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn the_end_comes_although_every_thread_of_the_runtime_is_busy() {
        let (ended, end) = channel();
        let end_it = move || {
            let _ = ended.send(());
        };
        let last_resort = LastResort::start_with(Duration::from_millis(10), end_it).unwrap();
        let (stop, stopped) = channel::<()>();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        // Blocks its thread without yielding, like an endless loop.
        runtime.spawn(async move { stopped.recv().is_ok() });
        last_resort.count_down();
        assert!(end.recv_timeout(Duration::from_secs(30)).is_ok());
        drop(stop);
    }
}
