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
use alloc::vec::Vec;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, SerializeMap as _, Serializer};

use super::fields::{ALGORITHMS, CALENDAR, FLAGS, WARN_AT, policy, quota};
#[cfg(feature = "calendar")]
use crate::Rule;
use crate::document::{Item, Node, Source};
use crate::quota::{PART_MARK, checked_name};
use crate::{Error, Policy, Quota};

/// Any name is a dimension, and so is a list of names, which are joined.
fn dimension(item: &Item<'_>) -> Result<Option<Box<str>>, Error> {
    let parts = item.one_or_each(&mut |item| checked_name("by", item.text()?).map_err(|error| item.at(&error)))?;
    Ok(Some(parts.join(PART_MARK.encode_utf8(&mut [0; 4])).into()))
}

/// A dimension as a file has it: its name, or a list of the names that are joined in it.
struct Written<'a>(&'a str);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            joined if joined.contains(PART_MARK) => serializer.collect_seq(joined.split(PART_MARK)),
            name => serializer.serialize_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let root = Node::deserialize(deserializer)?;
        quota(&Item::of(Source::Tree(&root), &root), &dimension, &[]).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let root = Node::deserialize(deserializer)?;
        let table = Item::of(Source::Tree(&root), &root);
        let read = || {
            table.only(&["name", "charge_denied", "group_by", "quotas"])?;
            policy(table.required("name")?.text()?, &table, &table, &dimension, &[])
        };
        read().map_err(D::Error::custom)
    }
}

impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (algorithm, parameters) = (self.rule().name(), self.rule().parameters());
        if has_lost_its_calendar(self) {
            return Err(S::Error::custom("calendar_window: the quota is of two windows and has no calendar to write"));
        }
        let mut table = serializer.serialize_map(None)?;
        table.serialize_entry("algorithm", algorithm)?;
        for (field, text) in [("name", self.name()), ("by", self.dimension())] {
            if !text.is_empty() {
                table.serialize_entry(field, &Written(text))?;
            }
        }
        let known = ALGORITHMS.iter().filter(|known| known.name == algorithm);
        for (field, place) in known.flat_map(|known| known.fields) {
            match (*field, parameters[*place]) {
                (flag, 0) if FLAGS.contains(&flag) => {}
                (flag, _) if FLAGS.contains(&flag) => table.serialize_entry(field, &true)?,
                (_, number) => table.serialize_entry(field, &number)?,
            }
        }
        #[cfg(feature = "calendar")]
        if let (Some(calendar), Rule::CalendarWindow(window)) = (self.calendar(), self.rule()) {
            table.serialize_entry("every", calendar.every().name())?;
            table.serialize_entry("zone", calendar.zone_name())?;
            table.serialize_entry("anchor", &*calendar.anchor_text())?;
            if window.carry_over() > 0 {
                table.serialize_entry("carry_over", &window.carry_over())?;
            }
        }
        let percents: Vec<u8> = self.warns_at().collect();
        if !percents.is_empty() {
            table.serialize_entry(WARN_AT, &percents)?;
        }
        table.end()
    }
}

/// A quota from its [parameters](Quota::from_parameters) has two windows and no calendar.
fn has_lost_its_calendar(quota: &Quota) -> bool {
    #[cfg(feature = "calendar")]
    if quota.calendar().is_some() {
        return false;
    }
    quota.rule().number() == CALENDAR
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut table = serializer.serialize_map(None)?;
        table.serialize_entry("name", self.name())?;
        if self.charges_denied() {
            table.serialize_entry("charge_denied", &true)?;
        }
        if let Some(group) = self.group() {
            table.serialize_entry("group_by", &Written(group.name()))?;
        }
        table.serialize_entry("quotas", self.quotas())?;
        table.end()
    }
}
