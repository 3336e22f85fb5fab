//! IPv4 addresses that translators and tunnels embed in IPv6 addresses.

use alloc::format;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::Error;
use crate::quoted_text::Quoted;

/// The IPv4 address in an address of NAT64's well-known prefix (RFC 6052), of 6to4 (RFC 3056) or of Teredo (RFC 4380).
///
/// The sender of a 6to4 or Teredo address chooses the other bits, but answers only arrive at the embedded address.
pub(super) fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let address_of = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => address_of(high, low),
        // Teredo inverts all bits of the client's address.
        [0x2001, 0, .., high, low] => address_of(!high, !low),
        _ => None,
    }
}

/// Whether a host can have the address: excludes `0.0.0.0/8`, loopback, multicast and reserved addresses.
pub(super) fn is_host(address: Ipv4Addr) -> bool {
    !matches!(address.octets(), [0 | 127 | 224..=255, ..])
}

/// Whether a host on the Internet can have the address: excludes private, link-local and shared addresses (RFC 1918,
/// 3927, 6598). Addresses for documentation count as public.
pub(super) fn is_public(address: Ipv4Addr) -> bool {
    let is_shared = matches!(address.octets(), [100, 64..=127, ..]);
    is_host(address) && !address.is_private() && !address.is_link_local() && !is_shared
}

/// The prefix of an operator's own NAT64 translator (RFC 6052): an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits, followed
/// by the client's IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Nat64Prefix {
    network: Ipv6Addr,
    bits: u8,
}

/// The reserved octet. Prefixes shorter than 96 bits skip it when they embed the address (RFC 6052, section 2.2).
const RESERVED_OCTET: usize = 8;

impl Nat64Prefix {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let parts = text.split_once('/').and_then(|(network, bits)| Some((network.parse().ok()?, bits.parse().ok()?)));
        let (network, bits): (Ipv6Addr, u8) = parts.ok_or_else(|| {
            Error::invalid(format!(
                "nat64_prefix: {} is not an IPv6 prefix; write it as 2001:db8:64::/96",
                Quoted(text)
            ))
        })?;
        if !matches!(bits, 32 | 40 | 48 | 56 | 64 | 96) {
            return Err(Error::invalid(format!(
                "nat64_prefix: a length of {bits} bits is not possible; write 32, 40, 48, 56, 64 or 96"
            )));
        }
        if network.to_bits() << bits != 0 || network.octets()[RESERVED_OCTET] != 0 {
            return Err(Error::invalid(format!(
                "nat64_prefix: {network}/{bits} has bits beyond the prefix or in bits 64 to 71; write zeros there"
            )));
        }
        Ok(Self { network, bits })
    }

    /// The address embedded in `address`, if that has this prefix.
    pub(super) fn extract(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        if (address.to_bits() ^ self.network.to_bits()) >> (128 - self.bits) != 0 {
            return None;
        }
        let octets = address.octets();
        let mut embedded = (usize::from(self.bits / 8)..16).filter(|&place| place != RESERVED_OCTET);
        let mut next = || embedded.next().map_or(0, |place| octets[place]);
        Some(Ipv4Addr::new(next(), next(), next(), next()))
    }
}
