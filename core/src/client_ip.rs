//! A client's address, reduced to what identifies one client.

mod embedded;

pub(crate) use embedded::Nat64Prefix;

use alloc::format;
use core::error::Error as StdError;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str;

use self::embedded::{embedded, is_host, is_public};
use crate::Error;

/// How many leading bits of an IPv6 address identify a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ipv6Prefix(u8);

impl Ipv6Prefix {
    pub(crate) fn new(bits: u8) -> Result<Self, Error> {
        if !(48..=128).contains(&bits) {
            return Err(Error::invalid(format!("ipv6_prefix: {bits} is out of range; write 48 to 128")));
        }
        Ok(Self(bits))
    }

    fn fold(self, address: Ipv6Addr) -> Ipv6Addr {
        Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - self.0)))
    }
}

impl Default for Ipv6Prefix {
    fn default() -> Self {
        Self(64)
    }
}

/// A client's address: an IPv4 address, or the prefix of an IPv6 address.
///
/// These IPv6 addresses embed the IPv4 address of the client, and count as that:
///
/// | addresses | of |
/// |-|-|
/// | `::ffff:0:0/96` | IPv4-mapped (RFC 4291) |
/// | `64:ff9b::/96` | NAT64 with the well-known prefix (RFC 6052) |
/// | `2002::/16` | 6to4 (RFC 3056) |
/// | `2001::/32` | Teredo (RFC 4380) |
///
/// [`ClientIpSource::nat64_prefixes`](crate::ClientIpSource::nat64_prefixes) adds the prefixes of an operator's own
/// translators, including those in `64:ff9b:1::/48` (RFC 8215).
///
/// The text form is `192.0.2.1`, `2001:db8:1:2::/64`, or with 128 bits `2001:db8::1`.
///
/// ```
/// use core::net::Ipv6Addr;
/// use tidegate_core::ClientIp;
/// let ip = ClientIp::new("2001:db8:1:2:aaaa::1".parse::<Ipv6Addr>().unwrap());
/// assert_eq!(ip.to_string(), "2001:db8:1:2::/64");
/// let mapped = ClientIp::new("::ffff:c000:201".parse::<Ipv6Addr>().unwrap());
/// assert_eq!(mapped.to_string(), "192.0.2.1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientIp(Folded);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Folded {
    V4(Ipv4Addr),
    V6(Ipv6Addr, Ipv6Prefix),
}

impl ClientIp {
    /// The client at `address`. An IPv6 address is reduced to its /64, unless it embeds a public IPv4 address. For another length,
    /// see [`ClientIpSource::ipv6_prefix`](crate::ClientIpSource::ipv6_prefix).
    #[must_use]
    pub fn new(address: impl Into<IpAddr>) -> Self {
        Self::with_prefix(address.into(), Ipv6Prefix::default())
    }

