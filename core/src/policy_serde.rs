//! Serializes and deserializes policies, with the field names of fixtures and configuration files.
//!
//! ```
//! use tidegate_core::Policy;
//! let policy: Policy = serde_json::from_str(r#"{ "name": "api", "quotas": [
//!     { "algorithm": "token_bucket", "capacity": 10, "refill": 5, "per_ms": 1000, "name": "burst" },
//!     { "algorithm": "fixed_window", "limit": 10000, "window_ms": 86400000, "name": "daily" } ] }"#).unwrap();
//! assert_eq!(policy.quotas()[1].name(), "daily");
//! ```

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::algorithm::Concurrency;
use crate::policy::Policy;
use crate::quota::{Quota, Rule};
use crate::{Error, Millis};

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename = "Policy", deny_unknown_fields)]
struct PolicyFields {
    name: String,
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    charge_denied: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group_by: Option<String>,
    quotas: Vec<Quota>,
}

#[derive(serde::Deserialize)]
#[serde(rename = "Quota", tag = "algorithm", rename_all = "snake_case", deny_unknown_fields)]
enum QuotaFields {
    FixedWindow(WindowFields),
    SlidingWindow(WindowFields),
    SlidingLog(WindowFields),
    TokenBucket(BucketFields),
    LeakyBucket(BucketFields),
    Concurrency(ConcurrencyFields),
    Penalty(PenaltyFields),
    Block(BlockFields),
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ConcurrencyFields {
    name: Option<Box<str>>,
    by: Option<Box<str>>,
    limit: u64,
    lifetime_ms: u64,
    #[serde(default)]
    returns_cost: bool,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct PenaltyFields {
    name: Option<Box<str>>,
    by: Option<Box<str>>,
    base_ms: u64,
    factor: u64,
    cap_ms: u64,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockFields {
    name: Option<Box<str>>,
    by: Option<Box<str>>,
    cap_ms: u64,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowFields {
    name: Option<Box<str>>,
    by: Option<Box<str>>,
    limit: u64,
    window_ms: u64,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct BucketFields {
    name: Option<Box<str>>,
    by: Option<Box<str>>,
    capacity: u64,
    refill: u64,
    per_ms: u64,
}

impl WindowFields {
    fn quota(self, build: impl FnOnce(u64, Millis) -> Result<Quota, Error>) -> Result<Quota, Error> {
        named(build(self.limit, Millis::new(self.window_ms))?, self.name, self.by)
    }
}

impl BucketFields {
    fn quota(self, build: impl FnOnce(u64, u64, Millis) -> Result<Quota, Error>) -> Result<Quota, Error> {
        named(build(self.capacity, self.refill, Millis::new(self.per_ms))?, self.name, self.by)
    }
}

fn named(mut quota: Quota, name: Option<Box<str>>, by: Option<Box<str>>) -> Result<Quota, Error> {
    if let Some(name) = name {
        quota = quota.named(&name)?;
    }
    match by {
        Some(dimension) => quota.by(&dimension),
        None => Ok(quota),
    }
}

impl ConcurrencyFields {
    fn quota(self) -> Result<Quota, Error> {
        let rule = Concurrency::new(self.limit, Millis::new(self.lifetime_ms))?.returns_cost(self.returns_cost);
        named(Rule::Concurrency(rule).into(), self.name, self.by)
    }
}

impl PenaltyFields {
    fn quota(self) -> Result<Quota, Error> {
        let quota = Quota::penalty(Millis::new(self.base_ms), self.factor, Millis::new(self.cap_ms))?;
        named(quota, self.name, self.by)
    }
}

impl BlockFields {
    fn quota(self) -> Result<Quota, Error> {
        named(Quota::block(Millis::new(self.cap_ms))?, self.name, self.by)
    }
}

impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let quota = match QuotaFields::deserialize(deserializer)? {
            QuotaFields::FixedWindow(fields) => fields.quota(Self::fixed_window),
            QuotaFields::SlidingWindow(fields) => fields.quota(Self::sliding_window),
            QuotaFields::SlidingLog(fields) => fields.quota(Self::sliding_log),
            QuotaFields::TokenBucket(fields) => fields.quota(Self::token_bucket),
            QuotaFields::LeakyBucket(fields) => fields.quota(Self::leaky_bucket),
            QuotaFields::Concurrency(fields) => fields.quota(),
            QuotaFields::Penalty(fields) => fields.quota(),
            QuotaFields::Block(fields) => fields.quota(),
        };
        quota.map_err(D::Error::custom)
    }
}

impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [limit, span, last] = self.rule().parameters();
        let numbers: &[(&str, u64)] = match self.rule() {
            Rule::FixedWindow(_) | Rule::SlidingWindow(_) | Rule::SlidingLog(_) => {
                &[("limit", limit), ("window_ms", span)]
            }
            Rule::TokenBucket(_) | Rule::LeakyBucket(_) => &[("capacity", limit), ("refill", last), ("per_ms", span)],
            Rule::Concurrency(_) => &[("limit", limit), ("lifetime_ms", span)],
            Rule::Penalty(rule) if !rule.punishes() => &[("cap_ms", limit)],
            Rule::Penalty(_) => &[("base_ms", span), ("factor", last), ("cap_ms", limit)],
        };
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("algorithm", self.rule().name())?;
        for (field, text) in
            [("name", self.name()), ("by", self.dimension())].into_iter().filter(|(_, text)| !text.is_empty())
        {
            fields.serialize_entry(field, text)?;
        }
        for (field, number) in numbers {
            fields.serialize_entry(field, number)?;
        }
        if matches!(self.rule(), Rule::Concurrency(rule) if rule.returns()) {
            fields.serialize_entry("returns_cost", &true)?;
        }
        fields.end()
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let PolicyFields { name, charge_denied, group_by, quotas } = PolicyFields::deserialize(deserializer)?;
        let policy = Self::new(&name, quotas).map_err(D::Error::custom)?;
        let policy = policy.charge_denied(charge_denied);
        match group_by {
            Some(dimension) => policy.group_by(&dimension).map_err(D::Error::custom),
            None => Ok(policy),
        }
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = PolicyFields {
            name: self.name().to_string(),
            charge_denied: self.charges_denied(),
            group_by: self.group().map(|group| group.name().to_string()),
            quotas: self.quotas().to_vec(),
        };
        fields.serialize(serializer)
    }
}
