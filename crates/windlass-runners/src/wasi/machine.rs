//! Execution of WebAssembly modules: compiled once, cached by address, one new instance per run.

use super::message::{GuestEnd, How, Limits};
use super::preview1::{self, Guest, Stop};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use wasmtime::{Config, Engine, ExternType, InstancePre, Linker, Module, Store, Trap};

#[cfg(test)]
mod tests;

/// Precision of the time limit.
const TICK: Duration = Duration::from_millis(10);

pub struct Machine {
    engine: Engine,
    linker: Linker<Guest>,
    limits: Limits,
    cache: Cache,
    ticker: Arc<Ticker>,
}

impl Machine {
    /// Starts its only thread; afterwards it needs nothing from the system but memory.
    pub fn new(limits: Limits) -> wasmtime::Result<Machine> {
        let mut config = Config::new();
        config.epoch_interruption(true);
        // Copies initial memories instead of mapping them from a memfd, which the confined process cannot
        // create.
        config.memory_init_cow(false);
        let engine = Engine::new(&config)?;
        let mut linker = Linker::new(&engine);
        preview1::add_to(&mut linker)?;
        linker.func_wrap("serval", "add", |a: i32, b: i32| a.wrapping_add(b))?;
        let ticker = Arc::new(Ticker::default());
        ticker.clone().start(engine.clone())?;
        let cache =
            Cache { loaded: HashMap::new(), uses: 0, modules_max: limits.cache_modules.max(1) as usize };
        Ok(Machine { engine, linker, limits, cache, ticker })
    }

    /// Runs the module with this address to its end. Calls `fetch` for its bytes if it is not cached, then
    /// `started` before the first instruction of the guest. Returns only errors of `fetch` and `started`.
    pub fn run(
        &mut self,
        address: &str,
        input: Vec<u8>,
        fetch: impl FnOnce() -> io::Result<Vec<u8>>,
        started: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<GuestEnd> {
        let loaded = match self.cache.get(address) {
            Some(loaded) => loaded,
            None => {
                let bytes = fetch()?;
                let loaded = match self.load(&bytes) {
                    Ok(loaded) => Arc::new(loaded),
                    Err(why) => return Ok(GuestEnd::not_started(why)),
                };
                self.cache.put(address, loaded.clone());
                started()?;
                loaded
            }
        };
        Ok(self.execute(&loaded, input))
    }

    fn load(&self, bytes: &[u8]) -> Result<Loaded, String> {
        let module = Module::from_binary(&self.engine, bytes)
            .map_err(|error| format!("the module cannot be loaded: {error:#}"))?;
        let entry = ["_start", ""].into_iter().find(|name| {
            let Some(ExternType::Func(function)) = module.get_export(name) else { return false };
            function.params().len() == 0 && function.results().len() == 0
        });
        let entry = entry.ok_or("the module exports no function `_start` without parameters and results")?;
        let instance = self
            .linker
            .instantiate_pre(&module)
            .map_err(|error| format!("the module has an unknown import: {error:#}"))?;
        Ok(Loaded { instance, entry })
    }

    fn execute(&self, loaded: &Loaded, input: Vec<u8>) -> GuestEnd {
        let mut store = Store::new(&self.engine, Guest::new(input, &self.limits));
        store.limiter(|guest| guest);
        let ticks = self.limits.time_limit_ms.div_ceil(TICK.as_millis() as u64);
        // One tick more, because the current one may be nearly over.
        store.set_epoch_deadline(ticks.saturating_add(1));
        let began_ns = monotonic_ns();
        let ticking = self.ticker.tick();
        let ran = loaded.instance.instantiate(&mut store).and_then(|instance| {
            let entry = instance.get_typed_func::<(), ()>(&mut store, loaded.entry)?;
            entry.call(&mut store, ())
        });
        drop(ticking);
        let guest = store.into_data();
        let how = match ran {
            Ok(()) => How::Exit(0),
            Err(error) => self.explain(&error, &guest),
        };
        GuestEnd { how, stdout: guest.stdout, stderr: guest.stderr, began_ns }
    }

    fn explain(&self, error: &wasmtime::Error, guest: &Guest) -> How {
        let too_long = || {
            let limit = Duration::from_millis(self.limits.time_limit_ms);
            format!("the module exceeded its time limit of {} s", limit.as_secs_f64())
        };
        let why = match (error.downcast_ref::<Stop>(), error.downcast_ref::<Trap>()) {
            (Some(Stop::Exit(code)), _) => return How::Exit(*code),
            (Some(stop @ Stop::Output(_)), _) => return How::TooMuchOutput(stop.to_string()),
            (Some(Stop::Time), _) | (_, Some(Trap::Interrupt)) => too_long(),
            (Some(stop), _) => stop.to_string(),
            (None, Some(trap)) => trap.to_string(),
            (None, None) => format!("{error:#}"),
        };
        if guest.wanted_more_memory {
            let max = self.limits.memory_bytes_max;
            return How::Failed(format!(
                "{why}; the module had requested more than its memory limit of {max} bytes"
            ));
        }
        How::Failed(why)
    }
}

/// Monotonic clock, which all processes of the machine share.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Compiled module with resolved imports.
struct Loaded {
    instance: InstancePre<Guest>,
    entry: &'static str,
}

/// LRU cache of compiled modules.
struct Cache {
    loaded: HashMap<String, (Arc<Loaded>, u64)>,
    uses: u64,
    modules_max: usize,
}

impl Cache {
    fn get(&mut self, address: &str) -> Option<Arc<Loaded>> {
        let (loaded, used) = self.loaded.get_mut(address)?;
        self.uses += 1;
        *used = self.uses;
        Some(loaded.clone())
    }

    fn put(&mut self, address: &str, loaded: Arc<Loaded>) {
        if self.loaded.len() >= self.modules_max {
            let oldest = self.loaded.iter().min_by_key(|(_, (_, used))| *used).map(|(name, _)| name.clone());
            self.loaded.remove(&oldest.unwrap_or_default());
        }
        self.uses += 1;
        self.loaded.insert(address.to_owned(), (loaded, self.uses));
    }
}

/// Thread that increments the engine's epoch while a guest runs, and sleeps otherwise: an idle process uses
/// no CPU.
#[derive(Default)]
struct Ticker {
    running: Mutex<bool>,
    begun: Condvar,
}

struct Ticking<'a>(&'a Ticker);

impl Ticker {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.running.lock()
    }

    fn start(self: Arc<Self>, engine: Engine) -> io::Result<()> {
        let tick = move || {
            loop {
                let mut running = self.lock();
                while !*running {
                    self.begun.wait(&mut running);
                }
                drop(running);
                thread::sleep(TICK);
                engine.increment_epoch();
            }
        };
        thread::Builder::new().name("wasi-ticker".to_owned()).spawn(tick).map(drop)
    }

    fn tick(&self) -> Ticking<'_> {
        *self.lock() = true;
        self.begun.notify_one();
        Ticking(self)
    }
}

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        *self.0.lock() = false;
    }
}
