//! `wasi_snapshot_preview1` for a guest with three open files: standard input, output and error.
//!
//! No function here reaches a file, an environment variable, an argument or a socket: calls that need one
//! return `badf`, as in a process that has none. Clocks, random numbers and sleep are real.

use super::message::Limits;
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wasmtime::{Caller, Extern, Linker, ResourceLimiter};

mod memory;
mod poll;
#[cfg(test)]
mod tests;

use memory::{Memory, bytes_at, put};

pub const MODULE: &str = "wasi_snapshot_preview1";

/// Most buffers of one vectored read or write; the rest is left for the next call, as POSIX allows.
const PIECES_MAX: u32 = 1024;
/// Most elements of all tables of a guest (function references). A large program has tens of thousands.
const TABLE_ELEMENTS_MAX: usize = 1 << 20;
const STDIN: usize = 0;

/// WASI `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

pub const BADF: Errno = Errno(8);
pub const FAULT: Errno = Errno(21);
pub const INVAL: Errno = Errno(28);
pub const IO: Errno = Errno(29);
pub const NOTSUP: Errno = Errno(58);
pub const SPIPE: Errno = Errno(70);

/// Reason why a guest was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    Exit(i32),
    /// Too much output.
    Output(u64),
    /// The time limit passed during a sleep.
    Time,
    /// The module exports no memory for the call.
    NoMemory,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Exit(code) => write!(f, "exit code {code}"),
            Stop::Output(max) => write!(f, "the output exceeds the limit of {max} bytes"),
            Stop::Time => f.write_str("the time limit was exceeded"),
            Stop::NoMemory => f.write_str("the module exports no memory named `memory`"),
        }
    }
}

impl std::error::Error for Stop {}

/// Error returned to the guest, or a reason to stop it.
pub enum Fail {
    Errno(Errno),
    Stop(Stop),
}

impl From<Errno> for Fail {
    fn from(errno: Errno) -> Self {
        Fail::Errno(errno)
    }
}

/// Host state of one guest.
pub struct Guest {
    input: Vec<u8>,
    read: usize,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    open: [bool; 3],
    output_bytes_max: u64,
    began: Instant,
    deadline: Instant,
    memory_bytes: u64,
    memory_bytes_max: u64,
    table_elements: usize,
    /// The guest exceeded its memory limit, which most likely explains a later failure.
    pub wanted_more_memory: bool,
}

impl Guest {
    pub fn new(input: Vec<u8>, limits: &Limits) -> Guest {
        let began = Instant::now();
        Guest {
            input,
            read: 0,
            stdout: Vec::new(),
            stderr: Vec::new(),
            open: [true; 3],
            output_bytes_max: limits.output_bytes_max,
            began,
            deadline: began + Duration::from_millis(limits.time_limit_ms),
            memory_bytes: 0,
            memory_bytes_max: limits.memory_bytes_max,
            table_elements: 0,
            wanted_more_memory: false,
        }
    }

    fn file(&self, fd: i32) -> Result<usize, Errno> {
        let fd = usize::try_from(fd).map_err(|_| BADF)?;
        if self.open.get(fd) == Some(&true) { Ok(fd) } else { Err(BADF) }
    }

    fn write(&mut self, fd: usize, bytes: &[u8]) -> Result<(), Stop> {
        let output = if fd == 1 { &mut self.stdout } else { &mut self.stderr };
        let room = usize::try_from(self.output_bytes_max).unwrap_or(usize::MAX) - output.len();
        output.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room { Err(Stop::Output(self.output_bytes_max)) } else { Ok(()) }
    }

    fn clock_ns(&self, id: i32) -> Result<u64, Errno> {
        let time = match id {
            0 => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            // Monotonic clock, process time and thread time all start with the guest.
            1..=3 => self.began.elapsed(),
            _ => return Err(INVAL),
        };
        Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl ResourceLimiter for Guest {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let after = self.memory_bytes.saturating_add(desired.saturating_sub(current) as u64);
        if after > self.memory_bytes_max {
            self.wanted_more_memory = true;
            return Ok(false);
        }
        self.memory_bytes = after;
        Ok(true)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let after = self.table_elements.saturating_add(desired.saturating_sub(current));
        let allowed = after <= TABLE_ELEMENTS_MAX;
        if allowed {
            self.table_elements = after;
        }
        Ok(allowed)
    }
}

/// Runs `body` with the guest's memory and converts its result to an errno or a trap.
fn answer(
    caller: &mut Caller<'_, Guest>,
    body: impl FnOnce(&mut Memory, &mut Guest) -> Result<(), Fail>,
) -> wasmtime::Result<i32> {
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
        return Err(wasmtime::Error::new(Stop::NoMemory));
    };
    let (bytes, guest) = memory.data_and_store_mut(caller);
    match body(bytes, guest) {
        Ok(()) => Ok(0),
        Err(Fail::Errno(errno)) => Ok(errno.0),
        Err(Fail::Stop(stop)) => Err(wasmtime::Error::new(stop)),
    }
}

