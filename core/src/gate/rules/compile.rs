//! Compiles a rules file: resolves names, joins limits, and reports mistakes with their positions.

use std::format_args as args;
use std::sync::Arc;

use super::api_key::api_key;
use super::limit_numbers::{LimitFrom, Overrides};
use super::prices::prices;
use super::{Rule, Rules, ValidKey};
use crate::algorithm::MAX_UNITS;
use crate::document::{FileText, Item};
use crate::gate::dimension_names::{DIMENSIONS, SENDER};
use crate::gate::file::{File, OnFailure, field_name, lease, on_failure, pattern};
use crate::gate::lists::List;
use crate::gate::matcher::{Matcher, Pattern};
use crate::gate::path::in_lower_case;
use crate::gate::responses::Responses;
use crate::gate::stores::{StoreRules, compose};
use crate::gate::token::{TokenRules, Tokens};
use crate::lending::{self, Lease};
use crate::policy::CurrentPolicies;
use crate::policy::fields::policy;
use crate::quota::{PART_MARK, checked_length, checked_name};
use crate::quoted_text::Quoted;
use crate::sorted_map::SortedMap;
use crate::suggestion::Suggestion;
use crate::{BodyFormat, Dimension, Error, ExtraFields, Millis, Policy};

/// The longest time that is added to `Retry-After`.
const SPREAD_MAX: Millis = Millis::from_secs(3_600);

/// The longest time in which a charge can be settled.
const SETTLE_WITHIN_MAX: Millis = Millis::from_secs(7 * 86_400);

const RULE_FIELDS: &[&str] = &[
    "name",
    "host",
    "path",
    "methods",
    "headers",
    "bot_score_below",
    "limits",
    "cost",
    "estimate",
    "store",
    "on_failure",
    "settle_within_ms",
    "invalid_token",
    "challenge",
];

