//! Lists of senders that are always allowed or denied.

use std::collections::BTreeSet;
use std::format_args as args;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::file::{Source, Step};
use crate::{Error, Key};

/// Networks and keys. A look-up takes as long as a binary search.
#[derive(Debug, Default)]
pub(super) struct List {
    /// Disjoint and sorted.
    v4: Vec<Ipv4Net>,
    /// Disjoint and sorted.
    v6: Vec<Ipv6Net>,
    keys: BTreeSet<Key>,
}

impl List {
    pub(super) fn new(source: Source<'_>, name: &str, entries: &[String]) -> Result<Self, Error> {
        let (mut v4, mut v6, mut keys) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (place, entry) in entries.iter().enumerate() {
            let key = || {
                Key::from_text(entry).filter(|key| ["sub:", "key:"].iter().any(|kind| key.as_str().starts_with(kind)))
            };
            match entry.parse::<IpNet>().or_else(|_| entry.parse::<IpAddr>().map(IpNet::from)) {
                Ok(IpNet::V4(network)) => v4.push(network),
                Ok(IpNet::V6(network)) => v6.push(network),
                Err(_) => {
                    let at = [Step::Key("lists"), Step::Key(name), Step::Place(place)];
                    let what = args!(
                        "{entry:?} is neither a network nor a key; write one such as 192.0.2.0/24, 2001:db8::/32 or sub:alice"
                    );
                    keys.insert(key().ok_or_else(|| source.invalid(&at, what))?);
                }
            }
        }
        let (mut v4, mut v6) = (Ipv4Net::aggregate(&v4), Ipv6Net::aggregate(&v6));
        v4.sort_unstable();
        v6.sort_unstable();
        Ok(Self { v4, v6, keys })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty() && self.keys.is_empty()
    }

    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => {
                let after = self.v4.partition_point(|network| network.network() <= address);
                after.checked_sub(1).is_some_and(|place| self.v4[place].contains(&address))
            }
            IpAddr::V6(address) => {
                let after = self.v6.partition_point(|network| network.network() <= address);
                after.checked_sub(1).is_some_and(|place| self.v6[place].contains(&address))
            }
        }
    }

    pub(super) fn has_key(&self, key: &Key) -> bool {
        self.keys.contains(key)
    }
}
