//! Lists of senders that are always allowed or denied.

use std::format_args as args;
use std::net::IpAddr;

use super::bytes::bytes_of_fields;
use super::file::Item;
use crate::{Error, Key};

/// Networks and keys. A look-up takes as long as a binary search.
#[derive(Debug, Default)]
pub(super) struct List {
    /// The first and the last address of each network, disjoint and sorted. IPv4 addresses are mapped to IPv6.
    networks: Vec<(Address, Address)>,
    /// Sorted.
    keys: Vec<Key>,
}

bytes_of_fields!(List { networks, keys });

impl List {
    pub(super) fn new(list: &Item<'_>) -> Result<Self, Error> {
        let mut found = Self::default();
        list.each(&mut |item| {
            let entry = item.text()?;
            if let Some(network) = network(entry) {
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
    fn add(&mut self, (mut first, mut last): (Address, Address)) {
        let from = self.networks.partition_point(|(_, end)| *end < first);
        let to = self.networks.partition_point(|(start, _)| *start <= last);
        // What ends before the network starts before its end.
        for (start, end) in self.networks.drain(from..to) {
            (first, last) = (first.min(start), last.max(end));
        }
        self.networks.insert(from, (first, last));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.keys.is_empty()
    }

    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        let address = octets(address);
        let place = self.networks.partition_point(|(_, last)| *last < address);
        self.networks.get(place).is_some_and(|(first, _)| *first <= address)
    }

    pub(super) fn has_key(&self, key: &Key) -> bool {
        self.keys.binary_search(key).is_ok()
    }
}

/// In the order of its bits.
type Address = [u8; 16];

fn octets(address: IpAddr) -> Address {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The first and the last address of a network such as `192.0.2.0/24`, or of one address.
fn network(text: &str) -> Option<(Address, Address)> {
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
    Some((first, last))
}