pub(super) fn compile(file: FileText<'_>) -> Result<Rules, Error> {
    let file = File::read(file)?;
    let root = file.root();
    root.only(&[
        "$schema",
        "case_insensitive",
        "exempt_preflights",
        "dimensions",
        "api_keys",
        "tokens",
        "responses",
        "lists",
        "stores",
        "limits",
        "overrides",
        "prices",
        "rules",
    ])?;
    let (ignores_case, exempts_preflights) = (root.has("case_insensitive")?, root.has("exempt_preflights")?);
    let mut tokens = None;
    if let Some(item) = root.field("tokens") {
        tokens = Some(Tokens { expected: TokenRules::new(&item)?, verifier: None });
    }
    let dimensions = match root.field("dimensions") {
        Some(item) => dimensions(&item)?,
        None => Vec::new(),
    };
    let (tiers, limits) = match root.field("limits") {
        Some(item) => {
            let tiers = tiers(&item)?;
            let claimed = tokens.iter().flat_map(Tokens::dimensions);
            let known = DIMENSIONS.into_iter().chain(claimed).chain(dimensions.iter().map(|name| &**name)).collect();
            let limits = limits(&item, &tiers, &known, tokens.is_some())?;
            (tiers, limits)
        }
        None => Default::default(),
    };
    let mut compiler = Compiler::new(ignores_case, limits, tiers);
    if let Some(rules) = root.field("rules") {
        rules.each(&mut |rule| compiler.add(rule))?;
    }
    let mut stores = Vec::new();
    if let Some(table) = root.field("stores") {
        table.entries(&mut |name, item| {
            let limit = |item: &Item<'_>, name: &str| {
                let policy = compiler.limits[compiler.named(item, name)?].policies[0].as_ref();
                policy.ok_or_else(|| item.wrong(name, args!("is unlimited")))
            };
            let rules = StoreRules::new(name, item, &limit)?;
            let mut around = compiler.limits.iter().filter(|limit| rules.limits().any(|used| *used == *limit.name));
            if let Some(Limit { name, lease, .. }) =
                around.find(|limit| limit.lease.is_some() || !limit.from.is_empty())
            {
                let (what, field) =
                    if lease.is_some() { ("is never lent", "lease") } else { ("has one number for all", "limit_from") };
                return Err(item
                    .invalid(args!("what is asked first or tried {what}; delete {field} from the limit \"{name}\"")));
            }
            stores.push(rules);
            Ok(())
        })?;
        for rules in &stores {
            if let Some(name) = rules.limits().find(|used| compiler.warns(used)) {
                return Err(table.required(&rules.name)?.invalid(args!(
                    "what is asked first or tried warns of nothing; delete warn_at from the limit \"{name}\""
                )));
            }
        }
    }
    if let Some(limits) = root.field("limits") {
        compiler.warn_of_unused_limits(&limits, &stores)?;
    }
    if let Some(declared) = root.field("dimensions") {
        compiler.warn_of_unused_dimensions(&declared)?;
    }
    let (api_key_header, api_keys) = match root.field("api_keys") {
        Some(item) => compiler.api_keys(&item)?,
        None => Default::default(),
    };
    let mut responses = Responses::default();
    if let Some(item) = root.field("responses") {
        responses = self::responses(&item)?;
        compiler.warn_of_missing_balance(&item, &responses)?;
    }
    let (mut allowed, mut denied) = Default::default();
    if let Some(lists) = root.field("lists") {
        lists.only(&["allow", "deny"])?;
        for (name, list) in [("allow", &mut allowed), ("deny", &mut denied)] {
            if let Some(item) = lists.field(name) {
                *list = List::new(&item)?;
            }
        }
    }
    let Compiler { tiers, rules, warnings, mut limits, .. } = compiler;
    let leases = limits.iter().filter_map(|limit| Some((limit.name.clone(), limit.lease?))).collect();
    let limits_from: Vec<_> = limits.iter_mut().flat_map(|limit| std::mem::take(&mut limit.from)).collect();
    if let Some(tokens) = &mut tokens {
        tokens.expected.claim_limits(limits_from.iter().filter_map(LimitFrom::claim));
    }
    let limits = limits.into_iter().map(|limit| limit.policies).collect();
    let rules = Rules {
        matcher: Matcher::new(rules.iter().map(|rule| &rule.pattern)),
        ignores_case,
        exempts_preflights,
        rules,
        limits,
        leases,
        dimensions,
        tiers,
        api_key_header,
        api_keys,
        tokens,
        stores,
        compose: Some(compose),
        fold_case: Some(in_lower_case),
        first_store: None,
        responses,
        allowed,
        denied,
        warnings,
        limits_from,
        overrides: Overrides::default(),
        fixed: Vec::new(),
        current: CurrentPolicies::default(),
        prices: Vec::new(),
    };
    let rules = match root.field("overrides") {
        Some(item) => Rules { overrides: Overrides::new(rules.overrides_of(&item)?), ..rules },
        None => rules,
    };
    let rules = match root.field("prices") {
        Some(item) => Rules { prices: prices(&item)?, ..rules },
        None => rules,
    };
    // A file that is empty, or written only in part, would let everybody pass.
    root.required("rules").map(|_| rules)
}

/// The dimensions that the file declares as given by the application.
fn dimensions(list: &Item<'_>) -> Result<Vec<Box<str>>, Error> {
    let mut found: Vec<Box<str>> = Vec::new();
    list.each(&mut |item| {
        let name = checked_name("dimension", item.text()?).map_err(|error| item.at(&error))?;
        if DIMENSIONS.contains(&&*name) {
            return Err(item.invalid(args!("the gate itself finds the key of \"{name}\"; delete it here")));
        }
        if found.contains(&name) {
            return Err(item.wrong(&name, args!("is written twice; write it once")));
        }
        found.push(name);
        Ok(())
    })?;
    Ok(found)
}

/// The dimension that a quota counts by, or a limit is grouped by: one, or the parts of a key that is made of several. `None` for the
/// sender. `known` are all that there are.
fn dimension(item: &Item<'_>, known: &Vec<&str>) -> Result<Option<Box<str>>, Error> {
    let mut parts: Vec<&str> = Vec::new();
    item.one_or_each(&mut |item| {
        let name = part(item, known)?;
        if parts.contains(&name) {
            return Err(item.wrong(name, args!("is written twice; write it once")));
        }
        parts.push(name);
        Ok(())
    })?;
    match parts[..] {
        [] => Err(item.invalid(args!("an empty list; write one such as [\"ip\", \"ja4\"]"))),
        [SENDER] => Ok(None),
        _ => {
            // What joins the names is no part of one, so they are read as they are written here.
            let joined = parts.join(PART_MARK.encode_utf8(&mut [0; 4]));
            checked_length(&joined).map(|()| Some(joined.into())).map_err(|error| item.at(&error))
        }
    }
}

