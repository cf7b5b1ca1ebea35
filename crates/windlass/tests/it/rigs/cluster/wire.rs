//! Proxy to the database whose connections can be stalled and cut.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const FLOWS: u8 = 0;
/// Accepts connections and forwards nothing.
const STALLED: u8 = 1;
/// Refuses connections at once.
const CUT: u8 = 2;
/// Accepts connections without a peer: a machine without power, or a network that drops every packet.
const DARK: u8 = 3;

struct State {
    mode: AtomicU8,
    /// Port of the database.
    target: AtomicU16,
    open: Mutex<Vec<TcpStream>>,
}

pub struct Wire {
    port: u16,
    state: Arc<State>,
}

impl Wire {
    pub fn to(port: u16) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            mode: AtomicU8::new(FLOWS),
            target: AtomicU16::new(port),
            open: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        // Ends with the test process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                match shared.mode.load(Ordering::Acquire) {
                    CUT => continue,
                    DARK => {
                        shared.open.lock().unwrap().push(client);
                        continue;
                    }
                    _ => {}
                }
                let target = shared.target.load(Ordering::Acquire);
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                join(&shared, &client, &server);
            }
        });
        Wire { port: own, state }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn stall(&self) {
        self.state.mode.store(STALLED, Ordering::Release);
    }

    pub fn darken(&self) {
        self.state.mode.store(DARK, Ordering::Release);
    }

    /// Changes the target; open connections are cut.
    pub fn lead_to(&self, port: u16) {
        self.cut();
        self.state.target.store(port, Ordering::Release);
        self.mend();
    }

    pub fn cut(&self) {
        self.state.mode.store(CUT, Ordering::Release);
        for stream in self.state.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn mend(&self) {
        self.state.mode.store(FLOWS, Ordering::Release);
    }
}

fn join(state: &Arc<State>, client: &TcpStream, server: &TcpStream) {
    for (from, to) in [(client, server), (server, client)] {
        let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
        state.open.lock().unwrap().extend(from.try_clone().ok());
        let state = Arc::clone(state);
        thread::spawn(move || carry(&state, from, to));
    }
}

fn carry(state: &State, mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        while matches!(state.mode.load(Ordering::Acquire), STALLED | DARK) {
            thread::sleep(Duration::from_millis(5));
        }
        if state.mode.load(Ordering::Acquire) == CUT || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
