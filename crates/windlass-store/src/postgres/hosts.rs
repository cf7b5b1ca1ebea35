//! Hosts of a URL, tried in parallel: a silent host delays the others only by its head start.

use super::migrate::is_away;
use super::tls::Tls;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Socket};

/// Head start of each host before the next one is tried in parallel. A host in the same data centre answers
/// in a hundredth of it.
const HEAD_START: Duration = Duration::from_millis(300);
/// Time limit for one host, from the first packet to a session, without `connect_timeout` in the URL.
const CONNECT_MAX: Duration = Duration::from_secs(4);

type Traffic = tokio_postgres::Connection<Socket, <Tls as MakeTlsConnect<Socket>>::Stream>;

/// Read-write session, and the index of its host.
pub(super) struct Session {
    pub client: Client,
    pub traffic: Traffic,
    pub host: usize,
}

/// Reason why no session was opened.
#[derive(Debug)]
pub(super) enum NoSession {
    /// No host gave a read-write session, and at least one did not answer in time.
    Silent(String),
    /// Errors of the hosts, and whether one of them is temporary.
    Refused { said: String, is_away: bool },
    /// Error of the only host.
    Error(tokio_postgres::Error),
}

impl NoSession {
    /// True if the database may become available without intervention.
    pub(super) fn is_away(&self) -> bool {
        match self {
            NoSession::Silent(_) => true,
            NoSession::Refused { is_away, .. } => *is_away,
            NoSession::Error(error) => is_away(error),
        }
    }
}

impl std::fmt::Display for NoSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoSession::Silent(why) | NoSession::Refused { said: why, .. } => f.write_str(why),
            NoSession::Error(error) => f.write_str(&words(error)),
        }
    }
}

/// Hosts of the database. One of them is the primary; a failover changes which one.
pub(super) struct Hosts {
    hosts: Vec<Config>,
    tls: Tls,
    connect_max: Duration,
    /// Host of the newest session, tried first the next time. Sessions with other hosts are outdated.
    current: AtomicUsize,
}

impl Hosts {
    /// Every session must be read-write, whatever `target_session_attrs` says: a standby cannot be used.
    pub(super) fn new(config: &Config, tls: Tls) -> Hosts {
        let count = config.get_hosts().len().max(config.get_hostaddrs().len());
        let connect_max = config.get_connect_timeout().copied().unwrap_or(CONNECT_MAX);
        let hosts = (0..count).map(|number| only_host(config, number)).collect();
        Hosts { hosts, tls, connect_max, current: AtomicUsize::new(0) }
    }

    /// True if the newest session is with this host.
    pub(super) fn is_current(&self, host: usize) -> bool {
        self.current.load(Ordering::Acquire) == host
    }

