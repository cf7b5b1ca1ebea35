//! Announcement of the server by multicast DNS, by which runners of queuey-queue find their queue.

use crate::config::Config;
use mdns_sd::{IfKind, ServiceDaemon, ServiceInfo};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Service types. The first is that of the protocol; many libraries refuse its colon, hence the second.
const TYPES: [&str; 2] = ["_serval:queue._tcp.local.", "_serval_queue._tcp.local."];

/// Time limit of the goodbye, one packet per network.
const GOODBYE: Duration = Duration::from_secs(1);

/// True if the server should be announced: by default only if it is reachable from other machines.
pub(crate) fn is_wanted(config: &Config) -> bool {
    match config.mdns.as_str() {
        "on" => true,
        "auto" => !config.http.is_loopback(),
        _ => false,
    }
}

/// Error message if an announcement was requested that no other machine could use.
pub(crate) fn refusal(config: &Config) -> Option<String> {
    (config.mdns == "on" && config.http.is_loopback()).then(|| {
        format!(
            "mdns is on, but {} is a loopback address that other machines cannot reach; choose \
             another address with --http, or use --mdns auto",
            config.http.text
        )
    })
}

/// Running announcement. Instance names are unique, so that several servers on a network are all found.
pub(crate) struct Announcement {
    daemon: ServiceDaemon,
    names: Vec<String>,
}

impl Announcement {
    /// Starts announcing; `rolls` are random bits for the instance name.
    pub(crate) fn start(http: SocketAddr, rolls: [u64; 2]) -> Result<Announcement, mdns_sd::Error> {
        let instance = uuid(rolls);
        let host = format!("windlass-{instance}.local.");
        let port = http.port();
        let daemon = ServiceDaemon::new()?;
        // The protocol supports IPv4 only, and loopback is useless for discovery.
        daemon.disable_interface(vec![IfKind::IPv6, IfKind::LoopbackV4])?;
        let mut names = Vec::new();
        for service in TYPES {
            let txt = [("http_port", port.to_string())];
            let info = match http.ip() {
                IpAddr::V4(ip) if !ip.is_unspecified() && !ip.is_loopback() => {
                    ServiceInfo::new(service, &instance, &host, IpAddr::V4(ip), port, &txt[..])?
                }
                // All addresses of the machine, including later changes.
                _ => ServiceInfo::new(service, &instance, &host, "", port, &txt[..])?.enable_addr_auto(),
            };
            names.push(info.get_fullname().to_owned());
            daemon.register(info)?;
        }
        Ok(Announcement { daemon, names })
    }

    /// Withdraws the announcement; waits at most `GOODBYE` per packet.
    pub(crate) fn end(self) {
        let goodbyes: Vec<_> =
            self.names.iter().filter_map(|name| self.daemon.unregister(name).ok()).collect();
        for goodbye in goodbyes {
            let _ = goodbye.recv_timeout(GOODBYE);
        }
        if let Ok(ended) = self.daemon.shutdown() {
            let _ = ended.recv_timeout(GOODBYE);
        }
    }
}

/// UUID version 4 from random bits.
fn uuid(rolls: [u64; 2]) -> String {
    let [a, b] = rolls;
    let (version, variant) = ((a & 0xfff) | 0x4000, (b >> 48 & 0x3fff) | 0x8000);
    let (first, second) = (a >> 32, a >> 16 & 0xffff);
    format!("{first:08x}-{second:04x}-{version:04x}-{variant:04x}-{:012x}", b & 0xffff_ffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_name_is_a_uuid_of_version_4() {
        assert_eq!(uuid([0, 0]), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid([u64::MAX, u64::MAX]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        let name = uuid([0x0123_4567_89ab_cdef, 0x1122_3344_5566_7788]);
        assert_eq!(name, "01234567-89ab-4def-9122-334455667788");
    }
}
