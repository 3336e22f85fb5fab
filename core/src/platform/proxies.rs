//! Trusted proxies and `X-Forwarded-For`.

use alloc::format;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::client_ip::{parse_address, specified};
use crate::network::Network;
use crate::quoted_text::Quoted;
use crate::{Error, MissingIp};

/// The only field that is read.
pub(super) const FIELD: &str = "x-forwarded-for";

/// The most trusted proxies that one value of the field may list after the client.
const HOPS_MAX: usize = 32;

/// The networks of an application's own proxies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TrustedProxies(Vec<Network>);

/// What one value of the field says.
enum Value {
    /// Its last entry that is not a trusted proxy.
    Client(Result<IpAddr, MissingIp>),
    /// Every entry is a trusted proxy. This is the first.
    AllTrusted(IpAddr),
}

impl TrustedProxies {
    pub(super) fn new<T: AsRef<str>>(networks: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        networks.into_iter().map(|network| parse_network(network.as_ref())).collect::<Result<_, _>>().map(Self)
    }

    /// The client of a request from `peer`: `peer` itself, unless it is a trusted proxy. Then it is the last entry that is
    /// not one, because each proxy appends the address of its own peer.
    pub(super) fn find(
        &self,
        peer: Option<IpAddr>,
        each: impl FnOnce(&mut dyn FnMut(usize, &[u8])),
    ) -> Result<IpAddr, MissingIp> {
        let peer = specified(peer.ok_or(MissingIp::Absent)?)?;
        if !self.trust(peer) {
            return Ok(peer);
        }
        let (mut client, mut first) = (None, None);
        each(&mut |_, value| match self.read(value) {
            Value::Client(found) => client = Some(found),
            Value::AllTrusted(address) => first = first.or(Some(address)),
        });
        client.unwrap_or_else(|| first.ok_or(MissingIp::Absent))
    }

    /// Reads a value from its end, and at most as far as the client's own entry.
    fn read(&self, value: &[u8]) -> Value {
        let mut first = Err(MissingIp::Ambiguous);
        for (hops, entry) in value.rsplit(|&byte| byte == b',').enumerate() {
            if hops == HOPS_MAX {
                return Value::Client(Err(MissingIp::Ambiguous));
            }
            first = parse_address(entry);
            match first {
                Ok(address) if self.trust(address) => {}
                // An empty entry is not an address either.
                Err(_) => return Value::Client(Err(MissingIp::Unreadable)),
                Ok(_) => return Value::Client(first),
            }
        }
        first.map_or_else(|missing| Value::Client(Err(missing)), Value::AllTrusted)
    }

    /// Compares the address itself. One that embeds a trusted IPv4 address is not trusted, because its sender chose it.
    fn trust(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

fn parse_network(text: &str) -> Result<Network, Error> {
    let network = Network::parse(text).ok_or_else(|| {
        Error::invalid(format!(
            "trusted_proxies: {} is not a network; write it as 10.0.0.0/8 or 2001:db8::/48",
            Quoted(text)
        ))
    })?;
    if network.has_all() {
        return Err(Error::invalid(format!(
            "trusted_proxies: {text} trusts every client; write the networks of your own proxies"
        )));
    }
    Ok(network)
}
