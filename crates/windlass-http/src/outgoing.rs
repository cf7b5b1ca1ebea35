//! Addresses that the server may call. A client that registers a worker or a handler chooses an address, and must not
//! reach a network through the server that it cannot reach itself (server-side request forgery).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;

/// Allowed addresses. The resolved address is checked, whatever the host name.
#[derive(Debug)]
pub struct Allowed {
    nets: Vec<Net>,
    /// Set for the default, which applies only while no token is required. Clients with tokens may be
    /// strangers to each other and to this machine, so only listed addresses are called for them.
    while_open: Option<OnceLock<OpenCheck>>,
}

/// True while no token is required.
struct OpenCheck(Box<dyn Fn() -> bool + Send + Sync>);

impl fmt::Debug for OpenCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenCheck")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Net {
    Any,
    Loopback,
    /// Networks that are not routed on the internet, without link-local ones, where cloud machines serve
    /// their secrets.
    Private,
    Block {
        base: u128,
        /// Of the 128 bits of the address; IPv4 is mapped into IPv6.
        prefix: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not loopback, private, any, an IP address, or a CIDR block such as 10.0.0.0/8")]
pub struct BadNet(String);

impl Allowed {
    /// Parses `loopback`, `private`, `any`, addresses and blocks.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Allowed, BadNet> {
        entries.into_iter().map(Net::parse).collect::<Result<_, _>>().map(Allowed::listed)
    }

    fn listed(nets: Vec<Net>) -> Allowed {
        Allowed { nets, while_open: None }
    }

    /// For addresses that the operator has configured.
    pub fn any() -> Allowed {
        Allowed::listed(vec![Net::Any])
    }

    /// Default: a server that only this machine can reach calls only this machine; a server with tokens calls
    /// none, see [`Allowed::while_open`].
    pub fn default_for(server_is_loopback: bool) -> Allowed {
        let nets = match server_is_loopback {
            true => vec![Net::Loopback],
            false => vec![Net::Loopback, Net::Private],
        };
        Allowed { nets, while_open: Some(OnceLock::new()) }
    }

    /// Ends the default as soon as `is_open` says that a token is required.
    pub fn while_open(&self, is_open: impl Fn() -> bool + Send + Sync + 'static) {
        if let Some(while_open) = &self.while_open {
            let _ = while_open.set(OpenCheck(Box::new(is_open)));
        }
    }

    fn nets(&self) -> &[Net] {
        let check = self.while_open.as_ref().and_then(OnceLock::get);
        if check.is_some_and(|OpenCheck(is_open)| !is_open()) { &[] } else { &self.nets }
    }

    pub fn allows(&self, address: IpAddr) -> bool {
        // An IPv4 address mapped into IPv6 counts as IPv4.
        let address = address.to_canonical();
        self.nets().iter().any(|net| net.holds(address))
    }

    /// Filters resolved addresses by the allowed ones.
    pub fn of(&self, addresses: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
        addresses.filter(|address| self.allows(address.ip())).collect()
    }
}

impl Net {
    fn parse(text: &str) -> Result<Net, BadNet> {
        let bad = || BadNet(text.to_owned());
        match text {
            "any" => return Ok(Net::Any),
            "loopback" => return Ok(Net::Loopback),
            "private" => return Ok(Net::Private),
            _ => {}
        }
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u32>().map_err(|_| bad())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let own_bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(own_bits);
        if prefix > own_bits {
            return Err(bad());
        }
        Ok(Net::Block { base: bits(address), prefix: prefix + 128 - own_bits })
    }

    fn holds(self, address: IpAddr) -> bool {
        match self {
            Net::Any => true,
            Net::Loopback => address.is_loopback(),
            Net::Private => match address {
                IpAddr::V4(v4) => v4.is_private(),
                IpAddr::V6(v6) => v6.is_unique_local(),
            },
            Net::Block { base, prefix } => {
                let rest = 128 - prefix;
                // A shift by all 128 bits would overflow; there is nothing to compare then.
                rest == 128 || bits(address) >> rest == base >> rest
            }
        }
    }
}

fn bits(address: IpAddr) -> u128 {
    let v6: Ipv6Addr = match address {
        IpAddr::V4(v4) => Ipv4Addr::to_ipv6_mapped(&v4),
        IpAddr::V6(v6) => v6,
    };
    v6.to_bits()
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nets = self.nets();
        if nets.is_empty() {
            return f.write_str("none");
        }
        let words = nets.iter().map(|net| match net {
            Net::Any => "any".to_owned(),
            Net::Loopback => "loopback".to_owned(),
            Net::Private => "private".to_owned(),
            Net::Block { base, prefix } => format!("{}/{prefix}", Ipv6Addr::from_bits(*base)),
        });
        f.write_str(&words.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(entries: &[&str], address: &str, expected: bool) {
        let allowed = Allowed::parse(entries.iter().copied()).unwrap();
        assert_eq!(allowed.allows(address.parse().unwrap()), expected, "{entries:?} and {address}");
    }

    #[test]
    fn only_what_is_named_is_called() {
        check(&["loopback"], "127.0.0.1", true);
        check(&["loopback"], "127.8.9.1", true);
        check(&["loopback"], "::1", true);
        check(&["loopback"], "::ffff:127.0.0.1", true);
        check(&["loopback"], "10.0.0.1", false);
        check(&["private"], "10.0.0.1", true);
        check(&["private"], "192.168.4.4", true);
        check(&["private"], "fd00::7", true);
        check(&["private"], "169.254.169.254", false);
        check(&["private"], "::ffff:169.254.169.254", false);
        check(&["private"], "127.0.0.1", false);
        check(&["private"], "8.8.8.8", false);
        check(&["any"], "8.8.8.8", true);
        check(&["10.1.0.0/16"], "10.1.255.3", true);
        check(&["10.1.0.0/16"], "10.2.0.3", false);
        check(&["10.1.0.0/16", "192.0.2.7"], "192.0.2.7", true);
        check(&["192.0.2.7"], "192.0.2.8", false);
        check(&["0.0.0.0/0"], "203.0.113.9", true);
        check(&["0.0.0.0/0"], "2001:db8::1", false);
        check(&["::/0"], "2001:db8::1", true);
        check(&["2001:db8::/32"], "2001:db8:1::1", true);
        check(&[], "127.0.0.1", false);
    }

    #[test]
    fn the_default_ends_with_the_first_token_and_what_is_listed_does_not() {
        let addresses = ["127.0.0.1", "10.0.0.1", "8.8.8.8"].map(|text| text.parse::<IpAddr>().unwrap());
        let check = |allowed: &Allowed, expected: [bool; 3]| {
            assert_eq!(addresses.map(|address| allowed.allows(address)), expected, "{allowed}");
        };
        for (is_loopback, expected) in [(true, [true, false, false]), (false, [true, true, false])] {
            let allowed = Allowed::default_for(is_loopback);
            allowed.while_open(|| true);
            check(&allowed, expected);
            let allowed = Allowed::default_for(is_loopback);
            allowed.while_open(|| false);
            check(&allowed, [false; 3]);
            assert_eq!(allowed.to_string(), "none");
        }
        let listed = Allowed::parse(["loopback"]).unwrap();
        listed.while_open(|| false);
        check(&listed, [true, false, false]);
        check(&Allowed::any(), [true; 3]);
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for bad in ["", "lan", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/x"] {
            assert!(Allowed::parse([bad]).is_err(), "{bad}");
        }
    }
}
