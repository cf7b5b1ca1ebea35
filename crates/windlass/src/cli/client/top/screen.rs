//! Terminal in raw mode on the alternate screen; restored on drop.

use crate::output::shortened;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{self, OptionalActions, Termios};
use std::io::{self, Read, Stdin, Write};
use std::time::Duration;

const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Other,
}

pub(super) struct Screen {
    stdin: Stdin,
    before: Termios,
}

impl Screen {
    pub(super) fn open() -> io::Result<Screen> {
        let stdin = io::stdin();
        let before = termios::tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        let screen = Screen { stdin, before };
        io::stdout().write_all(ENTER)?;
        Ok(screen)
    }

    /// Draws all lines in one write from the top left corner, to avoid flicker.
    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let size = termios::tcgetwinsize(io::stdout())?;
        let height = usize::from(size.ws_row).max(2);
        let mut frame = b"\x1b[H".to_vec();
        for line in lines.iter().take(height - 1) {
            // Lines with colours already fit; cutting them could split an escape sequence.
            let fitting =
                if line.contains('\x1b') { line.clone() } else { shortened(line, size.ws_col.into()) };
            frame.extend_from_slice(fitting.as_bytes());
            frame.extend_from_slice(b"\x1b[K\r\n");
        }
        frame.extend_from_slice(b"\x1b[J");
        let mut out = io::stdout().lock();
        out.write_all(&frame)?;
        out.flush()
    }

    /// Waits for a key. Ctrl-C arrives as a key in raw mode.
    pub(super) fn wait(&mut self, time: Duration) -> io::Result<Option<Key>> {
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.stdin, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            // SIGWINCH: the window was resized, so draw again.
            Err(rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let mut keys = [0; 64];
        let count = self.stdin.lock().read(&mut keys)?;
        let quit = count == 0 || keys[..count].iter().any(|key| matches!(key, b'q' | b'Q' | 3 | 4));
        Ok(Some(if quit { Key::Quit } else { Key::Other }))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = io::stdout().write_all(LEAVE);
        let _ = io::stdout().flush();
        let _ = termios::tcsetattr(&self.stdin, OptionalActions::Now, &self.before);
    }
}
