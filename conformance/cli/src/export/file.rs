//! What the export reads of a rules file that [`Rules`] has checked.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use tidegate_core::Quota;
use tidegate_core::gate::Rules;

/// A rules file, checked.
#[derive(Debug)]
pub struct Source {
    pub(super) rules: Rules,
    pub(super) file: File,
}

/// The tables of a rules file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct File {
    pub(super) limits: BTreeMap<String, Limit>,
    pub(super) rules: Vec<Limits>,
    lists: Lists,
    tokens: Option<IgnoredAny>,
    api_keys: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Limit {
    pub(super) quotas: Vec<Quota>,
    #[serde(default)]
    pub(super) tiers: BTreeMap<String, IgnoredAny>,
    /// Whether not all senders have the same numbers.
    #[serde(default)]
    pub(super) varies: bool,
}

/// The limits of a rule.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Limits {
    pub(super) limits: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lists {
    allow: Vec<String>,
}

/// The senders that are not limited.
#[derive(Debug, Default)]
pub(super) struct Allowed {
    /// Networks, such as `192.0.2.0/24`.
    pub(super) networks: Vec<String>,
    /// Whether there are others.
    pub(super) has_keys: bool,
}

/// Marks the limits whose numbers come from data, and leaves the file's.
fn mark_varying(file: &mut Value) {
    let overrides = file.get("overrides").and_then(Value::as_object);
    let overridden: BTreeSet<String> = overrides
        .into_iter()
        .flatten()
        .filter_map(|(_, of)| of.as_object())
        .flat_map(|of| of.keys().cloned())
        .collect();
    for (name, limit) in file.get_mut("limits").and_then(Value::as_object_mut).into_iter().flatten() {
        let quotas = limit.get_mut("quotas").and_then(Value::as_array_mut).into_iter().flatten();
        let from = quotas.filter_map(|quota| quota.as_object_mut()?.remove("limit_from")).count();
        if from > 0 || overridden.contains(name) {
            limit["varies"] = true.into();
        }
    }
}

impl Source {
    /// Reads and checks a rules file. `file` is its name, which ends in `.toml` or `.json` and begins each message.
    ///
    /// # Errors
    /// What is wrong in the file, and what to write instead.
    pub fn parse(file: &str, text: &str) -> Result<Self, String> {
        let rules = Rules::parse(file, text).map_err(|error| error.to_string())?;
        let read = match file.ends_with(".toml") {
            true => toml::from_str(text).map_err(|error| error.to_string()),
            false => serde_json::from_str(text).map_err(|error| error.to_string()),
        };
        let tables = read.and_then(|mut tables: Value| {
            mark_varying(&mut tables);
            serde_json::from_value(tables).map_err(|error| error.to_string())
        });
        Ok(Self { rules, file: tables.map_err(|error| format!("{file}: {error}"))? })
    }

    /// What is probably a mistake in the file.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        self.rules.warnings()
    }

    /// Whether the file itself says how senders are identified.
    pub(super) const fn identifies_senders(&self) -> bool {
        self.file.tokens.is_some() || self.file.api_keys.is_some()
    }

    pub(super) fn allowed(&self) -> Allowed {
        let mut allowed = Allowed::default();
        for entry in &self.file.lists.allow {
            match networks(entry) {
                Some(networks) => allowed.networks.extend(networks),
                None => allowed.has_keys = true,
            }
        }
        allowed.networks.sort();
        allowed.networks.dedup();
        allowed
    }
}

/// The networks that an entry of a list stands for. In Tidegate, an IPv4 address is also its mapped IPv6 address.
fn networks(entry: &str) -> Option<Vec<String>> {
    let (address, bits) = match entry.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u32>().ok()?)),
        None => (entry, None),
    };
    match address.parse().ok()? {
        IpAddr::V4(address) => {
            let bits = bits.unwrap_or(32);
            let mask = u32::MAX.checked_shl(32_u32.checked_sub(bits)?).unwrap_or(0);
            Some(vec![format!("{}/{bits}", std::net::Ipv4Addr::from_bits(address.to_bits() & mask))])
        }
        IpAddr::V6(address) => {
            let bits = bits.unwrap_or(128);
            let mask = u128::MAX.checked_shl(128_u32.checked_sub(bits)?).unwrap_or(0);
            let first = std::net::Ipv6Addr::from_bits(address.to_bits() & mask);
            let mapped = std::net::Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().to_bits();
            let network = format!("{first}/{bits}");
            Some(match (bits.checked_sub(96), first.to_ipv4_mapped()) {
                (Some(bits), Some(first)) => vec![format!("{first}/{bits}")],
                _ if mapped & mask == first.to_bits() => vec![network, "0.0.0.0/0".into()],
                _ => vec![network],
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::networks;

    #[test]
    fn networks_have_no_bits_of_hosts() {
        for (entry, expected) in [
            ("192.0.2.7", Some(vec!["192.0.2.7/32"])),
            ("192.0.2.7/24", Some(vec!["192.0.2.0/24"])),
            ("192.0.2.7/0", Some(vec!["0.0.0.0/0"])),
            ("2001:db8::1/32", Some(vec!["2001:db8::/32"])),
            ("::ffff:192.0.2.7/120", Some(vec!["192.0.2.0/24"])),
            ("::/0", Some(vec!["::/0", "0.0.0.0/0"])),
            ("sub:alice", None),
        ] {
            let found = networks(entry);
            assert_eq!(found.as_ref().map(|found| found.iter().map(String::as_str).collect()), expected, "{entry}");
        }
    }
}
