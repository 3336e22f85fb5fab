//! What is counted for each client.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::fmt;
use std::hash::BuildHasher as _;
use std::net::{IpAddr, Ipv6Addr};

use foldhash::fast::{FixedState, RandomState};
use serde::{Serialize, Serializer};
use tidegate_core::{ClientIp, Key};

/// The most clients that are counted one by one.
pub const MAX_CLIENTS: usize = 1_000_000;

/// An address is probably shared from this number of user agents.
const AGENTS_SHARED: u64 = 8;

/// A person sends at least this number of requests with one user agent. A program that invents user agents sends fewer.
const REQUESTS_PER_AGENT: u64 = 3;

/// A client: an IPv4 address, a /64 of IPv6, or all requests without an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(u128);

/// In place of an address. The last 64 bits of a client are zero or those of an IPv4 address, so none has these.
const NONE: u128 = u128::MAX;

impl Client {
    /// The client at an address.
    #[must_use]
    pub fn new(ip: Option<ClientIp>) -> Self {
        Self(match ip.map(|ip| ip.address()) {
            None => NONE,
            Some(IpAddr::V4(address)) => address.to_ipv6_mapped().to_bits(),
            Some(IpAddr::V6(address)) => address.to_bits(),
        })
    }

    fn ip(self) -> Option<ClientIp> {
        (self.0 != NONE).then(|| ClientIp::new(Ipv6Addr::from_bits(self.0)))
    }

    /// Its key.
    pub(super) fn key(self) -> Key {
        self.ip().map_or_else(Key::missing_ip, |ip| Key::ip(&ip))
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip() {
            Some(ip) => ip.fmt(f),
            None => f.write_str("without an address"),
        }
    }
}

impl Serialize for Client {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a client did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) denied: Times,
    agents: Agents,
}

/// How often something happened, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) count: u64,
    pub(super) first_ms: u64,
    pub(super) last_ms: u64,
}

impl Times {
    pub(super) fn add(&mut self, at_ms: u64) {
        self.first_ms = if self.count == 0 { at_ms } else { self.first_ms.min(at_ms) };
        self.last_ms = self.last_ms.max(at_ms);
        self.count += 1;
    }
}

/// A set of user agents in 128 bits: each sets the bit that its hash selects. The number of bits that are not set tells how many
/// there are (Whang, Vander-Zanden, Taylor: A Linear-Time Probabilistic Counting Algorithm for Database Applications, 1990).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Agents(u128);

impl Agents {
    fn add(&mut self, agent: &str) {
        // The same in each run, so that each prints the same.
        self.0 |= 1 << (FixedState::default().hash_one(agent) % 128);
    }

    /// How many there are, about: within a tenth of up to 200, and never more than 621.
    fn estimate(self) -> u64 {
        let left = f64::from(self.0.count_zeros().max(1));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 621")]
        let estimate = (128.0 * (128.0 / left).ln()).round() as u64;
        estimate
    }
}

impl Counts {
    /// Whether many people probably share the address.
    fn is_shared(&self) -> bool {
        let agents = self.agents.estimate();
        agents >= AGENTS_SHARED && self.requests >= agents * REQUESTS_PER_AGENT
    }
}

/// A client in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientReport {
    /// The address, or the /64.
    pub client: Client,
    /// Its requests.
    pub requests: u64,
    /// Those that were denied.
    pub denied: u64,
    /// When the first one was denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_denied_ms: Option<u64>,
    /// When the last one was denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_denied_ms: Option<u64>,
    /// How many user agents it has, by an estimate.
    pub agents: u64,
    /// Whether many people probably share the address, by an estimate.
    pub shared: bool,
    /// What denied it most, and how often.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<Denials>,
}

/// How often a limit denied a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Denials {
    /// The rule.
    pub rule: String,
    /// The limit.
    pub limit: String,
    /// The requests that it denied.
    pub requests: u64,
}

/// The counts of the first [`MAX_CLIENTS`] clients, and how many requests others sent.
#[derive(Debug, Default)]
pub(super) struct Clients {
    counts: HashMap<Client, Counts, RandomState>,
    pub(super) requests_of_others: u64,
}

