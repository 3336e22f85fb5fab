//! Rules as a log can be replayed with.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value, json};
use tidegate_core::Error;
use tidegate_core::algorithm::{MAX_UNITS, SlidingLog};
use tidegate_core::gate::Rules;

/// The dimensions whose keys a gate makes itself of what a log has. All others are the application's, or the platform's.
const OWN_DIMENSIONS: [&str; 3] = ["", "ip", "global"];

/// The dimension that a gate has of the platform, and no log has.
pub(super) const JA4: &str = "ja4";

/// What joins the names of the dimensions whose keys make one key.
const PART_MARK: char = '+';

/// What a quota without a dimension counts by.
const SENDER: &str = "sender";

/// A rules file without what a log cannot tell: all limits count in one store, no token is verified, and no request is in
/// flight.
#[derive(Clone, Debug)]
pub struct Adapted {
    rules: Value,
    notes: Vec<Note>,
    dimensions: Vec<String>,
    rules_with_host: Vec<String>,
}

/// What a replay does in another way than the gate, because a log does not have what it needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// Whether it counts in another way, or not at all.
    pub effect: Effect,
    /// `rule` or `limit`, and its name.
    pub of: String,
    /// Why.
    pub reason: String,
}

/// What a replay does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It was not applied.
    NotApplied,
    /// It counted by the client's address.
    ByAddress,
}

/// A number of a rules file that a search may change: the limit of a window, or the capacity of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Number {
    /// The name of the limit.
    pub limit: String,
    /// The name of its quota.
    pub quota: String,
    /// The algorithm.
    pub algorithm: String,
    /// The number.
    pub value: u64,
    /// The largest that is valid.
    pub most: u64,
    /// The place among the limit's quotas.
    place: usize,
}

impl Adapted {
    /// Adapts the data of a valid rules file.
    #[must_use]
    pub fn new(mut rules: Value) -> Self {
        let parsed = Rules::parse("rules.json", &rules.to_string()).ok();
        let named = |place: usize| {
            let rule = parsed.as_ref().and_then(|rules| rules.rules().get(place));
            rule.map_or_else(|| format!("rules[{place}]"), |rule| rule.name().into())
        };
        let mut notes = Vec::new();
        let has_identity = ["api_keys", "tokens"].iter().any(|table| rules.get(table).is_some());
        let mut dimensions = BTreeSet::new();
        let mut left_out = Vec::new();
        for (name, limit) in tables(&mut rules, "limits") {
            // What a limit admits without loans is what it may admit with them.
            limit.remove("lease");
            if remove_limits_from(limit) {
                notes.push(Note::not_applied(
                    "limit_from of limit",
                    &name,
                    "a log has no claims and no numbers of the application, so the file's number applies",
                ));
            }
            let by_address = named_quotas(&name, limit);
            if remove_slots(limit) {
                notes.push(Note::not_applied(
                    "limit",
                    &name,
                    "it counts requests in flight, and a log has no durations",
                ));
            }
            if quotas(limit).next().is_none() {
                left_out.push(name);
                continue;
            }
            for dimension in by_address {
                let reason = match &*dimension {
                    "" if !has_identity => continue,
                    "" => "it counts by the sender, and a log has no API key and no token".into(),
                    dimension => format!("it counts by {dimension:?}, which a log does not have"),
                };
                notes.push(Note { effect: Effect::ByAddress, of: format!("limit {name}"), reason });
                dimensions.insert(dimension);
            }
        }
        for name in &left_out {
            rules.get_mut("limits").and_then(Value::as_object_mut).map(|limits| limits.remove(name));
        }
        keep_overrides(&mut rules);
        let mut rules_with_host = Vec::new();
        let list = rules.get_mut("rules").and_then(Value::as_array_mut);
        for (place, rule) in list.into_iter().flatten().enumerate() {
            let Some(rule) = rule.as_object_mut() else { continue };
            let name = rule.get("name").and_then(Value::as_str).map_or_else(|| named(place), Into::into);
            rule.remove("store");
            if let Some(limits) = rule.get_mut("limits").and_then(Value::as_array_mut) {
                limits.retain(|limit| !left_out.iter().any(|name| limit == name.as_str()));
            }
            if rule.get("headers").and_then(Value::as_array).is_some_and(|headers| !headers.is_empty()) {
                notes.push(Note::not_applied("rule", &name, "it matches header fields, which a log does not have"));
            }
            if rule.contains_key("bot_score_below") {
                notes.push(Note::not_applied("rule", &name, "it matches a bot score, which a log does not have"));
            }
            if rule.contains_key("host") {
                rules_with_host.push(name);
            }
        }
        dimensions.remove("");
        for (name, _) in tables(&mut rules, "stores").filter(|(_, store)| store.contains_key("near")) {
            notes.push(Note::not_applied(
                "store",
                &name,
                "it is asked after a near one, and all limits count in one store",
            ));
        }
        if let Some(rules) = rules.as_object_mut() {
            rules.remove("stores");
            // Without tokens, nothing has to verify them. The replay gives the keys that they would have.
            rules.remove("tokens");
            let declared = dimensions.iter().filter(|name| *name != JA4);
            rules.insert("dimensions".into(), declared.cloned().collect());
        }
        Self { rules, notes, dimensions: dimensions.into_iter().collect(), rules_with_host }
    }

