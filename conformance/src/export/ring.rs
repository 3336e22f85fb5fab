//! The rules that a platform gets: one for each quota that it can express.

use tidegate_core::gate::Rules;
use tidegate_core::{Policy, Quota, Rule};

use super::bound::largest_count;
use super::file::{Allowed, Limit};
use super::select::{Selection, select};
use super::{Difference, NotExpressed, Numbers, Profile, Source};

/// What a platform counts for one quota.
pub(super) struct Ring<'r> {
    /// The limit, and the quota if there are several.
    pub(super) limit: String,
    /// A name of letters, digits and hyphens, which no other ring has.
    pub(super) id: String,
    /// A sentence about it, of characters that no comment ends with.
    pub(super) about: String,
    pub(super) selections: Vec<Selection<'r>>,
    /// The most requests in a period.
    pub(super) requests: u64,
    pub(super) period_s: u64,
}

/// All rings of a platform, and what has none.
#[derive(Default)]
pub(super) struct Rings<'r> {
    pub(super) rings: Vec<Ring<'r>>,
    pub(super) not_expressed: Vec<NotExpressed>,
    pub(super) differs: Vec<Difference>,
}

/// A quota of a limit, and the rules that have it.
struct Task<'a> {
    label: String,
    quota: &'a Quota,
    has_tiers: bool,
    /// The places of the rules, in the order of the file.
    rules: Vec<usize>,
}

impl<'r> Rings<'r> {
    pub(super) fn plan(source: &'r Source, profile: &Profile, anonymous: bool) -> Self {
        let mut rings = Self::default();
        let allowed = source.allowed();
        let mut left = profile.rules_max;
        for (name, rules) in in_order(source) {
            let Some(limit) = source.file.limits.get(name) else { continue };
            for (label, quota) in labelled(name, limit) {
                let task = Task { label, quota: &quota, has_tiers: !limit.tiers.is_empty(), rules: rules.clone() };
                rings.add(&task, source, profile, &allowed, anonymous, &mut left);
            }
        }
        rings
    }

    fn add(
        &mut self,
        task: &Task<'_>,
        source: &'r Source,
        profile: &Profile,
        allowed: &Allowed,
        anonymous: bool,
        left: &mut usize,
    ) {
        if task.rules.is_empty() {
            return self.refuse(task, None, "no rule has it".into());
        }
        if let Err(reason) = refuse(task, source, profile, allowed, anonymous) {
            return self.refuse_all(task, &task.rules, &source.rules, &reason);
        }
        let Some(period_s) = profile.periods.at_least(task.quota.rule().window().get().div_ceil(1_000)) else {
            let (seconds, longest) = (task.quota.rule().window().get().div_ceil(1_000), profile.periods.longest());
            let reason =
                format!("it looks back {seconds} s, and the longest period of {} is {longest} s", profile.plan());
            return self.refuse_all(task, &task.rules, &source.rules, &reason);
        };
        let rules = source.rules.rules();
        let charges = |place: usize| task.rules.contains(&place) && rules[place].cost() > 0;
        let (mut selections, mut refused) = (Vec::new(), Vec::new());
        for &place in &task.rules {
            let selected = match rules[place].cost() {
                0 => Err("its requests cost nothing, and the platform would count them".to_string()),
                _ => select(rules, place, &charges, profile.can),
            };
            match selected {
                Ok((selection, notes)) => {
                    selections.push(selection);
                    self.differs.extend(
                        notes.into_iter().map(|note| Difference { limit: Some(task.label.clone()), difference: note }),
                    );
                }
                Err(reason) => refused.push((place, reason)),
            }
        }
        for (place, reason) in refused {
            self.refuse(task, Some(rules[place].name().into()), reason);
        }
        if selections.is_empty() {
            return;
        }
        let places: Vec<usize> = selections.iter().map(|selection| selection.place).collect();
        let mut costs: Vec<u64> =
            task.rules.iter().map(|place| rules[*place].cost()).filter(|cost| *cost > 0).collect();
        costs.sort_unstable();
        costs.dedup();
        let ring = ring(task, selections, &costs, period_s, profile, self.rings.len() + 1);
        if let Some(reason) = (profile.refuses)(&ring, &allowed.networks) {
            return self.refuse_all(task, &places, &source.rules, &reason);
        }
        let needed = if profile.is_rule_each { ring.selections.len() } else { 1 };
        if needed > *left {
            let reason = format!("{} has {}, which other limits take", profile.plan(), rules_of(profile.rules_max));
            return self.refuse_all(task, &places, &source.rules, &reason);
        }
        *left -= needed;
        self.differs.extend(
            differences(task, &ring, &costs)
                .into_iter()
                .map(|difference| Difference { limit: Some(task.label.clone()), difference }),
        );
        self.rings.push(ring);
    }

    fn refuse_all(&mut self, task: &Task<'_>, places: &[usize], rules: &Rules, reason: &str) {
        self.differs.retain(|difference| difference.limit.as_ref() != Some(&task.label));
        for place in places {
            self.refuse(task, Some(rules.rules()[*place].name().into()), reason.into());
        }
    }