/// One dimension by its name.
fn part<'a>(item: &Item<'a>, known: &Vec<&str>) -> Result<&'a str, Error> {
    let name = item.text()?;
    if known.contains(&name) {
        return Ok(name);
    }
    Err(item.wrong(
        name,
        args!(
            "is not a dimension; {}, or declare it as one that the application gives: dimensions = [{}]",
            Suggestion::of(name, known),
            Quoted(name)
        ),
    ))
}

/// A limit: the policy without a tier, then those of all tiers. `None` if a tier is unlimited.
struct Limit {
    name: Box<str>,
    policies: Vec<Option<Policy>>,
    lease: Option<Lease>,
    /// What gives its quotas their limits.
    from: Vec<LimitFrom>,
}

struct Compiler {
    ignores_case: bool,
    limits: Vec<Limit>,
    /// The place of each limit by its name.
    places: SortedMap<usize>,
    /// Whether a rule has the limit, for each.
    used: Vec<bool>,
    tiers: Vec<Box<str>>,
    /// The policy of each combination of limits and a tier, by the numbers of both.
    joined: SortedMap<Option<Arc<Policy>>>,
    rules: Vec<Rule>,
    /// The place of each rule by its name.
    names: SortedMap<usize>,
    /// The next number of a name that several rules have.
    numbers: SortedMap<usize>,
    /// The places of the rules for the same hosts and paths.
    alike: SortedMap<Vec<usize>>,
    warnings: Vec<String>,
}

/// Inserts a text into a sorted list, unless it is in it.
fn insert(sorted: &mut Vec<Box<str>>, text: &str) {
    if let Err(place) = sorted.binary_search_by(|known| (**known).cmp(text)) {
        sorted.insert(place, text.into());
    }
}

/// The names of all tiers, sorted.
fn tiers(limits: &Item<'_>) -> Result<Vec<Box<str>>, Error> {
    let mut tiers = Vec::new();
    limits.entries(&mut |_, limit| match limit.field("tiers") {
        Some(item) => item.entries(&mut |tier, _| {
            insert(&mut tiers, tier);
            Ok(())
        }),
        None => Ok(()),
    })?;
    Ok(tiers)
}

fn limits(limits: &Item<'_>, tiers: &[Box<str>], known: &Vec<&str>, has_tokens: bool) -> Result<Vec<Limit>, Error> {
    let mut found = Vec::new();
    limits.entries(&mut |name, limit| {
        limit.only(&["quotas", "charge_denied", "group_by", "lease", "tiers"])?;
        let policy = |quotas: &Item<'_>| policy(name, limit, quotas, &|item| dimension(item, known), &["limit_from"]);
        let usual = policy(limit)?;
        let mut from = limits_from(limit, &usual, 0, has_tokens)?;
        let mut policies = vec![Some(usual.clone())];
        for (place, tier) in tiers.iter().enumerate() {
            let own = limit.field("tiers");
            policies.push(match own.as_ref().and_then(|own| own.field(tier)) {
                None => {
                    from.extend(limits_from(limit, &usual, place + 1, has_tokens)?);
                    Some(usual.clone())
                }
                Some(item) => {
                    item.only(&["quotas", "unlimited"])?;
                    let unlimited = item.has("unlimited")?;
                    match (item.field("quotas").is_some(), unlimited) {
                        (false, true) => None,
                        (true, false) => {
                            let policy = policy(&item)?;
                            from.extend(limits_from(&item, &policy, place + 1, has_tokens)?);
                            Some(policy)
                        }
                        _ => return Err(item.invalid(args!("write either quotas or unlimited = true"))),
                    }
                }
            });
        }
        let lease = match limit.field("lease") {
            Some(item) => leased(&item, policies.iter().flatten(), &from)?,
            None => None,
        };
        found.push(Limit { name: name.into(), policies, lease, from });
        Ok(())
    })?;
    Ok(found)
}

/// What gives the quotas of a policy their limits, in the table that has them.
fn limits_from(table: &Item<'_>, policy: &Policy, tier: usize, has_tokens: bool) -> Result<Vec<LimitFrom>, Error> {
    let (mut found, mut place) = (Vec::new(), 0_usize);
    table.required("quotas")?.each(&mut |item| {
        place += 1;
        let Some(from) = item.field("limit_from") else { return Ok(()) };
        let unnamed =
            || if policy.quotas().len() == 1 { policy.name().into() } else { format!("{}-{place}", policy.name()) };
        let name = item.field("name").map_or_else(|| Ok(unnamed()), |name| name.text().map(Into::into))?;
        for quota in policy.quotas().iter().filter(|quota| quota.name() == name) {
            found.push(LimitFrom::new(&from, policy.name(), tier, quota, has_tokens)?);
        }
        Ok(())
    })?;
    Ok(found)
}

