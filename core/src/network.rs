//! Networks of addresses, such as `192.0.2.0/24`. The crate `ipnet` would take 5.4 KiB more of a Worker that reads a rules file, gzipped.

use core::net::IpAddr;

/// An address, in the order of its bits. IPv4 addresses are mapped to IPv6.
type Address = [u8; 16];

/// All addresses from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network {
    pub(crate) first: Address,
    pub(crate) last: Address,
}

impl Network {
    /// The network with this text, or the address.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let length: u8 = if address.is_ipv4() { 32 } else { 128 };
        let host_bits = length.checked_sub(bits.unwrap_or(length))?;
        let (mut first, mut last) = (octets(address), octets(address));
        for (place, (first, last)) in first.iter_mut().zip(&mut last).rev().enumerate() {
            // Of the bits of the host, those in this octet.
            let bits = usize::from(host_bits).saturating_sub(place * 8).min(8);
            let host = u8::try_from((1_u16 << bits) - 1).unwrap_or(u8::MAX);
            (*first, *last) = (*first & !host, *last | host);
        }
        Some(Self { first, last })
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let address = octets(address);
        self.first <= address && address <= self.last
    }

    /// Whether it has all addresses of IPv4 or of IPv6.
    #[cfg(feature = "proxies")]
    pub(crate) fn has_all(&self) -> bool {
        let ends = [IpAddr::from([0; 4]), IpAddr::from([u8::MAX; 4])];
        ends.into_iter().all(|end| self.contains(end))
    }
}

#[cfg(feature = "gate")]
impl Network {
    /// Whether one of these has an address. They are disjoint and sorted.
    pub(crate) fn has(networks: &[Self], address: IpAddr) -> bool {
        let sought = octets(address);
        let place = networks.partition_point(|network| network.last < sought);
        networks.get(place).is_some_and(|network| network.contains(address))
    }
}

fn octets(address: IpAddr) -> Address {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
