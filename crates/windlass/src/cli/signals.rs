//! Signals that end a command which has something to clear away: SIGINT, SIGTERM and SIGHUP.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Number of a signal; the exit code of a program that it ended is this plus 128.
pub(super) type SignalNumber = i32;

/// Calls `first` on a thread of its own at the first signal, and `second` at the next. The signals no longer end the
/// process by themselves once this returns.
pub(super) fn on_signals(
    first: impl FnOnce(SignalNumber) + Send + 'static,
    second: impl FnOnce(SignalNumber) + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::listen()?
    };
    let listen = move || {
        let number = runtime.block_on(signals.next());
        std::thread::spawn(move || first(number));
        let number = runtime.block_on(signals.next());
        second(number);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
    Ok(())
}

struct Signals {
    interrupts: Signal,
    terms: Signal,
    hangups: Signal,
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        Ok(Signals {
            interrupts: signal(SignalKind::interrupt())?,
            terms: signal(SignalKind::terminate())?,
            hangups: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> SignalNumber {
        let kind = tokio::select! {
            _ = self.interrupts.recv() => SignalKind::interrupt(),
            _ = self.terms.recv() => SignalKind::terminate(),
            _ = self.hangups.recv() => SignalKind::hangup(),
        };
        kind.as_raw_value()
    }
}
