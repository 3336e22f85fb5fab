//! Compiles a rules file: resolves names, joins limits, and reports mistakes with their positions.

use std::collections::{BTreeMap, HashMap};
use std::format_args as args;
use std::sync::Arc;

use super::{Rule, Rules};
use crate::algorithm::MAX_UNITS;
use crate::gate::file::{self, ApiKeys, File, Source, Step};
use crate::gate::lists::List;
use crate::gate::matcher::{Matcher, Pattern};
use crate::quota::checked_name;
use crate::{Error, Policy, Quota};

pub(super) fn compile(source: Source<'_>) -> Result<Rules, Error> {
    let File { api_keys, lists, limits, rules, .. } = source.read()?;
    let tiers = limits.values().flat_map(|limit| limit.tiers.keys());
    let mut tiers: Vec<Box<str>> = tiers.map(|tier| tier.as_str().into()).collect();
    tiers.sort_unstable();
    tiers.dedup();
    let mut compiler = Compiler {
        source,
        limits: Limits::new(source, &limits, &tiers)?,
        joined: HashMap::new(),
        matcher: Matcher::default(),
        rules: Vec::new(),
        warnings: Vec::new(),
    };
    for (place, rule) in rules.into_iter().enumerate() {
        compiler.add(place, rule, tiers.len())?;
    }
    compiler.warn_of_unused_limits();
    Ok(Rules {
        api_keys: compiler.api_keys(&api_keys, &tiers)?,
        api_key_header: api_keys.header.map(|file::Name(name)| name),
        matcher: compiler.matcher,
        rules: compiler.rules,
        tiers,
        allowed: List::new(source, "allow", &lists.allow)?,
        denied: List::new(source, "deny", &lists.deny)?,
        warnings: compiler.warnings,
    })
}

struct Compiler<'a> {
    source: Source<'a>,
    limits: Limits<'a>,
    /// The policy of each combination of limits and a tier.
    joined: HashMap<(Vec<usize>, usize), Option<Arc<Policy>>>,
    matcher: Matcher,
    rules: Vec<Rule>,
    warnings: Vec<String>,
}