pub fn add_to(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    process(linker)?;
    streams(linker)?;
    about_files(linker)?;
    absent(linker)
}

type Host<'a> = Caller<'a, Guest>;

/// Arguments and environment (empty), clocks, random numbers and exit.
fn process(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    for name in ["args_sizes_get", "environ_sizes_get"] {
        linker.func_wrap(MODULE, name, |mut host: Host<'_>, count: i32, bytes: i32| {
            answer(&mut host, |memory, _| {
                put(memory, count, &0_u32.to_le_bytes())?;
                Ok(put(memory, bytes, &0_u32.to_le_bytes())?)
            })
        })?;
    }
    for name in ["args_get", "environ_get"] {
        linker.func_wrap(MODULE, name, |_: i32, _: i32| 0)?;
    }
    linker.func_wrap(MODULE, "clock_res_get", |mut host: Host<'_>, id: i32, out: i32| {
        answer(&mut host, |memory, guest| {
            guest.clock_ns(id)?;
            Ok(put(memory, out, &1_u64.to_le_bytes())?)
        })
    })?;
    linker.func_wrap(
        MODULE,
        "clock_time_get",
        |mut host: Host<'_>, id: i32, _precision: i64, out: i32| {
            answer(&mut host, |memory, guest| {
                let time = guest.clock_ns(id)?;
                Ok(put(memory, out, &time.to_le_bytes())?)
            })
        },
    )?;
    linker.func_wrap(MODULE, "random_get", |mut host: Host<'_>, at: i32, length: i32| {
        answer(&mut host, |memory, _| Ok(fill_with_chance(bytes_at(memory, at, length)?)?))
    })?;
    linker.func_wrap(
        MODULE,
        "poll_oneoff",
        |mut host: Host<'_>, subscriptions: i32, events: i32, count: i32, out: i32| {
            answer(&mut host, |memory, guest| poll::poll(memory, guest, subscriptions, events, count, out))
        },
    )?;
    linker.func_wrap(MODULE, "sched_yield", || 0)?;
    linker.func_wrap(MODULE, "proc_exit", |code: i32| -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(Stop::Exit(code)))
    })?;
    linker.func_wrap(MODULE, "proc_raise", |_: i32| NOTSUP.0)?;
    Ok(())
}

fn fill_with_chance(bytes: &mut [u8]) -> Result<(), Errno> {
    getrandom::fill(bytes).map_err(|_| IO)
}

/// Reads and writes.
fn streams(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.func_wrap(
        MODULE,
        "fd_read",
        |mut host: Host<'_>, fd: i32, pieces: i32, count: i32, out: i32| {
            answer(&mut host, |memory, guest| {
                if guest.file(fd)? != STDIN {
                    return Err(BADF.into());
                }
                let mut total = 0_u32;
                for (at, length) in memory::pieces(memory, pieces, count)? {
                    let into = bytes_at(memory, at, length)?;
                    let rest = &guest.input[guest.read..];
                    let taken = into.len().min(rest.len());
                    into[..taken].copy_from_slice(&rest[..taken]);
                    guest.read += taken;
                    total = total.saturating_add(taken as u32);
                }
                Ok(put(memory, out, &total.to_le_bytes())?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_write",
        |mut host: Host<'_>, fd: i32, pieces: i32, count: i32, out: i32| {
            answer(&mut host, |memory, guest| {
                let fd = guest.file(fd)?;
                if fd == STDIN {
                    return Err(BADF.into());
                }
                let mut total = 0_u32;
                for (at, length) in memory::pieces(memory, pieces, count)? {
                    let from = bytes_at(memory, at, length)?;
                    guest.write(fd, from).map_err(Fail::Stop)?;
                    total = total.saturating_add(from.len() as u32);
                }
                Ok(put(memory, out, &total.to_le_bytes())?)
            })
        },
    )?;
    Ok(())
}

/// Attributes of the three open files.
fn about_files(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, "fd_close", |mut host: Host<'_>, fd: i32| {
        let guest = host.data_mut();
        match guest.file(fd) {
            Ok(fd) => {
                guest.open[fd] = false;
                0
            }
            Err(errno) => errno.0,
        }
    })?;
    linker.func_wrap(MODULE, "fd_fdstat_get", |mut host: Host<'_>, fd: i32, out: i32| {
        answer(&mut host, |memory, guest| {
            let fd = guest.file(fd)?;
            let mut stat = [0_u8; 24];
            // File type 0: unknown, neither a file nor a terminal. Rights: fd_read (bit 1) or fd_write (bit
            // 6), and poll (bit 27).
            let right: u64 = if fd == STDIN { 1 << 1 } else { 1 << 6 };
            stat[8..16].copy_from_slice(&(right | 1 << 27).to_le_bytes());
            Ok(put(memory, out, &stat)?)
        })
    })?;
    linker.func_wrap(MODULE, "fd_filestat_get", |mut host: Host<'_>, fd: i32, out: i32| {
        answer(&mut host, |memory, guest| {
            guest.file(fd)?;
            Ok(put(memory, out, &[0; 64])?)
        })
    })?;
    linker.func_wrap(
        MODULE,
        "fd_seek",
        |host: Host<'_>, fd: i32, _offset: i64, _whence: i32, _out: i32| {
            host.data().file(fd).map_or_else(|errno| errno.0, |_| SPIPE.0)
        },
    )?;
    linker.func_wrap(MODULE, "fd_tell", |host: Host<'_>, fd: i32, _out: i32| {
        host.data().file(fd).map_or_else(|errno| errno.0, |_| SPIPE.0)
    })?;
    for name in ["fd_datasync", "fd_sync"] {
        linker.func_wrap(MODULE, name, |host: Host<'_>, fd: i32| {
            host.data().file(fd).map_or_else(|errno| errno.0, |_| INVAL.0)
        })?;
    }
    linker.func_wrap(MODULE, "fd_fdstat_set_flags", |host: Host<'_>, fd: i32, _flags: i32| {
        host.data().file(fd).map_or_else(|errno| errno.0, |_| NOTSUP.0)
    })?;
    Ok(())
}