    /// First host that opens a read-write session.
    pub(super) async fn connect(&self) -> Result<Session, NoSession> {
        let first = self.current.load(Ordering::Acquire);
        let order = std::iter::once(first).chain((0..self.hosts.len()).filter(|number| *number != first));
        let attempts = order.filter_map(|number| {
            let config = self.hosts.get(number)?;
            let attempt: Attempt<'_, _, _> = Box::pin(async move {
                let session = self.connect_to(config).await;
                session.map(|(client, traffic)| Session { client, traffic, host: number })
            });
            Some(attempt)
        });
        match race(attempts.collect(), HEAD_START).await {
            Ok(session) => {
                self.current.store(session.host, Ordering::Release);
                Ok(session)
            }
            Err(failures) => Err(self.explain(failures)),
        }
    }

    /// Connects to one host, by all addresses of its name.
    async fn connect_to(&self, config: &Config) -> Result<(Client, Traffic), Failure> {
        let addresses = match timeout(self.connect_max, addresses(config)).await {
            Ok(addresses) => addresses.map_err(Failure::Lookup)?,
            Err(_) => return Err(Failure::Silent),
        };
        let attempts = addresses.into_iter().map(|address| {
            let attempt: Attempt<'_, _, _> = Box::pin(async move {
                match timeout(self.connect_max, address.connect(self.tls.clone())).await {
                    Ok(connected) => connected.map_err(Failure::Driver),
                    Err(_) => Err(Failure::Silent),
                }
            });
            attempt
        });
        let failures = match race(attempts.collect(), HEAD_START).await {
            Ok(session) => return Ok(session),
            Err(failures) => failures,
        };
        // An error tells more than a timeout.
        let spoke = |failure: &Failure| !matches!(failure, Failure::Silent);
        Err(failures.into_iter().max_by_key(spoke).unwrap_or(Failure::Silent))
    }

    fn explain(&self, mut failures: Vec<Failure>) -> NoSession {
        if failures.len() == 1 {
            return match failures.remove(0) {
                Failure::Driver(error) => NoSession::Error(error),
                Failure::Silent => NoSession::Silent(self.silence()),
                Failure::Lookup(error) => NoSession::Refused { said: error.to_string(), is_away: true },
            };
        }
        let is_silent = failures.iter().any(|failure| matches!(failure, Failure::Silent));
        let said: Vec<String> = failures.iter().map(|failure| self.describe(failure)).collect();
        let said = format!("no host accepts writes: {}", said.join("; "));
        let is_away = failures.iter().any(|failure| match failure {
            Failure::Driver(error) => is_away(error),
            Failure::Lookup(_) | Failure::Silent => true,
        });
        if is_silent { NoSession::Silent(said) } else { NoSession::Refused { said, is_away } }
    }

    fn describe(&self, failure: &Failure) -> String {
        match failure {
            Failure::Driver(error) => words(error),
            Failure::Lookup(error) => error.to_string(),
            Failure::Silent => self.silence(),
        }
    }

    fn silence(&self) -> String {
        format!("PostgreSQL did not respond within {} s", self.connect_max.as_secs())
    }
}

#[derive(Debug)]
enum Failure {
    Silent,
    Lookup(io::Error),
    Driver(tokio_postgres::Error),
}

/// Message of the database, or the cause of the connection error, which the driver keeps one level down.
fn words(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(said), _) => said.message().to_owned(),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}

type Attempt<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// Starts the attempts in order, each when the previous one has failed or used up its head start. The first
/// success cancels the others; otherwise all failures are returned.
async fn race<T, E>(attempts: Vec<Attempt<'_, T, E>>, head_start: Duration) -> Result<T, Vec<E>> {
    let mut waiting = attempts.into_iter();
    let mut running = FuturesUnordered::new();
    let mut failures = Vec::new();
    let mut next_at = Instant::now();
    loop {
        if running.is_empty() || Instant::now() >= next_at {
            match waiting.next() {
                Some(attempt) => {
                    running.push(attempt);
                    next_at = Instant::now() + head_start;
                }
                None if running.is_empty() => return Err(failures),
                None => {}
            }
        }
        tokio::select! {
            Some(ended) = running.next() => match ended {
                Ok(value) => return Ok(value),
                Err(failure) => {
                    failures.push(failure);
                    next_at = Instant::now();
                }
            },
            () = sleep_until(next_at), if waiting.len() > 0 => {}
        }
    }
}

/// Settings for each address of a host name.
async fn addresses(config: &Config) -> io::Result<Vec<Config>> {
    let (Some(Host::Tcp(name)), []) = (config.get_hosts().first(), config.get_hostaddrs()) else {
        return Ok(vec![config.clone()]);
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let found = tokio::net::lookup_host((name.as_str(), port)).await;
    let found =
        found.map_err(|error| io::Error::new(error.kind(), format!("cannot resolve {name}: {error}")))?;
    let at = |ip: IpAddr| {
        let mut config = config.clone();
        config.hostaddr(ip);
        config
    };
    let all: Vec<Config> = found.map(|address| at(address.ip())).collect();
    if all.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("{name} has no address")));
    }
    Ok(all)
}

