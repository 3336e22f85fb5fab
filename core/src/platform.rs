//! Where each platform reports the client's address.

#[cfg(feature = "proxies")]
mod proxies;

use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

use crate::client_ip::{Ipv6Prefix, Nat64Prefix};
use crate::client_ip::{parse_address, specified};
use crate::quoted_text::Quoted;
use crate::{ClientIp, Error, MissingIp};

#[cfg(feature = "proxies")]
use self::proxies::TrustedProxies;

/// The address that Cloudflare reports for a request from a Worker of another zone. All Workers share it.
const CLOUDFLARE_WORKERS: Ipv6Addr = Ipv6Addr::new(0x2a06, 0x98c0, 0x3600, 0, 0, 0, 0, 0x103);

/// The platform that a request came through, which determines where the client's address is.
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
    /// Vercel: `x-vercel-forwarded-for`, or `x-real-ip` if that is absent.
    Vercel,
    /// Netlify: `x-nf-client-connection-ip`.
    Netlify,
    /// Fastly Compute: the address from its API, never a header.
    Fastly,
    /// Spin: the last `spin-client-addr`. On Akamai Functions, `true-client-ip`: see
    /// [`ClientIpSource::trust_true_client_ip`].
    Spin,
    /// No platform in front: the peer of the connection, never a header. For a service behind its own proxies, see
    /// `ClientIpSource::behind_proxies`.
    Direct,
}

impl Platform {
    /// Every platform.
    pub const ALL: [Self; 6] = [Self::Cloudflare, Self::Vercel, Self::Netlify, Self::Fastly, Self::Spin, Self::Direct];

    /// A stable name in snake case, used in configuration and fixtures.
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
                "platform: {} is not known; write cloudflare, vercel, netlify, fastly, spin or direct",
                Quoted(name)
            ))
        })
    }
}

/// Finds the client's address where the platform reports it. It never reads `Forwarded` or another platform's header, and
/// reads `X-Forwarded-For` only from trusted proxies: any client can send these fields.
///
/// ```
/// use tidegate_core::{ClientIpSource, Platform};
/// # fn main() -> Result<(), Box<dyn core::error::Error>> {
/// let source = ClientIpSource::new(Platform::Cloudflare).ipv6_prefix(56)?;
/// let headers = [("X-Forwarded-For", "192.0.2.66"), ("CF-Connecting-IP", "2001:db8:1:2ff::5")];
/// assert_eq!(source.find(headers, None)?.to_string(), "2001:db8:1:200::/56");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientIpSource {
    platform: Platform,
    ipv6_prefix: Ipv6Prefix,
    nat64_prefixes: Vec<Nat64Prefix>,
    trust_true_client_ip: bool,
    #[cfg(feature = "proxies")]
    proxies: Option<TrustedProxies>,
}

impl ClientIpSource {
    /// The source of client addresses on `platform`.
    #[must_use]
    pub fn new(platform: Platform) -> Self {
        Self {
            platform,
            ipv6_prefix: Ipv6Prefix::default(),
            nat64_prefixes: Vec::new(),
            trust_true_client_ip: false,
            #[cfg(feature = "proxies")]
            proxies: None,
        }
    }

    /// The source of client addresses for a service behind its own proxies, such as nginx, Envoy or a load balancer.
    /// `networks` are the addresses of the proxies, as text: `10.0.0.0/8`, `2001:db8::/48`, `192.0.2.7`.
    ///
    /// The client is the peer of the connection, unless that is a trusted proxy. Then it is the last entry of
    /// `X-Forwarded-For` that is not a trusted proxy. Entries before it are ignored, because the client can send them. If all
    /// entries are trusted, the client is the first one: a host of the trusted networks. Without the field there is no
    /// address.
    ///
    /// Every trusted proxy must append the address of its own peer to the field, or replace the field with it. An entry may
    /// have a port. At most 32 trusted proxies may follow the client's entry in one value of the field.
    ///
    /// ```
    /// use tidegate_core::{ClientIpSource, MissingIp};
    /// # fn main() -> Result<(), Box<dyn core::error::Error>> {
    /// let source = ClientIpSource::behind_proxies(["10.0.0.0/8"])?;
    /// let headers = [("x-forwarded-for", "203.0.113.66, 192.0.2.1, 10.1.2.3")];
    /// assert_eq!(source.find(headers, Some([10, 0, 0, 1].into()))?.to_string(), "192.0.2.1");
    /// // The field of another peer is not read.
    /// assert_eq!(source.find(headers, Some([198, 51, 100, 7].into()))?.to_string(), "198.51.100.7");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if a text is not a network, or is one of all addresses (`0.0.0.0/0`).
    #[cfg(feature = "proxies")]
    pub fn behind_proxies<T: AsRef<str>>(networks: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        Ok(Self { proxies: Some(TrustedProxies::new(networks)?), ..Self::new(Platform::Direct) })
    }

