//! Where each platform tells the client's address.

use alloc::format;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

use crate::client_ip::{parse_address, specified};
use crate::{ClientIp, Error, Ipv6Prefix, MissingIp};

/// What Cloudflare shows for a request that a Worker of another zone made: the same for every Worker there is.
const CLOUDFLARE_WORKERS: Ipv6Addr = Ipv6Addr::new(0x2a06, 0x98c0, 0x3600, 0, 0, 0, 0, 0x103);

/// The platform a request came through, which alone knows the client's address.
///
/// ```
/// use tidegate_core::Platform;
/// let platform: Platform = "netlify".parse()?;
/// assert_eq!(platform, Platform::Netlify);
/// # Ok::<(), tidegate_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Platform {
    /// Cloudflare Workers: `cf-connecting-ip`.
    Cloudflare,
    /// Vercel: `x-vercel-forwarded-for`, or where it is absent `x-real-ip`.
    Vercel,
    /// Netlify: `x-nf-client-connection-ip`.
    Netlify,
    /// Fastly Compute: the address its API gives, never a header.
    Fastly,
    /// Spin: the last `spin-client-addr`. On Akamai Functions, `true-client-ip`; see
    /// [`ClientIpSource::trust_true_client_ip`].
    Spin,
    /// No platform in front: the socket's peer, never a header.
    Direct,
}

impl Platform {
    /// Every platform.
    pub const ALL: [Self; 6] = [Self::Cloudflare, Self::Vercel, Self::Netlify, Self::Fastly, Self::Spin, Self::Direct];

    /// A stable name in snake case, as configuration and fixtures write it.
    ///
    /// ```
    /// assert_eq!(tidegate_core::Platform::Cloudflare.name(), "cloudflare");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cloudflare => "cloudflare",
            Self::Vercel => "vercel",
            Self::Netlify => "netlify",
            Self::Fastly => "fastly",
            Self::Spin => "spin",
            Self::Direct => "direct",
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Platform {
    type Err = Error;

    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for any other name.
    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|platform| platform.name() == name).ok_or_else(|| {
            Error::invalid(format!(
                "platform: {name:?} is not known; write cloudflare, vercel, netlify, fastly, spin or direct"
            ))
        })
    }
}

/// Finds the client's address where the platform tells it, and nowhere else: never in `X-Forwarded-For`, `Forwarded`
/// or another platform's header, which any client can send.
///
/// ```
/// use tidegate_core::{ClientIpSource, Ipv6Prefix, Platform};
/// # fn main() -> Result<(), Box<dyn core::error::Error>> {
/// let source = ClientIpSource::new(Platform::Cloudflare).ipv6_prefix(Ipv6Prefix::new(56)?);
/// let headers = [("X-Forwarded-For", "192.0.2.66"), ("CF-Connecting-IP", "2001:db8:1:2ff::5")];
/// assert_eq!(source.find(headers, None)?.to_string(), "2001:db8:1:200::/56");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientIpSource {
    platform: Platform,
    ipv6_prefix: Ipv6Prefix,
    trust_true_client_ip: bool,
}

impl ClientIpSource {
    /// The source of client addresses on `platform`, folding IPv6 to /64.
    #[must_use]
    pub fn new(platform: Platform) -> Self {
        Self { platform, ipv6_prefix: Ipv6Prefix::default(), trust_true_client_ip: false }
    }

    /// The same source, folding IPv6 addresses to `prefix`.
    #[must_use]
    pub const fn ipv6_prefix(mut self, prefix: Ipv6Prefix) -> Self {
        self.ipv6_prefix = prefix;
        self
    }

    /// The same source, taking the address on [`Platform::Spin`] from `true-client-ip` alone (or not). Off by default.
    ///
    /// Akamai Functions tells the client's address there; `spin-client-addr` may be a machine of its own. Anywhere else
    /// a client can send the field, so switch this on only where every request comes through Akamai. A request without
    /// it then has no address. Other platforms ignore the setting.
    ///
    /// ```
    /// use tidegate_core::{ClientIpSource, Platform};
    /// let headers = [("true-client-ip", "192.0.2.66"), ("spin-client-addr", "192.0.2.1:49152")];
    /// let spin = ClientIpSource::new(Platform::Spin);
    /// assert_eq!(spin.find(headers, None)?.to_string(), "192.0.2.1");
    /// assert_eq!(spin.trust_true_client_ip(true).find(headers, None)?.to_string(), "192.0.2.66");
    /// # Ok::<(), tidegate_core::MissingIp>(())
    /// ```
    #[must_use]
    pub const fn trust_true_client_ip(mut self, yes: bool) -> Self {
        self.trust_true_client_ip = yes;
        self
    }