/// Settings of the URL for one of its hosts.
fn only_host(all: &Config, number: usize) -> Config {
    let mut one = Config::new();
    match all.get_hosts().get(number) {
        Some(Host::Tcp(name)) => drop(one.host(name.clone())),
        #[cfg(unix)]
        Some(Host::Unix(folder)) => drop(one.host_path::<&Path>(folder)),
        None => {}
    }
    if let Some(address) = all.get_hostaddrs().get(number) {
        one.hostaddr(*address);
    }
    if let Some(port) = all.get_ports().get(number).or_else(|| all.get_ports().first()) {
        one.port(*port);
    }
    let set = |text: Option<&str>| text.map(str::to_owned);
    set(all.get_user()).map(|user| one.user(user));
    all.get_password().map(|password| one.password(password));
    set(all.get_dbname()).map(|name| one.dbname(name));
    set(all.get_options()).map(|options| one.options(options));
    set(all.get_application_name()).map(|name| one.application_name(name));
    all.get_tcp_user_timeout().map(|silence| one.tcp_user_timeout(*silence));
    all.get_keepalives_interval().map(|interval| one.keepalives_interval(interval));
    all.get_keepalives_retries().map(|retries| one.keepalives_retries(retries));
    one.keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle())
        .ssl_mode(all.get_ssl_mode())
        .ssl_negotiation(all.get_ssl_negotiation())
        .channel_binding(all.get_channel_binding())
        .target_session_attrs(TargetSessionAttrs::ReadWrite);
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    /// Behaviour of a host in the test.
    #[derive(Clone, Copy, Debug)]
    enum Does {
        Nothing,
        Refuses(&'static str),
        Answers(&'static str),
    }
    use Does::{Answers, Nothing, Refuses};

    /// Result, and the number of hosts tried.
    async fn tried(hosts: &[Does]) -> (Result<&'static str, Vec<&'static str>>, u32) {
        let begun = AtomicU32::new(0);
        let begun = &begun;
        let attempts = hosts.iter().map(|does| {
            let attempt: Attempt<'_, _, _> = Box::pin(async move {
                begun.fetch_add(1, Ordering::Relaxed);
                match *does {
                    Nothing => std::future::pending().await,
                    Refuses(why) => Err(why),
                    Answers(word) => Ok(word),
                }
            });
            attempt
        });
        let end = race(attempts.collect(), Duration::from_millis(20)).await;
        (end, begun.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn the_first_host_to_take_writes_wins_and_a_silent_one_holds_up_nobody() {
        type Case<'a> = (&'a [Does], Result<&'static str, Vec<&'static str>>, u32);
        let cases: [Case<'_>; 5] = [
            (&[Answers("a"), Answers("b")], Ok("a"), 1),
            (&[Nothing, Answers("b")], Ok("b"), 2),
            (&[Refuses("a"), Answers("b"), Answers("c")], Ok("b"), 2),
            (&[Nothing, Refuses("b"), Nothing, Answers("d")], Ok("d"), 4),
            (&[Refuses("a"), Refuses("b")], Err(vec!["a", "b"]), 2),
        ];
        for (hosts, end, begun) in cases {
            assert_eq!(tried(hosts).await, (end, begun), "{hosts:?}");
        }
    }

    #[test]
    fn each_host_keeps_the_settings_of_the_url() {
        let url = "postgres://ann:pass@one:5001,two:5002/jobs?connect_timeout=7&options=-c%20x%3D1&keepalives_idle=9";
        let all: Config = url.parse().unwrap();
        let two = only_host(&all, 1);
        assert_eq!(two.get_hosts(), [Host::Tcp("two".to_owned())]);
        assert_eq!(two.get_ports(), [5002]);
        assert_eq!((two.get_user(), two.get_password()), (Some("ann"), Some("pass".as_bytes())));
        assert_eq!((two.get_dbname(), two.get_options()), (Some("jobs"), Some("-c x=1")));
        assert_eq!(two.get_keepalives_idle(), Duration::from_secs(9));
        assert_eq!(two.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    }

    #[test]
    fn the_time_to_connect_comes_from_the_url() {
        let max = |url: &str| {
            let tls = Tls::new(super::super::tls::SslMode::Disable, None).unwrap();
            Hosts::new(&url.parse().unwrap(), tls).connect_max
        };
        assert_eq!(max("postgres://ann@one/jobs"), CONNECT_MAX);
        assert_eq!(max("postgres://ann@one/jobs?connect_timeout=1"), Duration::from_secs(1));
    }
}