/// The lease of a limit. `policies` are those of all tiers, and `from` what gives their quotas other limits.
fn leased<'a>(
    item: &Item<'_>,
    policies: impl Iterator<Item = &'a Policy> + Clone,
    from: &[LimitFrom],
) -> Result<Option<Lease>, Error> {
    if !matches!(item.flag(), Ok(false)) && policies.clone().any(Policy::warns) {
        return Err(item.invalid(args!("a decision from a loan tells no counts; delete lease, or delete warn_at")));
    }
    let lease = lease(item)?;
    let refused = lease.and_then(|_| policies.clone().find_map(|policy| lending::supports(policy).err()));
    if let Some(error) = refused {
        return Err(item.invalid(args!("{error}, or delete lease")));
    }
    let limits =
        policies.flat_map(Policy::quotas).map(|quota| quota.rule().limit()).chain(from.iter().map(LimitFrom::min));
    match (lease.map(|lease| lease.grace), limits.min()) {
        (Some(grace), Some(least)) if grace > least => {
            Err(item.invalid(args!("a grace of {grace} is more than the limit of {least}; write at most {least}")))
        }
        _ => Ok(lease),
    }
}

fn responses(item: &Item<'_>) -> Result<Responses, Error> {
    item.only(&["format", "spread_retry_after_ms", "draft_6_fields", "retry_after_ms", "payment_required"])?;
    let mut found = Responses::default();
    if let Some(item) = item.field("format") {
        found.format = match item.text()? {
            "json" => BodyFormat::Json,
            "problem" => BodyFormat::Problem,
            other => return Err(item.wrong(other, args!("is unknown; write \"json\" or \"problem\""))),
        };
    }
    if let Some(spread) = item.number_in("spread_retry_after_ms", 0, SPREAD_MAX.get())? {
        found.spread = Millis::new(spread);
    }
    found.payment_required = item.has("payment_required")?;
    found.extra = ExtraFields { draft_6: item.has("draft_6_fields")?, retry_after_ms: item.has("retry_after_ms")? };
    Ok(found)
}

/// The address of a challenge, which needs no escapes in JSON.
fn address(item: &Item<'_>) -> Result<Box<str>, Error> {
    let text = item.text()?;
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'<' | b'>');
    if !(text.starts_with('/') || text.starts_with("https://")) || text.len() > 512 || !text.bytes().all(fits) {
        return Err(item.wrong(text, args!("is not an address; write one such as /challenge or https://example.com/")));
    }
    Ok(text.into())
}

impl Compiler {
    fn new(ignores_case: bool, limits: Vec<Limit>, tiers: Vec<Box<str>>) -> Self {
        let mut places = SortedMap::new();
        for (place, limit) in limits.iter().enumerate() {
            places.insert(&limit.name, place);
        }
        let used = vec![false; limits.len()];
        Self {
            ignores_case,
            limits,
            places,
            used,
            tiers,
            joined: SortedMap::new(),
            rules: Vec::new(),
            names: SortedMap::new(),
            numbers: SortedMap::new(),
            alike: SortedMap::new(),
            warnings: Vec::new(),
        }
    }