impl Clients {
    /// Counts a request.
    pub(super) fn add(&mut self, client: Client, agent: Option<&str>, denied_at_ms: Option<u64>) {
        let has_room = self.counts.len() < MAX_CLIENTS;
        let counts = match self.counts.entry(client) {
            Place::Occupied(place) => place.into_mut(),
            Place::Vacant(place) if has_room => place.insert(Counts::default()),
            Place::Vacant(_) => {
                self.requests_of_others += 1;
                return;
            }
        };
        counts.requests += 1;
        if let Some(agent) = agent {
            counts.agents.add(agent);
        }
        if let Some(at_ms) = denied_at_ms {
            counts.denied.add(at_ms);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    pub(super) fn denied(&self) -> usize {
        self.counts.values().filter(|counts| counts.denied.count > 0).count()
    }

    /// The clients with the largest value of `rank`, the largest first. Those with 0 are left out.
    pub(super) fn top(&self, count: usize, rank: impl Fn(&Counts) -> u64) -> Vec<ClientReport> {
        let mut found: Vec<_> = self.counts.iter().map(|(client, counts)| (rank(counts), *client, counts)).collect();
        found.retain(|(rank, ..)| *rank > 0);
        // Equal ones are sorted by the address, so that each run prints the same.
        found.sort_unstable_by_key(|(rank, client, _)| (std::cmp::Reverse(*rank), *client));
        found.truncate(count);
        found.into_iter().map(|(_, client, counts)| reported(client, counts)).collect()
    }

    /// The addresses that many people probably share, those with the most user agents first.
    pub(super) fn shared(&self, count: usize) -> (usize, Vec<ClientReport>) {
        let all = self.counts.values().filter(|counts| counts.is_shared()).count();
        (all, self.top(count, |counts| if counts.is_shared() { counts.agents.estimate() } else { 0 }))
    }
}

fn reported(client: Client, counts: &Counts) -> ClientReport {
    let was_denied = counts.denied.count > 0;
    ClientReport {
        client,
        requests: counts.requests,
        denied: counts.denied.count,
        first_denied_ms: was_denied.then_some(counts.denied.first_ms),
        last_denied_ms: was_denied.then_some(counts.denied.last_ms),
        agents: counts.agents.estimate(),
        shared: counts.is_shared(),
        by: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: u32) -> Client {
        Client::new(Some(ClientIp::new(IpAddr::V4(n.into()))))
    }

    #[test]
    fn the_number_of_user_agents_is_estimated_within_a_fifth() {
        for count in [0_u64, 1, 2, 10, 50, 100, 200] {
            let mut agents = Agents::default();
            for n in 0..count {
                agents.add(&format!("Mozilla/5.0 (build {n})"));
                agents.add(&format!("Mozilla/5.0 (build {n})"));
            }
            let found = agents.estimate();
            assert!(found.abs_diff(count) * 5 <= count, "{count}: {found}");
        }
        assert_eq!(Agents(u128::MAX).estimate(), 621);
    }

    #[test]
    fn an_address_is_shared_if_many_user_agents_send_several_requests_each() {
        let mut clients = Clients::default();
        for n in 0..300 {
            // An office, a program that invents user agents, and one person.
            clients.add(client(1), Some(&format!("agent {}", n % 30)), None);
            clients.add(client(2), Some(&format!("agent {n}")), None);
            clients.add(client(3), Some("agent"), Some(n));
        }
        let (count, shared) = clients.shared(10);
        assert_eq!((count, shared.len(), shared[0].client), (1, 1, client(1)));
        assert!(shared[0].agents.abs_diff(30) <= 6, "{}", shared[0].agents);
        let top = clients.top(1, |counts| counts.denied.count);
        assert_eq!((top[0].client, top[0].denied, top[0].last_denied_ms), (client(3), 300, Some(299)));
    }

    #[test]
    fn further_clients_are_counted_together() {
        let mut clients = Clients::default();
        let most = u32::try_from(MAX_CLIENTS).unwrap_or_default();
        for n in 0..most + 5 {
            clients.add(client(n + 1), None, None);
        }
        clients.add(client(1), None, None);
        assert_eq!((clients.len(), clients.requests_of_others), (MAX_CLIENTS, 5));
        assert_eq!(clients.top(1, |counts| counts.requests)[0].client, client(1));
    }

    #[test]
    fn clients_are_shown_as_their_keys_are() {
        let of = |text: &str| Client::new(ClientIp::parse(text).ok());
        assert_eq!(of("192.0.2.1").to_string(), "192.0.2.1");
        assert_eq!(of("2001:db8:1:2:3::4").to_string(), "2001:db8:1:2::/64");
        assert_eq!(of("::1").to_string(), "::/64");
        assert_eq!(of("-").to_string(), "without an address");
        assert_eq!((of("192.0.2.1").key().as_str(), of("-").key()), ("ip:192.0.2.1", Key::missing_ip()));
    }
}