    /// The header fields that [`ClientIpSource::find`] reads, in lower case: all that it needs, where handing over every
    /// field of a request is dear.
    ///
    /// ```
    /// use tidegate_core::{ClientIpSource, Platform};
    /// assert_eq!(ClientIpSource::new(Platform::Vercel).fields(), ["x-vercel-forwarded-for", "x-real-ip"]);
    /// assert!(ClientIpSource::new(Platform::Direct).fields().is_empty());
    /// ```
    #[must_use]
    pub const fn fields(&self) -> &'static [&'static str] {
        match self.platform {
            Platform::Cloudflare => &["cf-connecting-ip"],
            Platform::Vercel => &["x-vercel-forwarded-for", "x-real-ip"],
            Platform::Netlify => &["x-nf-client-connection-ip"],
            Platform::Spin if self.trust_true_client_ip => &["true-client-ip"],
            Platform::Spin => &["spin-client-addr"],
            Platform::Fastly | Platform::Direct => &[],
        }
    }

    /// Whether [`ClientIpSource::find`] reads `peer`, the address of the connection. Without it, such a source finds no
    /// address.
    ///
    /// ```
    /// use tidegate_core::{ClientIpSource, Platform};
    /// assert!(ClientIpSource::new(Platform::Direct).reads_peer());
    /// assert!(!ClientIpSource::new(Platform::Vercel).reads_peer());
    /// ```
    #[must_use]
    pub const fn reads_peer(&self) -> bool {
        matches!(self.platform, Platform::Fastly | Platform::Direct)
    }

    /// The client of a request with these header fields, and with `peer` as the address that the platform's own API
    /// or socket gives.
    ///
    /// Fields come in the order they were received, a repeated name once for each value; the case of names does not
    /// matter. A reference to an `http::HeaderMap` fits as it is. Where a runtime joins repeated fields with commas,
    /// the joined value fits too.
    ///
    /// How many values count, and why:
    /// - **Cloudflare, Vercel, Netlify, and `true-client-ip`**: exactly one. The platform overwrites what a client
    ///   sent, so a second value, or a list, means that something else wrote there too, and neither its first nor its
    ///   last entry can be told from a forged one. No value is taken.
    /// - **Vercel** falls back to `x-real-ip` only where `x-vercel-forwarded-for` is absent, not where it is unreadable.
    /// - **Spin**: the last. Spin appends its own after those that a client sent.
    /// - **Fastly, Direct**: none. Only `peer` is taken, and only there.
    ///
    /// ```
    /// use tidegate_core::{ClientIpSource, MissingIp, Platform};
    /// let forged = [("spin-client-addr", "192.0.2.66:1"), ("spin-client-addr", "192.0.2.1:49152")];
    /// assert_eq!(ClientIpSource::new(Platform::Spin).find(forged, None)?.to_string(), "192.0.2.1");
    ///
    /// let direct = ClientIpSource::new(Platform::Direct);
    /// assert_eq!(direct.find(forged, None), Err(MissingIp::Absent));
    /// assert_eq!(direct.find(forged, Some([192, 0, 2, 7].into()))?.to_string(), "192.0.2.7");
    /// # Ok::<(), MissingIp>(())
    /// ```
    ///
    /// # Errors
    /// [`MissingIp`] says why there is no address. [`Identity`](crate::Identity) takes the result's `ok()`.
    pub fn find<N, V>(
        &self,
        headers: impl IntoIterator<Item = (N, V)>,
        peer: Option<IpAddr>,
    ) -> Result<ClientIp, MissingIp>
    where
        N: AsRef<str>,
        V: AsRef<[u8]>,
    {
        let take = if self.platform == Platform::Spin && !self.trust_true_client_ip { Take::Last } else { Take::Only };
        let address = match self.fields() {
            [] => peer.ok_or(MissingIp::Absent).and_then(specified),
            fields => first_present(read(fields, take, headers)),
        };
        let address = match address {
            Ok(address) if self.platform == Platform::Cloudflare && address == CLOUDFLARE_WORKERS => {
                Err(MissingIp::Shared)
            }
            address => address,
        };
        address.map(|address| ClientIp::new(address, self.ipv6_prefix))
    }
}

/// Which of a field's values counts.
#[derive(Clone, Copy)]
enum Take {
    /// The one there is; several are ambiguous.
    Only,
    /// The last, after all that a client may have put before it.
    Last,
}

/// The address in each of the named fields, of which there are two at most.
fn read<N: AsRef<str>, V: AsRef<[u8]>>(
    names: &[&str],
    take: Take,
    headers: impl IntoIterator<Item = (N, V)>,
) -> [Result<IpAddr, MissingIp>; 2] {
    let mut found = [None; 2];
    for (name, value) in headers {
        let Some(place) = names.iter().position(|wanted| name.as_ref().eq_ignore_ascii_case(wanted)) else { continue };
        let value = value.as_ref();
        found[place] = Some(match (take, found[place]) {
            (Take::Last, _) => parse_address(value.rsplit(|&byte| byte == b',').next().unwrap_or_default()),
            (Take::Only, None) => parse_address(value),
            (Take::Only, Some(_)) => Err(MissingIp::Ambiguous),
        });
    }
    found.map(|address| address.unwrap_or(Err(MissingIp::Absent)))
}

/// What the first field tells, unless it is absent.
fn first_present([first, second]: [Result<IpAddr, MissingIp>; 2]) -> Result<IpAddr, MissingIp> {
    if first == Err(MissingIp::Absent) { second } else { first }
}