/// Functions on folders, paths, sockets and file positions, which do not exist: `badf`.
fn absent(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    const NO: i32 = BADF.0;
    linker.func_wrap(MODULE, "fd_advise", |_: i32, _: i64, _: i64, _: i32| NO)?;
    linker.func_wrap(MODULE, "fd_allocate", |_: i32, _: i64, _: i64| NO)?;
    linker.func_wrap(MODULE, "fd_fdstat_set_rights", |_: i32, _: i64, _: i64| NO)?;
    linker.func_wrap(MODULE, "fd_filestat_set_size", |_: i32, _: i64| NO)?;
    linker.func_wrap(MODULE, "fd_filestat_set_times", |_: i32, _: i64, _: i64, _: i32| NO)?;
    for name in ["fd_pread", "fd_pwrite"] {
        linker.func_wrap(MODULE, name, |_: i32, _: i32, _: i32, _: i64, _: i32| NO)?;
    }
    linker.func_wrap(MODULE, "fd_prestat_get", |_: i32, _: i32| NO)?;
    linker.func_wrap(MODULE, "fd_prestat_dir_name", |_: i32, _: i32, _: i32| NO)?;
    linker.func_wrap(MODULE, "fd_readdir", |_: i32, _: i32, _: i32, _: i64, _: i32| NO)?;
    linker.func_wrap(MODULE, "fd_renumber", |_: i32, _: i32| NO)?;
    for name in ["path_create_directory", "path_remove_directory", "path_unlink_file"] {
        linker.func_wrap(MODULE, name, |_: i32, _: i32, _: i32| NO)?;
    }
    linker.func_wrap(MODULE, "path_filestat_get", |_: i32, _: i32, _: i32, _: i32, _: i32| NO)?;
    linker.func_wrap(
        MODULE,
        "path_filestat_set_times",
        |_: i32, _: i32, _: i32, _: i32, _: i64, _: i64, _: i32| NO,
    )?;
    linker.func_wrap(MODULE, "path_link", |_: i32, _: i32, _: i32, _: i32, _: i32, _: i32, _: i32| NO)?;
    linker.func_wrap(
        MODULE,
        "path_open",
        |_: i32, _: i32, _: i32, _: i32, _: i32, _: i64, _: i64, _: i32, _: i32| NO,
    )?;
    for name in ["path_readlink", "path_rename"] {
        linker.func_wrap(MODULE, name, |_: i32, _: i32, _: i32, _: i32, _: i32, _: i32| NO)?;
    }
    linker.func_wrap(MODULE, "path_symlink", |_: i32, _: i32, _: i32, _: i32, _: i32| NO)?;
    linker.func_wrap(MODULE, "sock_accept", |_: i32, _: i32, _: i32| NO)?;
    linker.func_wrap(MODULE, "sock_recv", |_: i32, _: i32, _: i32, _: i32, _: i32, _: i32| NO)?;
    linker.func_wrap(MODULE, "sock_send", |_: i32, _: i32, _: i32, _: i32, _: i32| NO)?;
    linker.func_wrap(MODULE, "sock_shutdown", |_: i32, _: i32| NO)?;
    Ok(())
}
