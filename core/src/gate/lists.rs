//! Lists of senders that are always allowed or denied.

use std::format_args as args;
use std::net::IpAddr;

use super::bytes::bytes_of_fields;
use crate::document::Item;
use crate::network::Network;
use crate::{Error, Key};

/// Networks and keys. A look-up takes as long as a binary search.
#[derive(Debug, Default)]
pub(super) struct List {
    /// Disjoint and sorted.
    networks: Vec<Network>,
    /// Sorted.
    keys: Vec<Key>,
}

bytes_of_fields!(List { networks, keys });
bytes_of_fields!(Network { first, last });

impl List {
    pub(super) fn new(list: &Item<'_>) -> Result<Self, Error> {
        let mut found = Self::default();
        list.each(&mut |item| {
            let entry = item.text()?;
            if let Some(network) = Network::parse(entry) {
                found.add(network);
                return Ok(());
            }
            let is_kind = |key: &Key| ["sub:", "key:"].iter().any(|kind| key.as_str().starts_with(kind));
            let key = Key::from_text(entry).filter(is_kind).ok_or_else(|| {
                let what = "is neither a network nor a key; write one such as 192.0.2.0/24, 2001:db8::/32 or sub:alice";
                item.wrong(entry, args!("{what}"))
            })?;
            let place = found.keys.partition_point(|known| *known < key);
            found.keys.insert(place, key);
            Ok(())
        })?;
        Ok(found)
    }

    /// Adds a network, joined with those that it overlaps.
    fn add(&mut self, Network { mut first, mut last }: Network) {
        let from = self.networks.partition_point(|known| known.last < first);
        let to = self.networks.partition_point(|known| known.first <= last);
        // What ends before the network starts before its end.
        for known in self.networks.drain(from..to) {
            (first, last) = (first.min(known.first), last.max(known.last));
        }
        self.networks.insert(from, Network { first, last });
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.keys.is_empty()
    }

    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        Network::has(&self.networks, address)
    }

    pub(super) fn has_key(&self, key: &Key) -> bool {
        self.keys.binary_search(key).is_ok()
    }
}
