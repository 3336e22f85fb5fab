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
use serde::ser::{Serialize, Serializer};

use crate::algorithm::{Algorithm, TokenBucket};
use crate::quota::{Policy, Quota, Rule};
use crate::{Error, Millis};

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename = "Policy", deny_unknown_fields)]
struct PolicyFields {
    name: String,
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    charge_denied: bool,
    quotas: Vec<Quota>,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename = "Quota", tag = "algorithm", rename_all = "snake_case", deny_unknown_fields)]
enum QuotaFields {
    FixedWindow(WindowFields),
    SlidingWindow(WindowFields),
    SlidingLog(WindowFields),
    TokenBucket(BucketFields),
    LeakyBucket(BucketFields),
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<Box<str>>,
    limit: u64,
    window_ms: u64,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct BucketFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<Box<str>>,
    capacity: u64,
    refill: u64,
    per_ms: u64,
}

impl WindowFields {
    fn of(quota: &Quota, window: Millis) -> Self {
        Self { name: name_of(quota), limit: quota.rule().limit(), window_ms: window.get() }
    }

    fn quota(self, build: impl FnOnce(u64, Millis) -> Result<Quota, Error>) -> Result<Quota, Error> {
        named(build(self.limit, Millis::new(self.window_ms))?, self.name)
    }
}

impl BucketFields {
    fn of(quota: &Quota, bucket: &TokenBucket) -> Self {
        Self { name: name_of(quota), capacity: bucket.limit(), refill: bucket.refill(), per_ms: bucket.per().get() }
    }

    fn quota(self, build: impl FnOnce(u64, u64, Millis) -> Result<Quota, Error>) -> Result<Quota, Error> {
        named(build(self.capacity, self.refill, Millis::new(self.per_ms))?, self.name)
    }
}

fn name_of(quota: &Quota) -> Option<Box<str>> {
    (!quota.name().is_empty()).then(|| quota.name().into())
}

fn named(quota: Quota, name: Option<Box<str>>) -> Result<Quota, Error> {
    match name {
        Some(name) => quota.named(&name),
        None => Ok(quota),
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
        };
        quota.map_err(D::Error::custom)
    }
}

impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = match self.rule() {
            Rule::FixedWindow(rule) => QuotaFields::FixedWindow(WindowFields::of(self, rule.window())),
            Rule::SlidingWindow(rule) => QuotaFields::SlidingWindow(WindowFields::of(self, rule.window())),
            Rule::SlidingLog(rule) => QuotaFields::SlidingLog(WindowFields::of(self, rule.window())),
            Rule::TokenBucket(bucket) => QuotaFields::TokenBucket(BucketFields::of(self, bucket)),
            Rule::LeakyBucket(shaper) => QuotaFields::LeakyBucket(BucketFields::of(self, shaper.bucket())),
        };
        fields.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let PolicyFields { name, charge_denied, quotas } = PolicyFields::deserialize(deserializer)?;
        let policy = Self::new(&name, quotas).map_err(D::Error::custom)?;
        Ok(policy.charge_denied(charge_denied))
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = PolicyFields {
            name: self.name().to_string(),
            charge_denied: self.charges_denied(),
            quotas: self.quotas().to_vec(),
        };
        fields.serialize(serializer)
    }
}
