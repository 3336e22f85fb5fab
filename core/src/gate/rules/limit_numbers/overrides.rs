//! Limits of single keys, from the rules file or from a file of their own.

use std::format_args as args;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::super::Rules;
use super::super::api_key::api_key;
use crate::algorithm::MAX_UNITS;
use crate::client_ip::ClientIp;
use crate::document::{FileText, Item};
use crate::gate::bytes::{Bytes, BytesReader, Writer, bytes_of_fields};
use crate::gate::file::File;
use crate::gate::stores::StoreRules;
use crate::key::ENCODED_JOINT;
use crate::quoted_text::Quoted;
use crate::suggestion::Suggestion;
use crate::{Error, ErrorKind, Key, Policy, Quota, Rule as Algorithm};

/// The overrides of a gate's rules.
#[derive(Debug, Default)]
pub(in crate::gate) struct Overrides {
    /// Those of the rules file.
    of_rules: Arc<OfKeys>,
    /// These and those of their own file, which may be read again.
    now: RwLock<Now>,
    /// So that a gate without any looks no further.
    has_any: AtomicBool,
}

#[derive(Clone, Debug, Default)]
struct Now {
    all: Arc<OfKeys>,
    own: Option<OwnFile>,
}

/// The file that only has overrides.
#[derive(Clone, Debug)]
pub(in crate::gate) struct OwnFile {
    name: Box<str>,
    text: Box<str>,
    /// Reads it again. A gate that has no such file links no reader.
    read: fn(&Rules, &str, &str) -> Result<(), Error>,
}

/// Sorted by the key's text.
#[derive(Clone, Debug, Default)]
pub(in crate::gate) struct OfKeys(Vec<OfKey>);

#[derive(Clone, Debug)]
struct OfKey {
    key: Key,
    limits: Vec<Override>,
}

/// The number of one quota.
#[derive(Clone, Debug)]
struct Override {
    limit: Box<str>,
    quota: Box<str>,
    number: u64,
}

bytes_of_fields!(OfKey { key, limits });
bytes_of_fields!(Override { limit, quota, number });

impl Bytes for Overrides {
    fn write(&self, to: &mut Writer) {
        self.of_rules.0.write(to);
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        Bytes::read(from).map(|keys| Self::new(OfKeys(keys)))
    }
}

impl Overrides {
    pub(in crate::gate) fn new(of_rules: OfKeys) -> Self {
        let of_rules = Arc::new(of_rules);
        let now = Now { all: Arc::clone(&of_rules), own: None };
        Self { has_any: AtomicBool::new(!of_rules.0.is_empty()), of_rules, now: RwLock::new(now) }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.has_any.load(Ordering::Relaxed)
    }

    pub(super) fn now(&self) -> Option<Arc<OfKeys>> {
        if self.is_empty() {
            return None;
        }
        Some(Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner).all))
    }

    fn own(&self) -> Option<OwnFile> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).own.clone()
    }

    /// Replaces those of their own file, which precede the others.
    fn replace(&self, own: OfKeys, file: OwnFile) {
        let all = Arc::new(OfKeys::clone(&self.of_rules).with(own));
        self.has_any.store(!all.0.is_empty(), Ordering::Relaxed);
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Now { all, own: Some(file) };
    }

    /// How many keys have one.
    pub(in crate::gate) fn len(&self) -> usize {
        self.now().map_or(0, |all| all.0.len())
    }

    /// Whether one is of this limit.
    pub(in crate::gate) fn has(&self, limit: &str) -> bool {
        let all = self.now();
        all.iter().flat_map(|all| &all.0).flat_map(|of| &of.limits).any(|known| *known.limit == *limit)
    }
}

impl OfKeys {
    /// The number of a key's quota.
    pub(super) fn of(&self, key: &Key, limit: &str, quota: &str) -> Option<u64> {
        let place = self.0.binary_search_by(|known| known.key.cmp(key)).ok()?;
        let found = self.0[place].limits.iter().find(|known| *known.quota == *quota && *known.limit == *limit);
        found.map(|known| known.number)
    }

    /// These and others, which precede them.
    fn with(mut self, others: Self) -> Self {
        for OfKey { key, limits } in others.0 {
            match self.0.binary_search_by(|known| known.key.cmp(&key)) {
                Err(place) => self.0.insert(place, OfKey { key, limits }),
                Ok(place) => {
                    let known = &mut self.0[place].limits;
                    known.retain(|known| limits.iter().all(|new| new.quota != known.quota || new.limit != known.limit));
                    known.extend(limits);
                }
            }
        }
        self
    }
}

