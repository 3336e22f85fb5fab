//! Whether Envoy can ask about a rule.

use tidegate_core::gate::{Host, Rule, Rules};
use tidegate_core::internal::{Quoted, Suggestion};
use tidegate_core::{Error, ErrorKind, Quota, Rule as Algorithm};

use crate::request::REMOTE_ADDRESS;

/// Checks that each rule is about descriptors, and that these have the keys that its limits count by.
pub(crate) fn check(rules: &Rules) -> Result<(), Error> {
    for rule in rules.rules() {
        let named = |what: String| Error::new(ErrorKind::Invalid, format!("rule {}: {what}", Quoted(rule.name())));
        check_rule(rule).map_err(named)?;
    }
    Ok(())
}

fn check_rule(rule: &Rule) -> Result<(), String> {
    let pattern = rule.pattern();
    let is_plain = pattern.host == Host::Any && pattern.methods.is_empty() && pattern.headers.is_empty();
    if !is_plain || pattern.score_below.is_some() || rule.challenge().is_some() {
        return Err("Envoy sends a domain and descriptors; write a path and limits, and nothing else to match".into());
    }
    let (segments, is_prefix) = (&pattern.path.segments, pattern.path.is_prefix);
    if !is_prefix && (segments.len() < 3 || segments.len() % 2 == 0) {
        let right = "/DOMAIN/KEY/VALUE, such as /edge/remote_address/{remote_address}, or a star at its end";
        return Err(format!("path: no descriptor has it; write {right}"));
    }
    let keys: Vec<&str> = segments.iter().skip(1).step_by(2).filter_map(Option::as_deref).collect();
    for policy in rule.policies() {
        let is_held = |quota: &Quota| matches!(quota.rule(), Algorithm::LeakyBucket(_) | Algorithm::Concurrency(_));
        if policy.quotas().iter().any(is_held) {
            return Err("Envoy neither waits nor says when a request ends; write token_bucket".into());
        }
        let mut parts = policy.dimensions().iter().flat_map(|dimension| dimension.parts());
        parts.try_for_each(|name| check_dimension(name, &keys))?;
    }
    Ok(())
}

fn check_dimension(name: &str, keys: &[&str]) -> Result<(), String> {
    let known = [&["global"], keys].concat();
    let address = matches!(name, "" | "sender" | "ip");
    let key = if address { REMOTE_ADDRESS } else { name };
    match keys.iter().filter(|known| **known == key).count() {
        _ if name == "global" => Ok(()),
        0 if address => Err(format!(
            "by: sender and ip are the {REMOTE_ADDRESS}, which is no key of the path; {}",
            Suggestion::of("", &known)
        )),
        0 => Err(format!("by: {} is no key of the path; {}", Quoted(name), Suggestion::of(name, &known))),
        1 => Ok(()),
        _ => Err(format!("by: the path has {} twice; give one another descriptor_key in Envoy", Quoted(key))),
    }
}
