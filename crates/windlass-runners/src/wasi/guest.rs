//! Main function of a guest process: it receives its limits, confines itself, and executes orders until end
//! of file. It has no environment, no relevant arguments and no connections but stdin and stdout.

use super::machine::Machine;
use super::message::{GuestEnd, Limits, Order, Reply, read_blocking, write_blocking};
use crate::confine;
use std::cell::RefCell;
use std::io::{self, BufReader, Read, Write};

/// Size of the input buffer: the capacity of a pipe.
const BUFFER_BYTES: usize = 64 * 1024;

/// Writable address space besides the guest's memory: compiled code, compiler, input and output. The
/// allocator reserves it in large pieces, so this is a backstop; the runner checks the memory in use.
const PROCESS_BYTES: u64 = 4 << 30;

/// Serves the runner on stdin and stdout until end of file.
pub fn serve() -> io::Result<()> {
    let mut orders = BufReader::with_capacity(BUFFER_BYTES, In);
    let Some(first) = read_blocking(&mut orders)? else { return Ok(()) };
    let Order::Begin(limits) = first else { return Err(out_of_turn("limits")) };
    let (machine, confined) = enter(limits)?;
    write_blocking(&mut Out, &Reply::Ready { confined })?;
    serve_orders(machine, orders, Out)
}

fn enter(limits: Limits) -> io::Result<(Machine, Vec<String>)> {
    let mut confined = confine::begin(limits.memory_bytes_max.saturating_add(PROCESS_BYTES));
    let machine = Machine::new(limits).map_err(|error| io::Error::other(error.to_string()))?;
    confine::finish(&mut confined);
    Ok((machine, confined))
}

fn serve_orders(mut machine: Machine, orders: impl Read, replies: impl Write) -> io::Result<()> {
    let pipes = RefCell::new((orders, replies));
    let receive = || read_blocking::<Order>(&mut pipes.borrow_mut().0);
    let reply = |reply: &Reply| write_blocking(&mut pipes.borrow_mut().1, reply);
    while let Some(order) = receive()? {
        let Order::Run { module, input } = order else { return Err(out_of_turn("a run")) };
        let fetch = || {
            reply(&Reply::NeedModule)?;
            match receive()? {
                Some(Order::Module { bytes }) => Ok(bytes),
                // The runner could not load the module and abandons the run.
                Some(Order::GiveUp) => Err(io::ErrorKind::NotFound.into()),
                _ => Err(out_of_turn("a module")),
            }
        };
        let ended = match machine.run(&module, input, fetch, || reply(&Reply::Started)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => GuestEnd::not_started("aborted"),
            ended => ended?,
        };
        reply(&Reply::Ended(ended))?;
    }
    Ok(())
}

fn out_of_turn(wanted: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected message; expected {wanted}"))
}

/// Unbuffered stdin and stdout without the locks of the standard library.
struct In;
struct Out;

impl Read for In {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(rustix::stdio::stdin(), into)?)
    }
}

impl Write for Out {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stdout(), from)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wasi::message::How;
    use crate::wasi::samples;

    #[test]
    fn orders_are_served_in_turn_and_a_module_is_asked_for_once() {
        let mut orders = Vec::new();
        let run = |input: &[u8]| Order::Run { module: "a".to_owned(), input: input.to_vec() };
        let module = Order::Module { bytes: samples::compile(samples::UPPER) };
        for order in [run(b"lost"), Order::GiveUp, run(b"one"), module, run(b"two")] {
            write_blocking(&mut orders, &order).unwrap();
        }
        let mut replies = Vec::new();
        let machine = Machine::new(Limits::default()).unwrap();
        serve_orders(machine, orders.as_slice(), &mut replies).unwrap();
        let mut from = replies.as_slice();
        let mut told = Vec::new();
        while let Some(reply) = read_blocking(&mut from).unwrap() {
            told.push(match reply {
                Reply::Ended(GuestEnd { how: How::Exit(0), stdout, .. }) => {
                    String::from_utf8(stdout).unwrap()
                }
                Reply::Ended(ended) => format!("{:?}", ended.how),
                other => format!("{other:?}"),
            });
        }
        let need = "NeedModule";
        assert_eq!(told, [need, "Failed(\"aborted\")", need, "Started", "ONE", "TWO"]);
    }
}