    fn add(&mut self, rule: &Item<'_>) -> Result<(), Error> {
        rule.only(RULE_FIELDS)?;
        let name = match rule.field("name") {
            Some(item) => {
                let name = checked_name("name", item.text()?).map_err(|error| item.at(&error))?;
                if let Some(first) = self.names.get(&name) {
                    return Err(item.wrong(&name, args!("is the name of rules[{first}] too; write another")));
                }
                name.into_string()
            }
            None => self.unnamed(rule)?,
        };
        let cost = rule.number_in("cost", 0, MAX_UNITS)?;
        let estimate = rule.number_in("estimate", 1, MAX_UNITS)?;
        if let (Some(_), Some(item)) = (cost, rule.field("estimate")) {
            return Err(item.invalid(args!("the rule has a cost, too; write one of them")));
        }
        let cost = cost.or(estimate).unwrap_or(1);
        let limits = match rule.field("limits") {
            Some(item) => item.each(&mut |limit| self.limit(limit))?,
            None => Vec::new(),
        };
        let mut policies = Vec::with_capacity(1 + self.tiers.len());
        for tier in 0..=self.tiers.len() {
            let policy = self.policy(&limits, tier);
            let limits = rule.field("limits");
            let at = limits.as_ref().unwrap_or(rule);
            policies.push(policy.map_err(|error| at.at(&error))?);
        }
        let lease = match rule.field("limits") {
            Some(item) => self.lease(&limits, estimate).map_err(|error| item.at(&error))?,
            None => None,
        };
        let on_failure = rule.field("on_failure").map_or(Ok(OnFailure::Closed), |item| on_failure(&item))?;
        let settle_within = rule.number_in("settle_within_ms", 1, SETTLE_WITHIN_MAX.get())?.map(Millis::new);
        let store = match rule.field("store") {
            Some(item) => Some(item.text()?.into()),
            None => None,
        };
        let refuses_invalid_tokens = rule.field("invalid_token").map_or(Ok(false), |item| match item.text()? {
            "refuse" => Ok(true),
            "anonymous" => Ok(false),
            other => Err(item.wrong(other, args!("is unknown; write \"refuse\" or \"anonymous\""))),
        })?;
        let challenge = rule.field("challenge").map(|item| address(&item)).transpose()?;
        if challenge.is_some() && !limits.is_empty() {
            return Err(rule.invalid(args!("a rule with a challenge passes no request; delete its limits")));
        }
        let pattern = pattern(rule, self.ignores_case)?;
        self.warn_of_overlaps(rule, &name, &pattern);
        self.names.insert(&name, self.rules.len());
        let (name, limits, policies) = (name.into(), limits.into(), policies.into());
        self.rules.push(Rule {
            name,
            pattern,
            cost,
            estimate,
            store,
            on_failure,
            settle_within,
            lease,
            refuses_invalid_tokens,
            challenge,
            limits,
            policies,
        });
        Ok(())
    }

    /// The name of a rule that has none: its methods and paths, such as `POST /login`.
    fn unnamed(&mut self, rule: &Item<'_>) -> Result<String, Error> {
        let name = pattern(rule, self.ignores_case)?.short();
        let mut numbered = name.clone();
        let next = self.numbers.get_or_default(&name);
        // At most as many as there are rules.
        while self.names.get(&numbered).is_some() {
            *next = (*next + 1).max(2);
            numbered = format!("{name} ({next})");
        }
        Ok(numbered)
    }

    /// Whether a limit warns.
    fn warns(&self, name: &str) -> bool {
        let place = self.places.get(name);
        place.is_some_and(|place| self.limits[*place].policies.iter().flatten().any(Policy::warns))
    }

    /// The place of a limit.
    fn limit(&self, item: &Item<'_>) -> Result<usize, Error> {
        self.named(item, item.text()?)
    }

    /// The place of the limit with this name. `item` is where it is written.
    fn named(&self, item: &Item<'_>, name: &str) -> Result<usize, Error> {
        self.places.get(name).copied().ok_or_else(|| {
            let known: Vec<&str> = self.limits.iter().map(|limit| &*limit.name).collect();
            match &known[..] {
                [] => item.wrong(name, args!("is not a limit; the file has none")),
                known => item.wrong(name, args!("is not a limit; {}", Suggestion::of(name, known))),
            }
        })
    }

    /// The policy of several limits for a tier, of which 0 is none.
    fn policy(&mut self, limits: &[usize], tier: usize) -> Result<Option<Arc<Policy>>, Error> {
        let combination = format!("{tier} {limits:?}");
        if let Some(known) = self.joined.get(&combination) {
            return Ok(known.clone());
        }
        let mut limited = Vec::with_capacity(limits.len());
        for limit in limits {
            self.used[*limit] = true;
            limited.extend(&self.limits[*limit].policies[tier]);
        }
        let policy = if limited.is_empty() { None } else { Some(Arc::new(Policy::join(limited)?)) };
        self.joined.insert(&combination, policy.clone());
        Ok(policy)
    }

    /// The lease of a rule's limit, if it has one.
    fn lease(&self, limits: &[usize], estimate: Option<u64>) -> Result<Option<Lease>, Error> {
        let mut all = limits.iter().map(|limit| &self.limits[*limit]);
        let Some(Limit { name, lease, .. }) = all.find(|limit| limit.lease.is_some()) else { return Ok(None) };
        let refused = |why: &str| Err(Error::invalid(format!("{why}, or delete lease from the limit \"{name}\"")));
        match (limits, estimate) {
            ([_], None) => Ok(*lease),
            ([_], Some(_)) => refused("an estimate is never lent; write cost"),
            _ => refused("limits that decide together cannot be lent; write a rule with this limit alone"),
        }
    }

