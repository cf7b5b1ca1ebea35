//! Loads and runs WebAssembly modules, one after the other: compiled once, kept by address, a fresh instance per run.

use super::message::{Ended, How, Limits};
use super::preview1::{self, Guest, Stop};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use wasmtime::{Config, Engine, ExternType, InstancePre, Linker, Module, Store, Trap};

#[cfg(test)]
mod tests;

/// How exactly the end of a guest's time is kept.
const TICK: Duration = Duration::from_millis(10);

pub struct Machine {
    engine: Engine,
    linker: Linker<Guest>,
    limits: Limits,
    cache: Cache,
    ticker: Arc<Ticker>,
}

impl Machine {
    /// Starts the one thread it needs; from then on it needs nothing of the system but memory.
    pub fn new(limits: Limits) -> wasmtime::Result<Machine> {
        let mut config = Config::new();
        config.epoch_interruption(true);
        // Initial memories are copied, not mapped from a file in memory: the process need not be able to make files.
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

    /// Runs the module known as `address` to its end. `fetch` is asked for its bytes when it is not in the cache, and
    /// `started` is called between that and the guest's first instruction. Errors are those of `fetch` and `started`.
    pub fn run(
        &mut self,
        address: &str,
        input: Vec<u8>,
        fetch: impl FnOnce() -> io::Result<Vec<u8>>,
        started: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Ended> {
        let loaded = match self.cache.get(address) {
            Some(loaded) => loaded,
            None => {
                let bytes = fetch()?;
                let loaded = match self.load(&bytes) {
                    Ok(loaded) => Arc::new(loaded),
                    Err(why) => return Ok(Ended::not_started(why)),
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
            .map_err(|error| format!("the module does not load: {error:#}"))?;
        let entry = ["_start", ""].into_iter().find(|name| {
            let Some(ExternType::Func(function)) = module.get_export(name) else { return false };
            function.params().len() == 0 && function.results().len() == 0
        });
        let entry = entry.ok_or("the module exports no function `_start` without parameters and results")?;
        let instance = self
            .linker
            .instantiate_pre(&module)
            .map_err(|error| format!("the module asks for what is not there: {error:#}"))?;
        Ok(Loaded { instance, entry })
    }

    fn execute(&self, loaded: &Loaded, input: Vec<u8>) -> Ended {
        let mut store = Store::new(&self.engine, Guest::new(input, &self.limits));
        store.limiter(|guest| guest);
        let ticks = self.limits.time_limit_ms.div_ceil(TICK.as_millis() as u64);
        // The tick that is under way may be nearly over.
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
        Ended { how, stdout: guest.stdout, stderr: guest.stderr, began_ns }
    }

    fn explain(&self, error: &wasmtime::Error, guest: &Guest) -> How {
        let too_long = || {
            let limit = Duration::from_millis(self.limits.time_limit_ms);
            format!("it ran longer than the {} s it may", limit.as_secs_f64())
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
                "{why}; it had asked for more than the {max} bytes of memory it may have"
            ));
        }
        How::Failed(why)
    }
}

/// The same number in every process of the machine.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// A compiled module with its imports resolved.
struct Loaded {
    instance: InstancePre<Guest>,
    entry: &'static str,
}

/// What was used last stays.
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

/// Counts the engine's epoch up while a guest runs, and sleeps otherwise: an idle process takes no CPU.
#[derive(Default)]
struct Ticker {
    running: Mutex<bool>,
    begun: Condvar,
}

struct Ticking<'a>(&'a Ticker);

impl Ticker {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(self: Arc<Self>, engine: Engine) -> io::Result<()> {
        let tick = move || {
            loop {
                let mut running = self.lock();
                while !*running {
                    running = self.begun.wait(running).unwrap_or_else(PoisonError::into_inner);
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
