//! The slots of an isolate, in a set-associative table. A request searches one small set, never all keys.

use std::cmp::Reverse;

use tidegate_core::UnixMillis;

use crate::kv::draws::Draws;
use crate::kv::slot::Slot;

/// The maximum number of slots in a set. Larger sets would fill more evenly, and take longer to search.
const WAYS: usize = 32;

/// A bounded map from keys to slots.
///
/// A hash of the key selects a set. A full set gives up a slot for a new key; see [`Table::room`].
pub(crate) struct Table {
    sets: Vec<Vec<Held>>,
    ways: usize,
    seed: u64,
}

/// A slot with its key.
pub(crate) struct Held {
    hash: u64,
    key: Box<str>,
    pub(crate) origin: Origin,
    pub(crate) slot: Box<Slot>,
}

/// Hashes of the networks that a key's client belongs to.
///
/// An IPv6 client can have more /64 prefixes than an isolate has slots, but they are all in one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The first three groups of the address: a /48 in IPv6, a /24 in IPv4.
    pub(crate) site: u64,
    /// The first two groups of the address: a /32 in IPv6, a /16 in IPv4.
    pub(crate) network: u64,
}

/// A slot that a full set gives up.
pub(crate) struct Victim {
    way: usize,
    /// The part of its origin that keeps its count.
    pub(crate) remembered_as: u64,
}

impl Table {
    /// Creates a table of at most `keys_max` slots.
    pub(crate) fn new(keys_max: usize, seed: u64) -> Self {
        let ways = keys_max.min(WAYS);
        let sets = (0..keys_max / ways).map(|_| Vec::new()).collect();
        Self { sets, ways, seed }
    }

    pub(crate) fn len(&self) -> usize {
        self.sets.iter().map(Vec::len).sum()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Slot> {
        let hash = self.hash(key);
        let held = self.set(hash).iter().find(|held| held.is(hash, key))?;
        Some(&held.slot)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Slot> {
        let hash = self.hash(key);
        let held = self.set_mut(hash).iter_mut().find(|held| held.is(hash, key))?;
        Some(&mut held.slot)
    }

    /// Makes room for a new key: drops the idle slots of its set, and chooses the slot to give up if the set is still full.
    ///
    /// The slot is one of the network with the most slots in the set, and there of the site with the most, so a client that
    /// rotates its addresses displaces itself. Of these slots it is the one that has used least.
    pub(crate) fn room(&mut self, key: &str, now: UnixMillis) -> Option<Victim> {
        let (hash, ways) = (self.hash(key), self.ways);
        let set = self.set_mut(hash);
        set.retain(|held| !held.slot.is_idle(now));
        if set.len() < ways {
            return None;
        }
        let counts = |held: &Held| {
            let of_site = set.iter().filter(|other| other.origin.site == held.origin.site).count();
            let of_network = set.iter().filter(|other| other.origin.network == held.origin.network).count();
            (Reverse(of_network), Reverse(of_site))
        };
        let ranks = set.iter().enumerate().map(|(way, held)| ((counts(held), held.slot.account.used(now)), way));
        let (((Reverse(of_network), Reverse(of_site)), _), way) = ranks.min()?;
        let Origin { site, network } = set[way].origin;
        // A site that fills the set keeps the count itself. If a network rotates its sites, the network keeps it.
        let remembered_as = if of_site > 1 && 2 * of_site > of_network { site } else { network };
        Some(Victim { way, remembered_as })
    }

    /// The slot that [`Table::room`] has chosen for `key`.
    pub(crate) fn chosen(&self, key: &str, victim: &Victim) -> &Slot {
        &self.set(self.hash(key))[victim.way].slot
    }

    /// Adds a key, in place of `victim` if its set is full.
    pub(crate) fn insert(&mut self, key: &str, origin: Origin, slot: Slot, victim: Option<Victim>) {
        let hash = self.hash(key);
        let set = self.set_mut(hash);
        if let Some(victim) = victim {
            set.remove(victim.way);
        }
        set.push(Held { hash, key: key.into(), origin, slot: Box::new(slot) });
    }

    /// The origin of a key (not of a storage key). A key that is not an address is an origin of its own.
    pub(crate) fn origin(&self, key: &str) -> Origin {
        const ADDRESS: &str = "ip:";
        let groups = key.strip_prefix(ADDRESS).unwrap_or_default().match_indices(['.', ':']);
        let mut starts = groups.filter_map(|(at, _)| key.get(..ADDRESS.len() + at)).skip(1);
        let network = starts.next().unwrap_or(key);
        let site = starts.next().unwrap_or(key);
        Origin { site: self.hash(site), network: self.hash(network) }
    }

    /// Clients do not know the seed, so they cannot choose keys that share a set.
    fn hash(&self, text: &str) -> u64 {
        text.as_bytes().chunks(8).fold(self.seed, |hash, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            Draws(hash ^ u64::from_le_bytes(word)).next()
        })
    }

    fn set(&self, hash: u64) -> &Vec<Held> {
        &self.sets[self.place(hash)]
    }

    fn set_mut(&mut self, hash: u64) -> &mut Vec<Held> {
        let place = self.place(hash);
        &mut self.sets[place]
    }

    #[allow(clippy::cast_possible_truncation, reason = "less than the number of sets")]
    fn place(&self, hash: u64) -> usize {
        (hash % self.sets.len() as u64) as usize
    }
}

impl Held {
    fn is(&self, hash: u64, key: &str) -> bool {
        self.hash == hash && *self.key == *key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_site_or_network_share_an_origin() {
        let table = Table::new(1, 7);
        let origin = |key| table.origin(key);
        let home = origin("ip:2001:db8:1:1::/64");
        assert_eq!(home, origin("ip:2001:db8:1:ffff::/64"));
        let neighbor = origin("ip:2001:db8:2:1::/64");
        assert_eq!((home.network, home.site == neighbor.site), (neighbor.network, false));
        assert_ne!(home.network, origin("ip:2001:db9:1:1::/64").network);
        assert_eq!(origin("ip:192.0.2.1"), origin("ip:192.0.2.2"));
        assert_eq!(origin("ip:192.0.2.1").network, origin("ip:192.0.3.1").network);
        assert_ne!(origin("ip:unknown"), origin("ip:192.0.2.1"));
        for own in ["sub:alice", "ip:unknown", "tenant:1:2:3", ""] {
            assert_eq!(origin(own).site, origin(own).network, "{own}");
        }
    }
}