impl Compiler<'_> {
    fn add(&mut self, place: usize, rule: file::Rule, tiers: usize) -> Result<(), Error> {
        let here = [Step::Key("rules"), Step::Place(place)];
        let name = match rule.name {
            Some(name) => {
                let at = [here[0], here[1], Step::Key("name")];
                checked_name("name", &name).map_err(|error| self.source.invalid(&at, args!("{error}")))?;
                if let Some(first) = self.rules.iter().position(|known| *known.name == *name) {
                    return Err(self
                        .source
                        .invalid(&at, args!("{name:?} is the name of rules[{first}] too; write another")));
                }
                name
            }
            None => format!("rules[{place}]"),
        };
        let cost = rule.cost.unwrap_or(1);
        if cost > MAX_UNITS {
            let at = [here[0], here[1], Step::Key("cost")];
            let message = args!("cost: {cost} is out of range; write a whole number from 0 to {MAX_UNITS}");
            return Err(self.source.invalid(&at, message));
        }
        let mut limits = Vec::with_capacity(rule.limits.len());
        for (index, limit) in rule.limits.iter().enumerate() {
            let at = [here[0], here[1], Step::Key("limits"), Step::Place(index)];
            limits.push(self.limits.find(limit).map_err(|known| self.source.invalid(&at, args!("{known}")))?);
        }
        let at = [here[0], here[1], Step::Key("limits")];
        let policies: Result<Box<[_]>, _> = (0..=tiers).map(|tier| self.policy(&limits, tier)).collect();
        let policies = policies.map_err(|error| self.source.invalid(&at, args!("{error}")))?;
        let pattern = Pattern {
            host: rule.host,
            path: rule.path,
            methods: rule.methods.into_iter().map(|file::Method(method)| method).collect(),
            headers: rule.headers.into_iter().map(|file::Name(name)| name).collect(),
        };
        self.warn_of_overlaps(place, &name, &pattern);
        self.matcher.add(&pattern, place);
        let store = rule.store.map(Into::into);
        self.rules.push(Rule { name: name.into(), pattern, cost, store, on_failure: rule.on_failure, policies });
        Ok(())
    }

    /// The policy of several limits for a tier, of which 0 is none.
    fn policy(&mut self, limits: &[usize], tier: usize) -> Result<Option<Arc<Policy>>, Error> {
        if let Some(known) = self.joined.get(&(limits.to_vec(), tier)) {
            return Ok(known.clone());
        }
        let limited: Vec<&Policy> =
            limits.iter().filter_map(|limit| self.limits.policies[*limit][tier].as_ref()).collect();
        let policy = if limited.is_empty() { None } else { Some(Arc::new(Policy::join(limited)?)) };
        self.joined.insert((limits.to_vec(), tier), policy.clone());
        Ok(policy)
    }

    /// Warns of rules for the same hosts and paths, of which one hides the other or only their order decides.
    fn warn_of_overlaps(&mut self, place: usize, name: &str, pattern: &Pattern) {
        let same = |known: &&Rule| known.pattern.host == pattern.host && known.pattern.path == pattern.path;
        for Rule { name: first, pattern: known, .. } in self.rules.iter().filter(same) {
            let warning = if known.covers(pattern) && known.precedes(pattern) {
                format!("no request reaches {name}, because {first} matches all of them first; delete it or move it up")
            } else if known.is_unordered_with(pattern) {
                format!(
                    "{first} and {name} match some of the same requests, and {first} applies because it comes first"
                )
            } else {
                continue;
            };
            let at = [Step::Key("rules"), Step::Place(place)];
            self.warnings.push(self.source.at(&at, args!("{warning}")));
        }
    }

    fn warn_of_unused_limits(&mut self) {
        for (place, name) in self.limits.names.iter().enumerate() {
            if !self.joined.keys().any(|(limits, _)| limits.contains(&place)) {
                let at = [Step::Key("limits"), Step::Key(name)];
                self.warnings
                    .push(self.source.at(&at, args!("no rule has the limit {name:?}; add it to one or delete it")));
            }
        }
    }

    /// The place of each valid API key's tier.
    fn api_keys(&mut self, keys: &ApiKeys, tiers: &[Box<str>]) -> Result<BTreeMap<Box<str>, Option<usize>>, Error> {
        let mut found = BTreeMap::new();
        for (hash, tier) in &keys.tiers {
            let at = [Step::Key("api_keys"), Step::Key("tiers"), Step::Key(hash)];
            if hash.len() != 32 || !hash.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
                // It may be the secret itself.
                let message = args!(
                    "this is not the hash of an API key; write 32 hexadecimal digits in lower case, the first half of its SHA-256"
                );
                return Err(self.source.invalid(&at, message));
            }
            let place = tiers.iter().position(|known| **known == **tier);
            if place.is_none() {
                self.warnings.push(
                    self.source.at(&at, args!("no limit has the tier {tier:?}, so this key has the usual limits")),
                );
            }
            found.insert(format!("key:{hash}").into(), place);
        }
        if keys.header.is_none() && !found.is_empty() {
            return Err(self
                .source
                .invalid(&[Step::Key("api_keys")], args!("no header; write header = \"x-api-key\"")));
        }
        Ok(found)
    }
}

/// The limits of a file, by name.
struct Limits<'a> {
    names: Vec<&'a str>,
    /// The policy without a tier, then those of all tiers. `None` if a tier is unlimited.
    policies: Vec<Vec<Option<Policy>>>,
}

impl<'a> Limits<'a> {
    fn new(source: Source<'_>, limits: &'a BTreeMap<String, file::Limit>, tiers: &[Box<str>]) -> Result<Self, Error> {
        let (mut names, mut policies) = (Vec::new(), Vec::new());
        for (name, limit) in limits {
            let here = [Step::Key("limits"), Step::Key(name)];
            let policy = |quotas: &[Quota]| -> Result<Policy, Error> {
                let policy = Policy::new(name, quotas.iter().cloned())?.charge_denied(limit.charge_denied);
                match &limit.group_by {
                    Some(dimension) => policy.group_by(dimension),
                    None => Ok(policy),
                }
            };
            let usual = policy(&limit.quotas).map_err(|error| source.invalid(&here, args!("{error}")))?;
            let mut all = vec![Some(usual.clone())];
            for tier in tiers {
                let at = [here[0], here[1], Step::Key("tiers"), Step::Key(tier)];
                all.push(match limit.tiers.get(&**tier) {
                    None => Some(usual.clone()),
                    Some(file::Tier { quotas: None, unlimited: true }) => None,
                    Some(file::Tier { quotas: Some(quotas), unlimited: false }) => {
                        Some(policy(quotas).map_err(|error| source.invalid(&at, args!("{error}")))?)
                    }
                    Some(_) => {
                        return Err(source.invalid(&at, args!("write either quotas or unlimited = true")));
                    }
                });
            }
            names.push(name.as_str());
            policies.push(all);
        }
        Ok(Self { names, policies })
    }

    fn find(&self, name: &str) -> Result<usize, String> {
        self.names.binary_search(&name).map_err(|_| match &self.names[..] {
            [] => format!("{name:?} is not a limit; the file has none"),
            names => format!("{name:?} is not a limit; write one of {names:?}"),
        })
    }
}
