//! The rules that a platform gets: one for each quota that it can express.

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
struct Task {
    label: String,
    quota: Quota,
    has_tiers: bool,
    varies: bool,
    /// Whether a balance pays what is beyond it.
    is_covered: bool,
    /// The places of the rules, in the order of the file.
    rules: Vec<usize>,
}

/// What all tasks share.
struct Planner<'r, 'p> {
    source: &'r Source,
    profile: &'p Profile,
    allowed: Allowed,
    anonymous: bool,
}

impl<'r> Rings<'r> {
    pub(super) fn plan(source: &'r Source, profile: &Profile, anonymous: bool) -> Self {
        let mut rings = Self::default();
        let planner = Planner { source, profile, allowed: source.allowed(), anonymous };
        let mut left = profile.rules_max;
        for (name, rules) in in_order(source) {
            let Some(limit) = source.file.limits.get(name) else { continue };
            let quotas = labelled(name, limit);
            let covers = |quota: &Quota| matches!(quota.rule(), Rule::Balance(rule) if rule.covers());
            for (place, (label, quota)) in quotas.iter().cloned().enumerate() {
                let task = Task {
                    label,
                    quota,
                    has_tiers: !limit.tiers.is_empty(),
                    varies: limit.varies,
                    is_covered: quotas.get(place + 1).is_some_and(|(_, next)| covers(next)),
                    rules: rules.clone(),
                };
                rings.add(&task, &planner, &mut left);
            }
        }
        rings
    }

    /// Plans a ring, or lists why there is none. `left` is the number of rules that the platform still takes.
    fn add(&mut self, task: &Task, planner: &Planner<'r, '_>, left: &mut usize) {
        if task.rules.is_empty() {
            let reason = "no rule has it".into();
            return self.not_expressed.push(NotExpressed { rule: None, limit: task.label.clone(), reason });
        }
        let period_s = match planner.period_s(task) {
            Ok(period_s) => period_s,
            Err(reason) => return self.refuse(task, task.rules.iter().map(|place| (*place, reason.clone())), planner),
        };
        let (selections, refused, notes) = planner.selections(task);
        self.refuse(task, refused, planner);
        if selections.is_empty() {
            return;
        }
        let costs = planner.costs(task);
        let ring = planner.ring(task, selections, &costs, period_s, self.rings.len() + 1);
        let needed = if planner.profile.is_rule_each { ring.selections.len() } else { 1 };
        let reason = (planner.profile.refuses)(&ring, &planner.allowed.networks).or_else(|| {
            let (plan, most) = (planner.profile.plan(), counted(planner.profile.rules_max));
            let reason = format!("it takes {}, and of the {most} of {plan}, {left} remain", counted(needed));
            Some(reason).filter(|_| needed > *left)
        });
        if let Some(reason) = reason {
            let places = ring.selections.iter().map(|selection| (selection.place, reason.clone()));
            return self.refuse(task, places, planner);
        }
        *left -= needed;
        let differences = notes.into_iter().chain(differences(task, &ring, &costs));
        let of_limit = |difference| Difference { limit: Some(task.label.clone()), difference };
        self.differs.extend(differences.map(of_limit));
        self.rings.push(ring);
    }