    fn with_prefix(address: IpAddr, prefix: Ipv6Prefix) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => Folded::V4(address),
            IpAddr::V6(address) => match embedded(address).filter(|&embedded| is_public(embedded)) {
                Some(embedded) => Folded::V4(embedded),
                None => Folded::V6(prefix.fold(address), prefix),
            },
        })
    }

    /// The client of the network with so many leading bits. `None` if no client is identified by as many.
    #[cfg(feature = "gate")]
    pub(crate) fn of_network(address: IpAddr, bits: u8) -> Option<Self> {
        let (address, prefix) = (address.to_canonical(), Ipv6Prefix::new(bits).ok()?);
        Self::received(address, prefix, &[]).ok().filter(|_| !address.is_unspecified())
    }

    /// The client at an address that was received, with an operator's NAT64 prefixes.
    ///
    /// Private addresses are embedded only behind an operator's own translator. Elsewhere they are forged, and
    /// could otherwise count against a client of the internal network.
    #[inline]
    pub(crate) fn received(address: IpAddr, prefix: Ipv6Prefix, nat64: &[Nat64Prefix]) -> Result<Self, MissingIp> {
        match address {
            IpAddr::V4(address) => Ok(Self(Folded::V4(address))),
            IpAddr::V6(address) => Self::received_v6(address, prefix, nat64),
        }
    }

    #[inline(never)]
    fn received_v6(v6: Ipv6Addr, prefix: Ipv6Prefix, nat64: &[Nat64Prefix]) -> Result<Self, MissingIp> {
        if let Some(embedded) = nat64.iter().find_map(|nat64| nat64.extract(v6)) {
            return if is_host(embedded) { Ok(Self(Folded::V4(embedded))) } else { Err(MissingIp::Unreadable) };
        }
        if embedded(v6).is_some_and(|embedded| !is_public(embedded)) {
            return Err(MissingIp::Unreadable);
        }
        Ok(Self::with_prefix(v6.into(), prefix))
    }

    /// The client at the single address in `value`, a header value that only a trusted proxy can write.
    ///
    /// Accepts `192.0.2.1`, `192.0.2.1:443`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:443`, an IPv6 zone
    /// (`fe80::1%eth0`, which is dropped), and surrounding white space. An IPv6 address with a port needs the brackets.
    ///
    /// ```
    /// use tidegate_core::{ClientIp, MissingIp};
    /// let parse = |value: &str| ClientIp::parse(value);
    /// assert_eq!(parse(" 192.0.2.1:443 "), parse("::ffff:192.0.2.1"));
    /// assert_eq!(parse("192.0.2.010"), Err(MissingIp::Unreadable));
    /// assert_eq!(parse("192.0.2.1, 192.0.2.2"), Err(MissingIp::Ambiguous));
    /// ```
    ///
    /// # Errors
    /// [`MissingIp`] states why there is no address: the value is empty, has several addresses separated by commas, is the
    /// unspecified address, embeds an IPv4 address that is not public, or is not an address, such as one with leading zeros.
    pub fn parse(value: impl AsRef<[u8]>) -> Result<Self, MissingIp> {
        Self::received(parse_address(value.as_ref())?, Ipv6Prefix::default(), &[])
    }

    /// The address, or the first address of an IPv6 prefix.
    ///
    /// ```
    /// use tidegate_core::ClientIp;
    /// let ip = ClientIp::parse("2001:db8::1").unwrap();
    /// assert_eq!(ip.address().to_string(), "2001:db8::");
    /// ```
    #[must_use]
    #[inline]
    pub const fn address(&self) -> IpAddr {
        match self.0 {
            Folded::V4(address) => IpAddr::V4(address),
            Folded::V6(address, _) => IpAddr::V6(address),
        }
    }
}

impl fmt::Display for ClientIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Folded::V4(address) => write!(f, "{address}"),
            Folded::V6(address, Ipv6Prefix(128)) => write!(f, "{address}"),
            Folded::V6(address, Ipv6Prefix(bits)) => write!(f, "{address}/{bits}"),
        }
    }
}

/// Why a request has no client address. Count such requests against [`Key::missing_ip`](crate::Key::missing_ip).
///
/// ```
/// use tidegate_core::{ClientIpSource, MissingIp, Platform};
/// let forged = [("x-forwarded-for", "192.0.2.1")];
/// let found = ClientIpSource::new(Platform::Cloudflare).find(forged, None);
/// assert_eq!(found, Err(MissingIp::Absent));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingIp {
    /// The platform sent none.
    Absent,
    /// The value is not an address, is the unspecified one (`0.0.0.0`, `::`), or embeds an IPv4 address that is not public.
    Unreadable,
    /// There are several addresses where the platform writes one, so another party wrote there too.
    Ambiguous,
    /// All clients of a platform share this address.
    Shared,
}

impl MissingIp {
    /// A stable name in snake case, for logs, metrics and reports.
    ///
    /// ```
    /// assert_eq!(tidegate_core::MissingIp::Ambiguous.name(), "ambiguous");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Unreadable => "unreadable",
            Self::Ambiguous => "ambiguous",
            Self::Shared => "shared",
        }
    }
}