    /// Warns of rules for the same hosts and paths, of which one hides the other or only their order decides.
    fn warn_of_overlaps(&mut self, rule: &Item<'_>, name: &str, pattern: &Pattern) {
        let alike = self.alike.get_or_default(&pattern.place());
        let known = || alike.iter().map(|place| &self.rules[*place]);
        if let Some(first) = known().find(|known| known.pattern.covers(pattern) && known.pattern.precedes(pattern)) {
            self.warnings.push(rule.message(args!(
                "no request reaches {name}, because {} matches all of them first; delete it or move it up",
                first.name
            )));
            return;
        }
        for first in known().filter(|known| known.pattern.is_unordered_with(pattern)) {
            self.warnings.push(rule.message(args!(
                "{} and {name} match some of the same requests, and {} applies because it comes first",
                first.name,
                first.name
            )));
        }
        alike.push(self.rules.len());
    }

    fn warn_of_unused_limits(&mut self, limits: &Item<'_>, stores: &[StoreRules]) -> Result<(), Error> {
        let mut place = 0;
        limits.entries(&mut |name, limit| {
            let is_around = stores.iter().flat_map(StoreRules::limits).any(|used| used == name);
            if !is_around && !self.used[place] {
                let warning = args!("no rule has the limit \"{name}\"; add it to one or delete it");
                self.warnings.push(limit.message(warning));
            }
            place += 1;
            Ok(())
        })
    }

    fn warn_of_unused_dimensions(&mut self, declared: &Item<'_>) -> Result<(), Error> {
        let unused = declared.each(&mut |item| {
            let name = item.text()?;
            let counts =
                |policy: &Policy| policy.dimensions().iter().flat_map(Dimension::parts).any(|part| part == name);
            let is_used = self.limits.iter().flat_map(|limit| limit.policies.iter().flatten()).any(counts);
            let warning =
                || item.message(args!("no limit counts by \"{name}\"; delete it or write by = \"{name}\" in one"));
            Ok((!is_used).then(warning))
        })?;
        self.warnings.extend(unused.into_iter().flatten());
        Ok(())
    }

    fn warn_of_missing_balance(&mut self, item: &Item<'_>, responses: &Responses) -> Result<(), Error> {
        let mut policies = self.limits.iter().flat_map(|limit| limit.policies.iter().flatten());
        if responses.payment_required && !policies.any(Policy::has_balance) {
            let warning = args!(
                "no limit has a balance, so no denial is a 402; add a quota with algorithm = \"balance\" or delete it"
            );
            self.warnings.push(item.required("payment_required")?.message(warning));
        }
        Ok(())
    }

    /// The header field of API keys, and the place of each valid key's tier.
    fn api_keys(&mut self, item: &Item<'_>) -> Result<(Option<Box<str>>, Vec<ValidKey>), Error> {
        item.only(&["header", "tiers", "without_tier"])?;
        let header = item.field("header").map(|header| field_name(&header)).transpose()?;
        let mut found: Vec<ValidKey> = Vec::new();
        if let Some(tiers) = item.field("tiers") {
            tiers.entries(&mut |hash, item| {
                let key = api_key(hash, item)?;
                let tier = item.text()?;
                let place = self.tiers.binary_search_by(|known| (**known).cmp(tier)).ok();
                if place.is_none() {
                    self.warnings.push(item.message(args!(
                        "no limit has the tier {}, so this key has the usual limits; write the tier of a limit, or the key \
                         in without_tier",
                        Quoted(tier)
                    )));
                }
                let at = found.partition_point(|(known, _)| *known < key);
                found.insert(at, (key, place));
                Ok(())
            })?;
        }
        if let Some(list) = item.field("without_tier") {
            list.each(&mut |item| {
                let key = api_key(item.text()?, item)?;
                match found.binary_search_by(|(known, _)| known.cmp(&key)) {
                    Ok(_) => return Err(item.invalid(args!("this key is written twice; write it once"))),
                    Err(at) => found.insert(at, (key, None)),
                }
                Ok(())
            })?;
        }
        if header.is_none() && !found.is_empty() {
            return Err(item.invalid(args!("no header; write header = \"x-api-key\"")));
        }
        Ok((header, found))
    }
}