    /// Lists why the platform does not have the limit of rules.
    fn refuse(&mut self, task: &Task, places: impl IntoIterator<Item = (usize, String)>, planner: &Planner<'_, '_>) {
        let rules = planner.source.rules.rules();
        let listed = |(place, reason): (usize, String)| NotExpressed {
            rule: Some(rules[place].name().into()),
            limit: task.label.clone(),
            reason,
        };
        self.not_expressed.extend(places.into_iter().map(listed));
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

impl<'r> Planner<'r, '_> {
    /// The platform's period for a quota, or why it cannot express the quota, whatever the rules match.
    fn period_s(&self, task: &Task) -> Result<u64, String> {
        self.refuse(task)?;
        let profile = self.profile;
        let seconds = task.quota.rule().window().get().div_ceil(1_000);
        profile.periods.at_least(seconds).ok_or_else(|| {
            let (plan, longest) = (profile.plan(), profile.periods.longest());
            format!("it looks back {seconds} s, and the longest period of {plan} is {longest} s")
        })
    }

    fn refuse(&self, task: &Task) -> Result<(), String> {
        let reason = match (task.quota.dimension(), task.quota.rule()) {
            (_, Rule::Concurrency(_)) => "it limits requests in flight, and the platform counts arrivals",
            (_, Rule::CalendarWindow(_)) => "its windows follow a calendar, and the platform's periods have one length",
            (_, Rule::Penalty(rule)) if !rule.punishes() => "it blocks by hand, which happens in Tidegate",
            (_, Rule::Penalty(_)) => "it blocks whom other quotas have denied, which happens in Tidegate",
            (_, Rule::Balance(_)) => "it spends what was granted, which the platform does not know",
            (_, _) if task.is_covered => "a balance pays what is beyond it, and the platform would deny that",
            ("global", _) => {
                "all senders share it; the platform also counts what Tidegate denies, so one sender could use it up for all"
            }
            ("", _) if !self.anonymous => {
                "it counts by sender, whom the application may identify, and the platform knows the address only; if it \
                 identifies nobody, write --anonymous, or by = \"ip\" in the file"
            }
            ("", _) if self.source.identifies_senders() => {
                "it counts by sender, whom an API key or a token of the file may identify, and the platform knows the \
                 address only"
            }
            ("" | "ip", _) if task.has_tiers => "it has tiers, and the platform does not know a sender's tier",
            ("" | "ip", _) if task.varies => {
                "some senders have another number, from limit_from or overrides, and the platform has one for all"
            }
            ("" | "ip", _) if self.allowed.has_keys => {
                "the list of allowed senders has keys, and the platform knows the address only"
            }
            ("" | "ip", _) if !self.allowed.networks.is_empty() && !self.profile.addresses => {
                let plan = self.profile.plan();
                return Err(format!(
                    "the list of allowed senders has networks, which the rules of {plan} cannot leave out"
                ));
            }
            ("" | "ip", _) => return Ok(()),
            (dimension, _) => {
                return Err(format!("it counts by {dimension:?}, and the platform knows the address only"));
            }
        };
        Err(reason.into())
    }

    /// What the platform can count for each rule, why it cannot for some, and what it leaves out.
    fn selections(&self, task: &Task) -> (Vec<Selection<'r>>, Vec<(usize, String)>, Vec<String>) {
        let rules = self.source.rules.rules();
        let mut charges = vec![false; rules.len()];
        for &place in &task.rules {
            charges[place] = rules[place].cost() > 0;
        }
        let (mut selections, mut refused, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        for &place in &task.rules {
            let selected = match charges[place] {
                true => select(rules, place, &|place| charges[place], self.profile.can),
                false => Err("its requests cost nothing, and the platform would count them".into()),
            };
            match selected {
                Ok((selection, left_out)) => {
                    selections.push(selection);
                    notes.extend(left_out);
                }
                Err(reason) => refused.push((place, reason)),
            }
        }
        (selections, refused, notes)
    }

    /// The different costs of requests, sorted. The platform may count a request to a rule that it cannot match, such as one for a
    /// bot score, so these are the costs of all rules.
    fn costs(&self, task: &Task) -> Vec<u64> {
        let rules = self.source.rules.rules();
        let mut costs: Vec<u64> =
            task.rules.iter().map(|place| rules[*place].cost()).filter(|cost| *cost > 0).collect();
        costs.sort_unstable();
        costs.dedup();
        costs
    }

    fn ring(
        &self,
        task: &Task,
        selections: Vec<Selection<'r>>,
        costs: &[u64],
        period_s: u64,
        number: usize,
    ) -> Ring<'r> {
        let cost = costs.first().copied().unwrap_or(1);
        let most = largest_count(task.quota.rule(), period_s, self.profile.counting);
        let requests = (most / cost).max(1);
        let rules: Vec<&str> = selections.iter().map(|selection| selection.rule).collect();
        let letters = task.label.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
        let id = format!("tidegate-{number}-{}", letters.collect::<String>());
        let numbers = Numbers(task.quota.rule());
        let about = format!("Tidegate {}, for {}: {numbers}", task.label, rules.join(" and "));
        Ring { limit: task.label.clone(), id, about, selections, requests, period_s }
    }
}

fn differences(task: &Task, ring: &Ring<'_>, costs: &[u64]) -> Vec<String> {
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

fn counted(count: usize) -> String {
    if count == 1 { "1 rule".into() } else { format!("{count} rules") }
}