impl fmt::Display for MissingIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "the platform sent no client address",
            Self::Unreadable => "the platform's value is not a client address",
            Self::Ambiguous => "there are several client addresses where the platform writes one",
            Self::Shared => "all clients of a platform share this client address",
        })
    }
}

impl StdError for MissingIp {}

/// The single address in a header's value.
#[inline]
pub(crate) fn parse_address(value: &[u8]) -> Result<IpAddr, MissingIp> {
    // The usual value first: it has no port, and nothing else to look for.
    match plain_v4(value) {
        Some(address) => specified(address),
        None => parse_other(value.trim_ascii()),
    }
}

/// The same for a value that has more than the digits and points of an IPv4 address.
#[inline(never)]
fn parse_other(value: &[u8]) -> Result<IpAddr, MissingIp> {
    let other = |text| v4_with_port(text).or_else(|| v6(text));
    let found = plain_v4(value).or_else(|| str::from_utf8(value).ok().and_then(other));
    match found {
        Some(address) => specified(address),
        None if value.is_empty() => Err(MissingIp::Absent),
        None if value.contains(&b',') => Err(MissingIp::Ambiguous),
        None => Err(MissingIp::Unreadable),
    }
}

/// The address, with an IPv4-mapped one as IPv4, unless it is unspecified.
#[inline]
pub(crate) fn specified(address: IpAddr) -> Result<IpAddr, MissingIp> {
    let address = address.to_canonical();
    if address.is_unspecified() { Err(MissingIp::Unreadable) } else { Ok(address) }
}

/// An IPv4 address without leading zeros, which some programs read as octal. The standard parser accepts the same texts, and takes twice as
/// long.
// For size, WebAssembly has this function once.
#[cfg_attr(not(target_arch = "wasm32"), inline)]
fn plain_v4(text: &[u8]) -> Option<IpAddr> {
    let (first, rest) = octet(text)?;
    let (second, rest) = octet(rest.strip_prefix(b".")?)?;
    let (third, rest) = octet(rest.strip_prefix(b".")?)?;
    let (fourth, rest) = octet(rest.strip_prefix(b".")?)?;
    rest.is_empty().then(|| IpAddr::from([first, second, third, fourth]))
}

/// The number of one to three digits that a text begins with, and what follows.
#[inline]
fn octet(text: &[u8]) -> Option<(u8, &[u8])> {
    let digit = |byte: &u8| Some(byte.wrapping_sub(b'0')).filter(|digit| *digit < 10);
    let (first, rest) = text.split_first()?;
    let first = digit(first)?;
    let Some((second, after)) = rest.split_first() else { return Some((first, rest)) };
    let Some(second) = digit(second) else { return Some((first, rest)) };
    if first == 0 {
        return None;
    }
    let two = first * 10 + second;
    let Some((third, rest)) = after.split_first() else { return Some((two, after)) };
    match digit(third) {
        Some(third) => Some((two.checked_mul(10)?.checked_add(third)?, rest)),
        None => Some((two, after)),
    }
}

/// An IPv4 address with a port.
fn v4_with_port(text: &str) -> Option<IpAddr> {
    let (address, port) = text.split_once(':')?;
    if is_port(port) { plain_v4(address.as_bytes()) } else { None }
}

fn v6(text: &str) -> Option<IpAddr> {
    let address = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']')?;
            if !after.is_empty() && !after.strip_prefix(':').is_some_and(is_port) {
                return None;
            }
            address
        }
        None => text,
    };
    let address = match address.split_once('%') {
        Some((address, zone)) if is_zone(zone) => address,
        Some(_) => return None,
        None => address,
    };
    address.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

fn is_zone(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"%-._~".contains(&byte))
}

fn is_port(text: &str) -> bool {
    // The number parser alone would accept a sign.
    text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}