    fn refuse(&mut self, task: &Task<'_>, rule: Option<String>, reason: String) {
        self.not_expressed.push(NotExpressed { rule, limit: task.label.clone(), reason });
    }
}

/// The limits and the places of their rules, in the order in which the file uses them. Those without a rule come last.
fn in_order(source: &Source) -> Vec<(&str, Vec<usize>)> {
    let mut found: Vec<(&str, Vec<usize>)> = Vec::new();
    for (place, rule) in source.file.rules.iter().enumerate() {
        for name in &rule.limits {
            match found.iter_mut().find(|(known, _)| known == name) {
                Some((_, places)) => places.push(place),
                None => found.push((name, vec![place])),
            }
        }
    }
    for name in source.file.limits.keys() {
        if !found.iter().any(|(known, _)| known == name) {
            found.push((name, Vec::new()));
        }
    }
    found
}

/// The quotas of a limit, each with the name of the limit and, if there are several, its own.
fn labelled(name: &str, limit: &Limit) -> Vec<(String, Quota)> {
    let policy = Policy::new(name, limit.quotas.iter().cloned());
    let quotas = policy.map(|policy| policy.quotas().to_vec()).unwrap_or_default();
    let label = |quota: &Quota| match limit.quotas.len() {
        1 => name.to_string(),
        _ => format!("{name}/{}", quota.name()),
    };
    quotas.into_iter().map(|quota| (label(&quota), quota)).collect()
}

/// Why no platform, or not this one, can express a quota, whatever its rules match.
fn refuse(
    task: &Task<'_>,
    source: &Source,
    profile: &Profile,
    allowed: &Allowed,
    anonymous: bool,
) -> Result<(), String> {
    match (task.quota.dimension(), task.quota.rule()) {
        (_, Rule::Concurrency(_)) => {
            return Err("it limits requests in flight, and the platform counts arrivals".into());
        }
        (_, Rule::Penalty(_)) => {
            return Err("it blocks whom other quotas have denied, which happens in Tidegate".into());
        }
        ("global", _) => {
            return Err(
                "all senders share it; the platform also counts what Tidegate denies, so one sender could use \
                        it up for all"
                    .into(),
            );
        }
        ("ip", _) => {}
        ("", _) if !anonymous => {
            return Err("it counts by sender, whom the application may identify, and the platform knows the address \
                        only; if it identifies nobody, write --anonymous, or by = \"ip\" in the file"
                .into());
        }
        ("", _) if source.identifies_senders() => {
            return Err("it counts by sender, whom an API key or a token of the file may identify, and the platform \
                        knows the address only"
                .into());
        }
        ("", _) => {}
        (dimension, _) => return Err(format!("it counts by {dimension:?}, and the platform knows the address only")),
    }
    if task.has_tiers {
        return Err("it has tiers, and the platform does not know a sender's tier".into());
    }
    if allowed.has_keys {
        return Err("the list of allowed senders has keys, and the platform knows the address only".into());
    }
    if !allowed.networks.is_empty() && !profile.addresses {
        let plan = profile.plan();
        return Err(format!("the list of allowed senders has networks, which the rules of {plan} cannot leave out"));
    }
    Ok(())
}

fn ring<'r>(
    task: &Task<'_>,
    selections: Vec<Selection<'r>>,
    costs: &[u64],
    period_s: u64,
    profile: &Profile,
    number: usize,
) -> Ring<'r> {
    // The least, because the platform may count a request to a rule of which it cannot match the header, for example.
    let cost = costs.first().copied().unwrap_or(1);
    let most = largest_count(task.quota.rule(), period_s, profile.counting);
    let requests = (most / cost).max(1);
    let rules: Vec<&str> = selections.iter().map(|selection| selection.rule).collect();
    let letters = task.label.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
    let id = format!("tidegate-{number}-{}", letters.collect::<String>());
    let numbers = Numbers(task.quota.rule());
    let about = format!("Tidegate {}, for {}: {numbers}", task.label, rules.join(" and "));
    Ring { limit: task.label.clone(), id, about, selections, requests, period_s }
}

fn differences(task: &Task<'_>, ring: &Ring<'_>, costs: &[u64]) -> Vec<String> {
    let mut found = vec![format!(
        "It allows {} requests in {} s for each address in each location, the most that {} admits of such a period.",
        ring.requests,
        ring.period_s,
        Numbers(task.quota.rule())
    )];
    if costs != [1] {
        let least = costs.first().copied().unwrap_or(1);
        found.push(format!("Its requests cost {}; the platform counts each as {least}.", listed(costs)));
    }
    if matches!(task.quota.rule(), Rule::LeakyBucket(_)) {
        found.push("It delays requests; the platform only denies those beyond the bucket.".into());
    }
    found
}

fn listed(numbers: &[u64]) -> String {
    let texts: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    texts.join(" or ")
}

fn rules_of(count: usize) -> String {
    if count == 1 { "1 rule".into() } else { format!("{count} rules") }
}