impl Rules {
    /// Gives single keys limits of their own, from a file that has nothing but the table `overrides`, as a rules file may have it, too.
    /// This file precedes that one. [`Gate::reload_overrides`](crate::gate::Gate::reload_overrides) reads it again.
    ///
    /// ```
    /// use tidegate_core::gate::Rules;
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let rules = Rules::parse("rules.json", r#"{
    ///     "limits": { "api": { "quotas": [{ "algorithm": "fixed_window", "limit": 100, "window_ms": 60000 }] } },
    ///     "rules": [{ "limits": ["api"] }]
    /// }"#)?;
    /// let rules = rules.with_overrides("overrides.json", r#"{
    ///     "overrides": { "key:2bb80d537b1da3e38bd30361aa855686": { "api": { "limit": 5000 } } }
    /// }"#)?;
    /// assert_eq!(rules.overrides(), 1);
    /// let error = rules.with_overrides("overrides.json", r#"{ "overrides": { "sub:alice": { "apo": { "limit": 5 } } } }"#);
    /// let message = r#"overrides.json:1:40: "apo" is not a limit; did you mean "api"? Write one of "api""#;
    /// assert_eq!(error.unwrap_err().to_string(), message);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) with the file, the line, the column, the value and what to write instead.
    pub fn with_overrides(self, file: &str, text: &str) -> Result<Self, Error> {
        self.read_overrides(file, text)?;
        Ok(self)
    }

    /// How many keys have limits of their own.
    #[must_use]
    pub fn overrides(&self) -> usize {
        self.overrides.len()
    }

    pub(in crate::gate) fn read_overrides(&self, name: &str, text: &str) -> Result<(), Error> {
        let file = File::read(FileText { name, text })?;
        let root = file.root();
        root.only(&["$schema", "overrides"])?;
        let own = self.overrides_of(&root.required("overrides")?)?;
        self.overrides.replace(own, OwnFile { name: name.into(), text: text.into(), read: Self::read_overrides });
        Ok(())
    }

    /// Reads the file of overrides that other rules have read, unless these have one.
    pub(in crate::gate) fn take_overrides_of(&self, others: &Self) -> Result<(), Error> {
        match (self.overrides.own(), others.overrides.own()) {
            (None, Some(OwnFile { name, text, read })) => read(self, &name, &text),
            _ => Ok(()),
        }
    }

    /// Reads a table of overrides.
    pub(in crate::gate) fn overrides_of(&self, table: &Item<'_>) -> Result<OfKeys, Error> {
        let mut found = Vec::new();
        table.entries(&mut |text, item| {
            let mut limits = Vec::new();
            let key = key(text, item)?;
            item.entries(&mut |limit, item| self.overrides_of_limit(limit, item, &mut limits))?;
            found.push((OfKey { key, limits }, *item));
            Ok(())
        })?;
        found.sort_by(|(one, _), (other, _)| one.key.cmp(&other.key));
        if let Some(twice) = found.windows(2).find(|two| two[0].0.key == two[1].0.key) {
            return Err(twice[1].1.invalid(args!("this key is written twice; write it once")));
        }
        Ok(OfKeys(found.into_iter().map(|(of, _)| of).collect()))
    }

    fn overrides_of_limit(&self, limit: &str, item: &Item<'_>, found: &mut Vec<Override>) -> Result<(), Error> {
        let named = |policies: &&Vec<Option<Policy>>| policies.iter().flatten().any(|policy| policy.name() == limit);
        let Some(policies) = self.limits.iter().find(named) else {
            let known: Vec<&str> = self.limits.iter().flat_map(|limit| limit[0].as_ref()).map(Policy::name).collect();
            return Err(match &known[..] {
                [] => item.wrong(limit, args!("is not a limit; the rules have none")),
                known => item.wrong(limit, args!("is not a limit; {}", Suggestion::of(limit, known))),
            });
        };
        if self.stores.iter().flat_map(StoreRules::limits).any(|used| used == limit) {
            return Err(item.wrong(limit, args!("is asked first or tried, with one number for all; delete this")));
        }
        if self.fixed.iter().any(|fixed| **fixed == *limit) {
            return Err(item.wrong(limit, args!("{FIXED}; delete this")));
        }
        let quotas: Vec<&Quota> =
            policies.iter().flatten().flat_map(Policy::quotas).filter(|quota| counts(quota)).collect();
        let mut names: Vec<&str> = Vec::new();
        for quota in &quotas {
            if !names.contains(&quota.name()) {
                names.push(quota.name());
            }
        }
        if let [name] = names[..] {
            // Also that of a quota with a name.
            let known = if name == "limit" { vec!["limit"] } else { vec!["limit", name] };
            item.only(&known)?;
        } else {
            item.only(&names)?;
        }
        let grace = self.leases.iter().find(|(name, _)| **name == *limit).map_or(0, |(_, lease)| lease.grace);
        let (mut count, before) = (0_usize, found.len());
        item.entries(&mut |field, item_of| {
            let name = if let [name] = names[..] { name } else { field };
            let number = item.number_in(field, 1, MAX_UNITS)?.unwrap_or_default();
            for quota in quotas.iter().filter(|quota| quota.name() == name) {
                quota.numbered(number).map_err(|error| item_of.at(&error))?;
            }
            if number < grace {
                return Err(item_of.invalid(args!(
                    "the limit \"{limit}\" has a grace of {grace}, which is more than {number}; write at least {grace}"
                )));
            }
            count += 1;
            found.push(Override { limit: limit.into(), quota: name.into(), number });
            Ok(())
        })?;
        if count == 0 {
            return Err(item.invalid(args!("empty; write one such as {{ limit = 5000 }}")));
        }
        match found[before..].windows(2).any(|two| two[0].quota == two[1].quota) {
            true => Err(item.invalid(args!("its only quota has two numbers; write limit alone"))),
            false => Ok(()),
        }
    }

    /// Notes a limit whose number the platform has, so that no request can have another.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if one may.
    pub(in crate::gate) fn fix(&mut self, limit: &str) -> Result<(), Error> {
        if self.takes_numbers(limit) || self.overrides.has(limit) {
            let message = format!("limit {}: it {FIXED}; delete limit_from and its overrides", Quoted(limit));
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        self.fixed.push(limit.into());
        Ok(())
    }
}

/// Why a limit has no other number.
const FIXED: &str = "counts in a store whose numbers the platform has";

/// Whether a quota has a limit.
fn counts(quota: &Quota) -> bool {
    !matches!(quota.rule(), Algorithm::Penalty(_) | Algorithm::Balance(_))
}

/// The key of this text, as explanations have it.
fn key(text: &str, item: &Item<'_>) -> Result<Key, Error> {
    if text.contains(ENCODED_JOINT) {
        let (start, hash) = text.split_once('~').unwrap_or((text, ""));
        let mut parts: Vec<&str> = start.split(ENCODED_JOINT).collect();
        if !hash.is_empty() {
            // Of a long key, only the start of the last part is written.
            parts.pop();
        }
        for part in parts {
            match sole_part(part, item)? {
                Some(address) if address.as_str() != part => {
                    return Err(item.wrong(part, args!("is counted as another; write {}", Quoted(address.as_str()))));
                }
                _ => {}
            }
        }
    } else if let Some(address) = sole_part(text, item)? {
        return Ok(address);
    }
    Key::from_text(text).filter(|_| !text.is_empty()).ok_or_else(|| {
        item.wrong(text, args!("is not a key as tidegate explain prints it; write {}", Quoted(Key::new(text).as_str())))
    })
}

/// Checks a key, or a part of a joined one. The key of the address, if it is one.
fn sole_part(text: &str, item: &Item<'_>) -> Result<Option<Key>, Error> {
    // What follows may be the secret itself.
    if let Some(hash) = text.strip_prefix("key:") {
        api_key(hash, item)?;
    }
    let address = text.strip_prefix("ip:").filter(|address| *address != "unknown");
    address.map(address_key).transpose().map_err(|right| item.wrong(text, args!("{right}")))
}

/// The key of an address or a network, or what to write.
fn address_key(text: &str) -> Result<Key, String> {
    let wrong = || "is not the key of an address; write one such as ip:192.0.2.1 or ip:2001:db8::/64".to_string();
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let digits = |bits: &str| bits.bytes().all(|byte| byte.is_ascii_digit()).then(|| bits.parse().ok()).flatten();
    let counted = ClientIp::of_network(address, bits.map_or(Some(64), digits).ok_or_else(wrong)?).ok_or_else(wrong)?;
    match (counted.address(), bits) {
        (IpAddr::V4(_), Some(_)) => Err(wrong()),
        (IpAddr::V6(_), None) => Err(format!(
            "is one address, and a network is counted; write \"{}\", or \"ip:{address}/128\" for the address",
            Key::ip(&counted)
        )),
        (first @ IpAddr::V6(_), _) if first != address => {
            Err(format!("is counted as another; write \"{}\"", Key::ip(&counted)))
        }
        _ => Ok(Key::ip(&counted)),
    }
}
