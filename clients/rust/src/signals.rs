//! Signals that ask the process to stop.

/// Receiver of SIGTERM and SIGINT (Ctrl-C).
pub(crate) struct Stop {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    #[cfg(unix)]
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    pub(crate) async fn wait(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}

#[cfg(unix)]
pub(crate) fn stop_signals() -> std::io::Result<Stop> {
    use tokio::signal::unix::{SignalKind, signal};
    Ok(Stop { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
}

#[cfg(not(unix))]
pub(crate) fn stop_signals() -> std::io::Result<Stop> {
    Ok(Stop {})
}
