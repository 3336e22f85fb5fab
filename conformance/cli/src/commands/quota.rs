//! Quotas in words and in code.

use tidegate_core::{Policy, Rule};

/// The quotas of a policy, in words.
pub(super) fn in_words(policy: &Policy) -> String {
    let words = policy.quotas().iter().map(|quota| match quota.rule() {
        rule if let Some((capacity, refill, per_ms)) = bucket(rule) => {
            format!("{} of {capacity}, {refill} in {per_ms} ms", rule.name())
        }
        rule => format!("{} of {} in {} ms", rule.name(), rule.limit(), rule.window().get()),
    });
    words.collect::<Vec<_>>().join(" and ")
}

/// The quotas of a policy, separated by commas.
pub(super) struct Quotas {
    pub(super) rust: String,
    pub(super) javascript: String,
    pub(super) toml: String,
}

/// The quotas of a policy as code, and as in a rules file.
pub(super) fn as_code(policy: &Policy) -> Quotas {
    let code = policy.quotas().iter().map(|quota| {
        let rule = quota.rule();
        let (name, camel) = (rule.name(), camel(rule.name()));
        match bucket(rule) {
            Some((capacity, refill, per_ms)) => (
                format!("Quota::{name}({capacity}, {refill}, Millis::new({per_ms}))?"),
                format!("{{ {camel}: {{ capacity: {capacity}, refill: {refill}, perMs: {per_ms} }} }}"),
                format!("{{ algorithm = \"{name}\", capacity = {capacity}, refill = {refill}, per_ms = {per_ms} }}"),
            ),
            None => {
                let (limit, window_ms) = (rule.limit(), rule.window().get());
                (
                    format!("Quota::{name}({limit}, Millis::new({window_ms}))?"),
                    format!("{{ {camel}: {{ limit: {limit}, windowMs: {window_ms} }} }}"),
                    format!("{{ algorithm = \"{name}\", limit = {limit}, window_ms = {window_ms} }}"),
                )
            }
        }
    });
    let (rust, javascript, toml): (Vec<_>, Vec<_>, Vec<_>) = code.collect();
    Quotas { rust: rust.join(", "), javascript: javascript.join(", "), toml: toml.join(", ") }
}

/// The capacity, the refill and its milliseconds, if the rule is a bucket.
const fn bucket(rule: &Rule) -> Option<(u64, u64, u64)> {
    let bucket = match rule {
        Rule::TokenBucket(bucket) => bucket,
        Rule::LeakyBucket(queue) => queue.bucket(),
        _ => return None,
    };
    Some((bucket.capacity(), bucket.refill(), bucket.per().get()))
}

/// `fixed_window` as `fixedWindow`.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(word.len().min(1));
        name + &initial.to_uppercase() + rest
    })
}

#[cfg(test)]
mod tests {
    use tidegate_core::gate::Rules;
    use tidegate_core::{Millis, Policy, Quota};

    use super::{Quotas, as_code, in_words};

    #[test]
    fn a_policy_of_two_quotas_is_written_as_words_as_code_and_as_in_a_rules_file() {
        let quotas = [
            Quota::sliding_window(9, Millis::new(60_000)).expect("a quota"),
            Quota::token_bucket(5, 2, Millis::new(1_000)).expect("a quota"),
        ];
        let policy = Policy::new("api", quotas).expect("a policy");
        assert_eq!(in_words(&policy), "sliding_window of 9 in 60000 ms and token_bucket of 5, 2 in 1000 ms");
        let Quotas { rust, javascript, toml } = as_code(&policy);
        assert_eq!(
            rust,
            "Quota::sliding_window(9, Millis::new(60000))?, Quota::token_bucket(5, 2, Millis::new(1000))?"
        );
        assert_eq!(
            javascript,
            "{ slidingWindow: { limit: 9, windowMs: 60000 } }, { tokenBucket: { capacity: 5, refill: 2, perMs: 1000 } }"
        );
        let file = format!("[limits.api]\nquotas = [{toml}]\n[[rules]]\nlimits = [\"api\"]");
        let rules = Rules::parse("rules.toml", &file).expect("rules");
        assert_eq!(rules.rules()[0].policies().collect::<Vec<_>>(), [&policy]);
    }
}