    /// The rules.
    ///
    /// # Errors
    /// As [`Rules::parse`], if the data was not that of a valid rules file.
    pub fn rules(&self) -> Result<Rules, Error> {
        Rules::parse("rules.json", &self.rules.to_string())
    }

    /// The dimensions whose keys only an application or the platform knows.
    pub(super) fn dimensions(&self) -> &[String] {
        &self.dimensions
    }

    /// What a replay does in another way than the gate. Without a host in the log, no rule for a host applies.
    #[must_use]
    pub fn notes(&self, log_has_host: bool) -> Vec<Note> {
        let of_host = self.rules_with_host.iter().filter(|_| !log_has_host);
        let of_host = of_host.map(|name| Note::not_applied("rule", name, "it is for a host, and this log has none"));
        self.notes.iter().cloned().chain(of_host).collect()
    }

    /// The numbers that a search may change: those for senders without a tier.
    #[must_use]
    pub fn numbers(&self) -> Vec<Number> {
        let mut found = Vec::new();
        for (name, limit) in self.rules.get("limits").and_then(Value::as_object).into_iter().flatten() {
            let list = limit.get("quotas").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            for (place, quota) in list.iter().enumerate() {
                let number = |field: &str| quota.get(field).and_then(Value::as_u64);
                let Some((value, span)) =
                    number("limit").or(number("capacity")).zip(number("window_ms").or(number("per_ms")))
                else {
                    continue;
                };
                let own_name = quota.get("name").and_then(Value::as_str).map(Into::into);
                let quota_name = own_name.unwrap_or_else(|| name_in_policy(name, place, list.len()));
                let algorithm = algorithm(quota).to_string();
                let most = match algorithm.as_str() {
                    "sliding_log" => SlidingLog::MAX_LIMIT,
                    "fixed_window" => MAX_UNITS,
                    _ => (MAX_UNITS / span.max(1)).max(value),
                };
                found.push(Number { limit: name.clone(), quota: quota_name, algorithm, value, most, place });
            }
        }
        found
    }

    /// The same rules with other numbers.
    #[must_use]
    pub fn with<'a>(&self, numbers: impl IntoIterator<Item = (&'a Number, u64)>) -> Self {
        let mut changed = self.clone();
        for (number, value) in numbers {
            let quota = changed.rules.get_mut("limits").and_then(|limits| limits.get_mut(&number.limit));
            let quota = quota.and_then(|limit| limit.get_mut("quotas")?.get_mut(number.place)?.as_object_mut());
            if let Some(quota) = quota {
                let field = if quota.contains_key("capacity") { "capacity" } else { "limit" };
                quota.insert(field.into(), value.into());
            }
        }
        changed
    }

    /// The same rules with penalties that are over at once. A penalty lengthens denials and causes none.
    #[must_use]
    pub(super) fn without_penalties(&self) -> Self {
        let mut changed = self.clone();
        for (_, limit) in tables(&mut changed.rules, "limits") {
            for quota in lists_of_quotas(limit).into_iter().flatten().filter(|quota| algorithm(quota) == "penalty") {
                for field in ["base_ms", "factor", "cap_ms"] {
                    quota[field] = 1.into();
                }
            }
        }
        changed
    }
}

impl Note {
    fn not_applied(kind: &str, name: &str, reason: &str) -> Self {
        Self { effect: Effect::NotApplied, of: format!("{kind} {name}"), reason: reason.into() }
    }
}

/// Removes `limit_from` of a limit's quotas. Returns whether there was one.
fn remove_limits_from(limit: &mut Map<String, Value>) -> bool {
    let all = lists_of_quotas(limit).into_iter().flatten();
    all.filter_map(|quota| quota.as_object_mut()?.remove("limit_from")).count() > 0
}

