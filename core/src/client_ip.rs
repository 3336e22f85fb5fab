//! A client's address, folded to what one client holds.

use alloc::format;
use core::error::Error as StdError;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str;

use crate::Error;

/// How many leading bits of an IPv6 address tell one client from another: 48 to 128, 64 by default.
///
/// A subscriber usually holds a whole /64, and can send from any address in it; some are given a /56 or a /48. At 128
/// each address counts on its own, which a client escapes by moving to the next.
///
/// ```
/// use tidegate_core::Ipv6Prefix;
/// assert_eq!(Ipv6Prefix::default().bits(), 64);
/// assert_eq!(Ipv6Prefix::new(32).unwrap_err().to_string(), "ipv6_prefix: 32 is out of range; write 48 to 128");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ipv6Prefix(u8);

impl Ipv6Prefix {
    /// A prefix of `bits` bits.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) below 48 or above 128.
    pub fn new(bits: u8) -> Result<Self, Error> {
        if !(48..=128).contains(&bits) {
            return Err(Error::invalid(format!("ipv6_prefix: {bits} is out of range; write 48 to 128")));
        }
        Ok(Self(bits))
    }

    /// The number of bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
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
/// An IPv4 address mapped to IPv6 (`::ffff:0:0/96`, however it is written) is its IPv4 address. Shown as
/// `192.0.2.1`, `2001:db8:1:2::/64`, or at 128 bits `2001:db8::1`.
///
/// ```
/// use core::net::Ipv6Addr;
/// use tidegate_core::{ClientIp, Ipv6Prefix};
/// let prefix = Ipv6Prefix::default();
/// let ip = ClientIp::new("2001:db8:1:2:aaaa::1".parse::<Ipv6Addr>().unwrap(), prefix);
/// assert_eq!(ip.to_string(), "2001:db8:1:2::/64");
/// let mapped = ClientIp::new("::ffff:c000:201".parse::<Ipv6Addr>().unwrap(), prefix);
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
    /// The client at `address`, which is folded to `prefix` if it is an IPv6 address.
    #[must_use]
    pub fn new(address: impl Into<IpAddr>, prefix: Ipv6Prefix) -> Self {
        Self(match address.into().to_canonical() {
            IpAddr::V4(address) => Folded::V4(address),
            IpAddr::V6(address) => Folded::V6(prefix.fold(address), prefix),
        })
    }

    /// The client at the one address that `value` holds: for a header that only a proxy of one's own can write.
    ///
    /// Takes `192.0.2.1`, `192.0.2.1:443`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:443`, an IPv6 zone
    /// (`fe80::1%eth0`, dropped), and white space around it. An IPv6 address with a port needs the brackets.
    ///
    /// ```
    /// use tidegate_core::{ClientIp, Ipv6Prefix, MissingIp};
    /// let parse = |value: &str| ClientIp::parse(value, Ipv6Prefix::default());
    /// assert_eq!(parse(" 192.0.2.1:443 "), parse("::ffff:192.0.2.1"));
    /// assert_eq!(parse("192.0.2.010"), Err(MissingIp::Unreadable));
    /// assert_eq!(parse("192.0.2.1, 192.0.2.2"), Err(MissingIp::Ambiguous));
    /// ```
    ///
    /// # Errors
    /// [`MissingIp`] says why there is no address: nothing, or nothing but white space, several separated by commas, the
    /// unspecified address, or what is no address at all, such as octets with leading zeros.
    pub fn parse(value: impl AsRef<[u8]>, prefix: Ipv6Prefix) -> Result<Self, MissingIp> {
        parse_address(value.as_ref()).map(|address| Self::new(address, prefix))
    }

    /// The address; of an IPv6 prefix the first.
    ///
    /// ```
    /// use tidegate_core::{ClientIp, Ipv6Prefix};
    /// let ip = ClientIp::parse("2001:db8::1", Ipv6Prefix::default()).unwrap();
    /// assert_eq!(ip.address().to_string(), "2001:db8::");
    /// ```
    #[must_use]
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

/// Why a request has no client address. Never a reason to count it against an address that was made up.
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
    /// The platform told none.
    Absent,
    /// What it told is no address, or the unspecified one (`0.0.0.0`, `::`).
    Unreadable,
    /// There are several where the platform writes one: someone else wrote there too.
    Ambiguous,
    /// The address is one that a whole platform shares, not a client's.
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
            Self::Absent => "the platform told no client address",
            Self::Unreadable => "what the platform told is no client address",
            Self::Ambiguous => "several client addresses where the platform writes one",
            Self::Shared => "the client address is one that a whole platform shares",
        })
    }
}

impl StdError for MissingIp {}

/// The one address in a header's value.
pub(crate) fn parse_address(value: &[u8]) -> Result<IpAddr, MissingIp> {
    let value = value.trim_ascii();
    if value.is_empty() {
        return Err(MissingIp::Absent);
    }
    if value.contains(&b',') {
        return Err(MissingIp::Ambiguous);
    }
    let address = str::from_utf8(value).ok().and_then(|text| v4(text).or_else(|| v6(text)));
    address.ok_or(MissingIp::Unreadable).and_then(specified)
}

/// The address with a mapped IPv4 as itself, unless it stands for no address.
pub(crate) fn specified(address: IpAddr) -> Result<IpAddr, MissingIp> {
    let address = address.to_canonical();
    if address.is_unspecified() { Err(MissingIp::Unreadable) } else { Ok(address) }
}

fn v4(text: &str) -> Option<IpAddr> {
    let address = match text.split_once(':') {
        Some((address, port)) if is_port(port) => address,
        Some(_) => return None,
        None => text,
    };
    // The standard parser refuses leading zeros, which some read as octal.
    address.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
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
    // The number parser alone would take a sign.
    text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}
