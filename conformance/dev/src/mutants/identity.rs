//! Limiters that count against the wrong key.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tidegate_guest_protocol::{Answer, Arrival, Identified, Route, Source, serve};

/// How a mutant identifies a request.
type Identify = fn(&Arrival) -> Identified;

/// The name, the title of a bug report, and the wrong identification.
pub(super) const ALL: &[(&str, &str, Identify)] = &[
    ("forged-forwarded-for", "trusts the client's X-Forwarded-For", |arrival| {
        by_header(arrival, "x-forwarded-for", false)
    }),
    ("forged-true-client-ip", "trusts a True-Client-IP that only the client can have sent", |arrival| {
        by_header(arrival, "true-client-ip", false)
    }),
    ("first-spin-client-addr", "uses the first spin-client-addr, which the client sent", |arrival| {
        by_header(arrival, "spin-client-addr", true)
    }),
    ("port-in-key", "the key is ip:port, which differs for each connection", port_in_key),
    ("full-ipv6", "the key is the whole IPv6 address, and a client has 2^64 of them", full_ipv6),
    ("mapped-ipv4-collapses", "all IPv4-mapped addresses share one /64", mapped_collapses),
    ("translated-ipv4-collapses", "all clients behind NAT64, 6to4 or Teredo share one /64", translated_collapses),
    ("missing-is-zero", "a missing address becomes 0.0.0.0", missing_is_zero),
    ("missing-is-fresh", "each request without an address gets a new key, and so a fresh limit", missing_is_fresh),
    ("address-before-subject", "the address is used although a verified subject is known", |arrival| {
        honest(&Arrival { subject: None, ..arrival.clone() })
    }),
    (
        "api-key-in-clear",
        "the key contains the API key in clear, visible to everyone with access to the store",
        api_key_in_clear,
    ),
];

fn honest(arrival: &Arrival) -> Identified {
    let body = serde_json::to_vec(arrival).unwrap_or_default();
    let memory = tidegate_core::MemoryLimiter::with_shards(1);
    let served = futures_util::FutureExt::now_or_never(serve(&memory, Route::Identify, &body));
    match served.map(|reply| serde_json::from_slice(&reply.body)) {
        Some(Ok(Answer::Identity(identified))) => identified,
        _ => Identified { key: String::new(), source: Source::Other },
    }
}

/// Uses the first value of a header if nothing more trusted is present.
fn by_header(arrival: &Arrival, name: &str, spin_only: bool) -> Identified {
    let right = honest(arrival);
    let first = arrival.headers.iter().find(|(sent, _)| sent.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let address = first.and_then(|value| address(value.split(',').next().unwrap_or(value)));
    match (address, right.source) {
        (Some(address), Source::ClientIp | Source::Missing) if !spin_only || arrival.platform == "spin" => {
            Identified { key: format!("ip:{address}"), source: Source::ClientIp }
        }
        _ => right,
    }
}

fn address(value: &str) -> Option<IpAddr> {
    let value = value.trim();
    value.parse().ok().or_else(|| value.parse::<std::net::SocketAddr>().ok().map(|socket| socket.ip()))
}

fn port_in_key(arrival: &Arrival) -> Identified {
    let right = honest(arrival);
    let ip = right.key.strip_prefix("ip:").unwrap_or_default();
    let with_port = arrival.headers.iter().map(|(_, value)| value.trim()).rfind(|value| {
        value.parse::<std::net::SocketAddr>().is_ok_and(|socket| !ip.is_empty() && socket.ip().to_string() == ip)
    });
    match with_port {
        Some(value) => Identified { key: format!("ip:{value}"), ..right },
        None => right,
    }
}

/// All addresses in the request.
fn addresses(arrival: &Arrival) -> impl Iterator<Item = IpAddr> {
    arrival.headers.iter().map(|(_, value)| value).chain(&arrival.peer).filter_map(|value| address(value))
}

fn full_ipv6(arrival: &Arrival) -> Identified {
    let right = honest(arrival);
    match addresses(arrival).find(|address| address.is_ipv6() && right.key.contains('/')) {
        Some(address) => Identified { key: format!("ip:{address}"), ..right },
        None => right,
    }
}

fn mapped_collapses(arrival: &Arrival) -> Identified {
    let right = honest(arrival);
    let mapped = |address: IpAddr| matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    if right.source == Source::ClientIp && addresses(arrival).any(mapped) {
        return Identified { key: format!("ip:{}/64", Ipv6Addr::UNSPECIFIED), ..right };
    }
    right
}

fn translated_collapses(arrival: &Arrival) -> Identified {
    let right = honest(arrival);
    let key = right.key.strip_prefix("ip:").and_then(|key| key.parse::<Ipv4Addr>().ok());
    let translated = addresses(arrival).find_map(|address| match address {
        IpAddr::V6(address) if key.is_some() && address.to_ipv4_mapped().is_none() => Some(address),
        _ => None,
    });
    match translated {
        Some(address) => {
            let network = Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64));
            Identified { key: format!("ip:{network}/64"), ..right }
        }
        None => right,
    }
}

fn missing_is_zero(arrival: &Arrival) -> Identified {
    match honest(arrival) {
        Identified { source: Source::Missing, .. } => Identified { key: "ip:0.0.0.0".into(), source: Source::ClientIp },
        right => right,
    }
}

fn missing_is_fresh(arrival: &Arrival) -> Identified {
    match honest(arrival) {
        Identified { source: Source::Missing, .. } => {
            Identified { key: format!("ip:request-{}", arrival.headers.len()), source: Source::ClientIp }
        }
        right => right,
    }
}

fn api_key_in_clear(arrival: &Arrival) -> Identified {
    match (honest(arrival), &arrival.api_key) {
        (Identified { source: Source::ApiKey, .. }, Some(secret)) => {
            Identified { key: format!("key:{secret}"), source: Source::ApiKey }
        }
        (right, _) => right,
    }
}