    /// Sets the prefixes of NAT64 translators whose clients count by their IPv4 address. The well-known prefix
    /// `64:ff9b::/96` is always known, for public addresses. With a prefix set here, private addresses are accepted too.
    ///
    /// Set only prefixes that your own translators route: the owner of any other prefix can choose the IPv4 address. Each is a text:
    /// an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits, which the client's IPv4 address follows (RFC 6052).
    ///
    /// ```
    /// use tidegate_core::{ClientIpSource, Platform};
    /// # fn main() -> Result<(), Box<dyn core::error::Error>> {
    /// let source = ClientIpSource::new(Platform::Cloudflare).nat64_prefixes(["2001:db8:64::/48"])?;
    /// let headers = [("cf-connecting-ip", "2001:db8:64:c000:2:2100::")];
    /// assert_eq!(source.find(headers, None)?.to_string(), "192.0.2.33");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a text that is not a prefix, for another length, for one with a bit after it, and for one
    /// of 96 bits with one in the reserved octet (64 to 71).
    pub fn nat64_prefixes<T: AsRef<str>>(mut self, prefixes: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        let parsed = prefixes.into_iter().map(|prefix| Nat64Prefix::parse(prefix.as_ref()));
        self.nat64_prefixes = parsed.collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Sets how many leading bits of an IPv6 address identify a client: 48 to 128. The default is 64.
    ///
    /// A subscriber usually gets a /64 and can send from any address in it. Some get a /56 or a /48. With 128 bits, each address
    /// is a client of its own, and a subscriber evades its limit by using another address.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) below 48 or above 128.
    pub fn ipv6_prefix(mut self, bits: u8) -> Result<Self, Error> {
        self.ipv6_prefix = Ipv6Prefix::new(bits)?;
        Ok(self)
    }

    /// Sets whether to read the address on [`Platform::Spin`] from `true-client-ip` alone. Off by default.
    ///
    /// Akamai Functions reports the client's address there; `spin-client-addr` may be one of its own machines. Elsewhere a
    /// client can send the field, so enable this only if every request comes through Akamai. A request without the field
    /// then has no address. Other platforms ignore the setting.
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

    /// The header fields that [`ClientIpSource::find`] reads, in lower case, for runtimes where copying every field of a
    /// request is expensive.
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
            Platform::Fastly => &[],
            #[cfg(feature = "proxies")]
            Platform::Direct if self.proxies.is_some() => &[proxies::FIELD],
            Platform::Direct => &[],
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

    /// The client of a request with the given header fields and `peer`, the address from the platform's API or of the
    /// connection.
    ///
    /// Pass the fields in the order received, a repeated name once for each value. The case of names does not matter. A
    /// reference to an `http::HeaderMap` has the right type. A value that joins repeated fields with commas is accepted too.
    ///
    /// The number of values that are accepted depends on the platform:
    /// - **Cloudflare, Vercel, Netlify, and `true-client-ip`**: exactly one. The platform overwrites what a client sent. A
    ///   second value, or a list, means that another party wrote the field too, so no value is trusted.
    /// - **Vercel** falls back to `x-real-ip` if `x-vercel-forwarded-for` is absent, not if it is unreadable.
    /// - **Spin**: the last, because Spin appends its own after those that a client sent.
    /// - **Fastly, Direct**: none; only `peer` is read. The other platforms ignore `peer`.
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
    /// [`MissingIp`] states why there is no address. [`Identity`](crate::Identity) takes the result's `ok()`.
    pub fn find<N, V>(
        &self,
        headers: impl IntoIterator<Item = (N, V)>,
        peer: Option<IpAddr>,
    ) -> Result<ClientIp, MissingIp>
    where
        N: AsRef<str>,
        V: AsRef<[u8]>,
    {
        let fields = self.fields();
        self.address(peer, |read| {
            for (name, value) in headers {
                if let Some(place) = fields.iter().position(|wanted| name.as_ref().eq_ignore_ascii_case(wanted)) {
                    read(place, value.as_ref());
                }
            }
        })
        .and_then(|address| self.client_at(address))
    }

    /// The address of a request's sender. `each` passes on each value of a field with the field's place in [`ClientIpSource::fields`].
    #[inline]
    pub(crate) fn address(
        &self,
        peer: Option<IpAddr>,
        each: impl FnOnce(&mut dyn FnMut(usize, &[u8])),
    ) -> Result<IpAddr, MissingIp> {
        match self.fields() {
            [] => peer.ok_or(MissingIp::Absent).and_then(specified),
            #[cfg(feature = "proxies")]
            _ if self.proxies.is_some() => {
                self.proxies.as_ref().map_or(Err(MissingIp::Absent), |proxies| proxies.find(peer, each))
            }
            _ => self.read(each),
        }
    }

    /// The client that a sender's address belongs to, if it is that of one.
    #[inline]
    pub(crate) fn client_at(&self, address: IpAddr) -> Result<ClientIp, MissingIp> {
        if self.platform == Platform::Cloudflare && address == CLOUDFLARE_WORKERS {
            return Err(MissingIp::Shared);
        }
        ClientIp::received(address, self.ipv6_prefix, &self.nat64_prefixes)
    }

    /// The address in the first of the fields that has one. There are at most two.
    #[inline]
    fn read(&self, each: impl FnOnce(&mut dyn FnMut(usize, &[u8]))) -> Result<IpAddr, MissingIp> {
        let take = if self.platform == Platform::Spin && !self.trust_true_client_ip { Take::Last } else { Take::Only };
        let (mut first, mut second) = (None, None);
        each(&mut |place, value| {
            let found = if place == 0 { &mut first } else { &mut second };
            *found = Some(match (take, &found) {
                (Take::Last, _) => parse_address(value.rsplit(|&byte| byte == b',').next().unwrap_or_default()),
                (Take::Only, None) => parse_address(value),
                (Take::Only, Some(_)) => Err(MissingIp::Ambiguous),
            });
        });
        match first {
            None | Some(Err(MissingIp::Absent)) => second.unwrap_or(Err(MissingIp::Absent)),
            Some(found) => found,
        }
    }

    /// The client of requests from this address.
    #[cfg(feature = "gate")]
    pub(crate) fn of_address(&self, address: IpAddr) -> Result<ClientIp, MissingIp> {
        self.client_at(specified(address)?)
    }
}

/// Which of a field's values to read.
#[derive(Clone, Copy)]
enum Take {
    /// The only one. Several are ambiguous.
    Only,
    /// The last. A client may have sent those before it.
    Last,
}