/// Keeps the overrides of quotas that are left.
fn keep_overrides(rules: &mut Value) {
    let limits = rules.get_mut("limits").and_then(Value::as_object_mut).map(std::mem::take).unwrap_or_default();
    let names: BTreeMap<String, BTreeSet<String>> = limits
        .iter()
        .map(|(limit, of)| {
            let mut of = of.as_object().cloned().unwrap_or_default();
            let quotas = lists_of_quotas(&mut of).into_iter().flatten();
            let quotas = quotas.filter(|quota| !["penalty", "block"].contains(&algorithm(quota)));
            (limit.clone(), quotas.filter_map(|quota| Some(quota.get("name")?.as_str()?.to_string())).collect())
        })
        .collect();
    if !limits.is_empty() {
        rules["limits"] = limits.into();
    }
    let Some(overrides) = rules.get_mut("overrides").and_then(Value::as_object_mut) else { return };
    for of in overrides.values_mut().filter_map(Value::as_object_mut) {
        of.retain(|limit, numbers| {
            let (Some(known), Some(numbers)) = (names.get(limit), numbers.as_object_mut()) else { return false };
            numbers.retain(|quota, _| known.contains(quota) || quota == "limit" && known.len() == 1);
            !numbers.is_empty()
        });
    }
}

fn tables<'a>(rules: &'a mut Value, name: &str) -> impl Iterator<Item = (String, &'a mut Map<String, Value>)> {
    let tables = rules.get_mut(name).and_then(Value::as_object_mut).into_iter().flatten();
    tables.filter_map(|(name, table)| Some((name.clone(), table.as_object_mut()?)))
}

fn quotas(limit: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    limit.get("quotas").and_then(Value::as_array).into_iter().flatten()
}

fn algorithm(quota: &Value) -> &str {
    quota.get("algorithm").and_then(Value::as_str).unwrap_or_default()
}

fn dimension(quota: &Value) -> String {
    joined(quota.get("by"))
}

/// The name of a dimension, which may be written as a list of the names that are joined in it. Empty for the sender.
fn joined(written: Option<&Value>) -> String {
    let names: Vec<&str> = match written {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        written => written.and_then(Value::as_str).into_iter().collect(),
    };
    if names == [SENDER] { String::new() } else { names.join(&PART_MARK.to_string()) }
}

/// The quotas of a limit, and those of its tiers.
fn lists_of_quotas(limit: &mut Map<String, Value>) -> Vec<&mut Vec<Value>> {
    let mut found = Vec::new();
    for (field, value) in limit {
        match (field.as_str(), value) {
            ("quotas", Value::Array(list)) => found.push(list),
            ("tiers", Value::Object(tiers)) => {
                let quotas = tiers.values_mut().filter_map(|tier| tier.get_mut("quotas")?.as_array_mut());
                found.extend(quotas);
            }
            _ => {}
        }
    }
    found
}

/// The name that a policy gives to a quota without one.
fn name_in_policy(limit: &str, place: usize, count: usize) -> String {
    if count > 1 { format!("{limit}-{}", place + 1) } else { limit.to_string() }
}

/// Gives the quotas of a limit the names that a policy gives them, which depend on the quotas beside them. Returns the
/// dimensions, or parts of them, of which a log has no keys.
fn named_quotas(limit: &str, table: &mut Map<String, Value>) -> BTreeSet<String> {
    let mut dimensions = BTreeSet::new();
    for list in lists_of_quotas(table) {
        let count = list.len();
        for (place, quota) in list.iter_mut().enumerate() {
            if algorithm(quota) == "concurrency" {
                continue;
            }
            for part in dimension(quota).split(PART_MARK) {
                let part = if part == SENDER { "" } else { part };
                if part.is_empty() || !OWN_DIMENSIONS.contains(&part) {
                    dimensions.insert(part.into());
                }
            }
            let name = name_in_policy(limit, place, count);
            // A name may have 32 characters. One that a policy makes may have more, and stays as it is.
            if let (Some(quota), true) = (quota.as_object_mut(), name.len() <= 32) {
                quota.entry("name").or_insert_with(|| name.into());
            }
        }
    }
    dimensions
}

/// Removes the quotas that count requests in flight, and the penalties and the group that were for them only. Returns whether
/// there were any.
fn remove_slots(limit: &mut Map<String, Value>) -> bool {
    let mut found = false;
    for list in lists_of_quotas(limit) {
        let before = list.len();
        list.retain(|quota| algorithm(quota) != "concurrency");
        found |= list.len() < before;
        let counted: BTreeSet<String> =
            list.iter().filter(|quota| algorithm(quota) != "penalty").map(dimension).collect();
        list.retain(|quota| counted.contains(&dimension(quota)));
    }
    if !found {
        return false;
    }
    for tier in limit.get_mut("tiers").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        if tier.get("quotas").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            *tier = json!({ "unlimited": true });
        }
    }
    let group = joined(limit.get("group_by"));
    let lists = lists_of_quotas(limit);
    if !lists.iter().all(|list| list.iter().any(|quota| dimension(quota) == group)) {
        limit.remove("group_by");
    }
    true
}
