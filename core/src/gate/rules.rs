//! Rules, compiled from a file.

mod api_key;
mod applied;
mod compile;
mod compiled;
mod every_limit;
mod find;
mod limit_numbers;
mod prices;
mod store_names;

use std::sync::Arc;

pub(super) use self::applied::{Applied, RuleTerms};
use self::compile::compile;
pub(super) use self::every_limit::CountedLimit;
use self::limit_numbers::{LimitFrom, Overrides};
pub(super) use self::limit_numbers::{LimitNumber, Numbers, place_of};
use self::prices::ModelPrices;
use super::bytes::{self, bytes_of_fields};
use super::dimension_names::DIMENSIONS;
use super::file::OnFailure;
use super::lists::List;
use super::matcher::{Matcher, Pattern};
use super::path::{FoldCase, in_lower_case};
use super::responses::Responses;
use super::stores::{Compose, StoreRules, compose};
use super::token::{TokenRules, Tokens, VerifyToken};
use crate::document::FileText;
use crate::lending::Lease;
use crate::policy::CurrentPolicies;
use crate::quoted_text::Quoted;
use crate::suggestion::Suggestion;
use crate::{BodyFormat, Error, ExtraFields, Millis, Policy};

/// The header fields that make a CORS preflight of a request for `OPTIONS`.
const PREFLIGHT_FIELDS: [&str; 2] = ["origin", "access-control-request-method"];

/// The rules of a gate: which limits apply to which requests, at which cost, and by whose key. [The guide](crate::guide::rules) has every
/// table and key of a file.
///
/// A file in TOML (with the feature `toml`) or JSON. Each `limit` is a [`Policy`], and may have other numbers for each tier of
/// senders. Each rule matches requests and names their limits, which decide together, all or nothing.
///
/// ```
/// use tidegate_core::gate::Rules;
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let rules = Rules::parse("rules.json", r#"{
///     "limits": {
///         "login": { "quotas": [{ "algorithm": "sliding_log", "limit": 5, "window_ms": 60000, "by": "ip" }] },
///         "api": {
///             "quotas": [{ "algorithm": "token_bucket", "capacity": 20, "refill": 10, "per_ms": 1000 }],
///             "tiers": { "pro": { "quotas": [{ "algorithm": "token_bucket", "capacity": 200, "refill": 100, "per_ms": 1000 }] } }
///         }
///     },
///     "rules": [
///         { "path": "/login", "methods": ["POST"], "limits": ["login"] },
///         { "path": "/api/*", "limits": ["api"] },
///         { "path": "/api/export", "limits": ["api"], "cost": 10 }
///     ]
/// }"#)?;
/// assert!(rules.warnings().is_empty());
///
/// let error = Rules::parse("rules.json", r#"{ "rules": [{ "limits": ["apo"] }] }"#).unwrap_err();
/// assert_eq!(error.to_string(), r#"rules.json:1:26: "apo" is not a limit; the file has none"#);
/// # Ok(())
/// # }
/// ```
///
/// # Dimensions
/// A quota counts by the key of its dimension, `by`:
///
/// - `sender`, the default: the most trusted identity that the request has. That is the application's key, the verified subject, the
///   valid API key, or else the client's address; see [the guide](crate::guide::keys#which-identity-is-counted).
/// - `ip`: the client's address.
/// - `global`: one key that all requests share.
/// - a name in the table `keys` of `tokens`: the claim of a valid token whose subject is counted.
/// - a name in the list `dimensions`: a key that the application gives with each [request](super::Request::keys).
///
/// Any other name is an error when the file is read. So is a policy in code that counts by a dimension of which nothing is known,
/// when its gate is built: see [`Rules::with_dimensions`].
///
/// # Limits from data
/// A quota with `limit_from` takes its limit from a claim of a valid token whose subject is counted, or from the
/// [application](super::Request::limits), within `max` and `min`. Without a number, it has the file's. The table `overrides` gives single keys limits
/// of their own, and precedes both; it may be [a file](Rules::with_overrides) of its own. [The guide](crate::guide::rules#limits-from-data) has what
/// happens with a number that cannot be read. The stored state does not depend on the number: another one keeps what was used.
///
/// # Matching
/// The most specific rule wins, in this order: an exact host, a longer `*.domain`, no host; then from left to right a literal
/// segment, a `{name}`, the end of a path, a `/*`; then a rule with methods, with more headers, with a lower bot score, and
/// the first in the file. The
/// order is that of the Kubernetes [Gateway API](https://gateway-api.sigs.k8s.io/reference/spec/#httprouterule). A request
/// without a rule is not limited.
///
/// A rule for `GET` applies to `HEAD` too. A request that names several hosts, in its URL and its fields, has the rules of each that a
/// server may choose, as with several readings of its [path](Self#paths).
///
/// With `exempt_preflights = true`, no rule applies to a CORS preflight but one that has `OPTIONS` among its methods. A preflight is an
/// `OPTIONS` request with the fields `origin` and `access-control-request-method`. Any client can send one, so a route that does work for
/// `OPTIONS` needs such a rule. Otherwise, a rule without methods applies to preflights as to other requests.
///
/// # Paths
/// A rule's path is text: `/café`, `/{id}` and `/a b` match however a client writes them, in UTF-8 or with escapes in upper or lower case.
/// `{`, `}`, `?`, `#` and a star at the end stand for themselves as `%7B`, `%7D`, `%3F`, `%23` and `%2A`. Rules and messages show the
/// normal form (RFC 3986, section 6.2.2), with escapes. A letter that Unicode can compose in two ways is two texts, as for routers.
///
/// Servers read an unusual path in different ways. Each of these steps may happen or not: escapes are written in their normal form, `.`
/// and `..` are resolved, escaped dots count as dots, empty segments and a slash at the end are left out, and a backslash counts as a
/// slash. The gate matches the path after each combination of the steps that it needs. That is one reading for a path that is already
/// normal, and at most 54 for any path. A reading that keeps an empty segment is matched twice: some routers take such a segment for a
/// parameter, so that `//login` has the rule `/{tenant}/login`, and for others it has `/*`. A request whose readings have different
/// rules has the limits of all these rules, decided together, all or nothing: with the highest cost, and refused on a store failure if
/// one of the rules says so. If one store cannot decide by all of them in one step, they are decided one after another, that of the
/// normal form first, until one denies; what the others have charged then stays charged, unless the request has a
/// [token](super::Request::token).
///
/// Some routers, such as those of axum and Express, decode no path before they compare it, so that escapes as they arrived are compared
/// with rules as they are written: beside the rule `/café`, `/caf%C3%A9` has the limits of `/{name}` or `/*` too, since such a router
/// takes it for another path. Write `/caf%C3%A9`, as browsers send it, where it shall have those of its own rule only. Others of these
/// routers have routes with escapes, as URLs have them, so that such a path is compared with the normal form of rules, too:
/// `/%66iles/%C3%BC` has the limits of the rules `/files/*` and `/{name}/ü`.
///
/// With `case_insensitive = true`, for a host that routes so, as Express does by default, upper and lower case do not differ, in all
/// scripts.
///
/// These are no readings: an escaped slash or backslash as a separator, a path that is
/// decoded twice, and parameters after a semicolon.
///
/// Some routers, such as Hono and Express, take the first route that matches, whatever its path. Register the more specific ones
/// first, so that they choose as the rules do.
///
/// # Stores
/// The table `stores` puts limiters around the stores of a gate, by their names:
///
/// ```
/// use tidegate_core::gate::{Gate, Rules};
/// use tidegate_core::{ClientIpSource, ErasedLimiter, MemoryLimiter, Platform};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let rules = Rules::parse("rules.json", r#"{
///     "stores": { "main": {
///         "fallback": { "store": "memory", "percent": 10, "at_most_ms": 300000 },
///         "deny_cache": true,
///         "shadow": { "api": "next" },
///         "near": { "store": "location", "limit": "flood" }
///     } },
///     "limits": {
///         "api": { "quotas": [{ "algorithm": "fixed_window", "limit": 100, "window_ms": 60000 }] },
///         "next": { "quotas": [{ "algorithm": "fixed_window", "limit": 80, "window_ms": 60000 }] },
///         "flood": { "quotas": [{ "algorithm": "fixed_window", "limit": 500, "window_ms": 10000 }] }
///     },
///     "rules": [{ "limits": ["api"], "on_failure": "open" }]
/// }"#)?;
/// let store = || Box::new(MemoryLimiter::new()) as Box<dyn ErasedLimiter>;
/// let stores = [("main", store()), ("memory", store()), ("location", store())];
/// let gate = Gate::with_stores(rules, stores, ClientIpSource::new(Platform::Direct))?;
/// assert_eq!(gate.shadows()[0].2.only_proposal_denies, 0);
/// # Ok(())
/// # }
/// ```
///
/// - `fallback`: another store that decides while this one is down, by a share of each limit; see [`Fallback`](crate::Fallback).
///   Its name alone is enough.
/// - `deny_cache`: `true`, or a table of `hold_ms` and `capacity`; see [`DenyCache`](crate::DenyCache). What replaces a store that is
///   down is not cached.
/// - `shadow`: limits that are tried in place of others, and do not decide; see [`Shadow`](crate::Shadow) and
///   [`Gate::shadows`](super::Gate::shadows). A proposal is for the rules whose only limit is the current one, and for senders of all
///   tiers.
/// - `near`: a store that is asked first, by a limit of its own; see [`Tiered`](crate::Tiered).
///
/// The cache is around the store and its replacement, the proposals are around the cache, and the near store comes first. A reload that
/// does not change what is around a store keeps its counts.
///
/// # Leases
/// A limit with a `lease` may be decided from loans: the gate takes a part of the limit from the store, spends it without asking, and
/// repeats denials. See [`lending`](crate::lending) for the bounds and the sizes.
///
/// ```
/// use tidegate_core::gate::Rules;
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let rules = Rules::parse("rules.json", r#"{
///     "limits": {
///         "api": { "quotas": [{ "algorithm": "token_bucket", "capacity": 1000, "refill": 100, "per_ms": 1000 }], "lease": true },
///         "login": { "quotas": [{ "algorithm": "sliding_log", "limit": 5, "window_ms": 60000 }] }
///     },
///     "rules": [{ "path": "/api/*", "limits": ["api"] }, { "path": "/login", "limits": ["login"] }]
/// }"#)?;
/// let (limit, lease) = rules.leases().next().unwrap();
/// assert_eq!((limit, lease.to_string()), ("api", "at most 50 units, for at most 60000 ms".to_string()));
/// # Ok(())
/// # }
/// ```
///
/// - `true` stands for the table `{ slice = 50, lifetime_ms = 60_000 }`: the most units of a key that one process or isolate holds, and
///   how long a loan or a denial lasts at most. A lifetime is a minute at most.
/// - `grace = 1` admits the first unit of a key at once, before the store has heard of it, under a gate that asks
///   [in the background](super::Gate::in_background). So much may be admitted beyond the limit for each process or isolate; see
///   [Grace](crate::lending#grace). It is at most the slice and the least limit.
/// - **Cost:** without a grace, never more than the limit is admitted, and perhaps less: up to two slices for each process within a lifetime, and a
///   denial may miss a reset elsewhere for a lifetime.
/// - It is an error if the limit [cannot be lent](crate::lending#what-can-be-lent), if its rule has other limits or an `estimate`,
///   or, when the gate is built, if the store does not [lend](crate::Capabilities::lends). Limits without a lease are never lent.
/// - Requests with a [token](super::Request::token) are asked for one by one. If several rules apply to the readings of a path, a limit
///   with a lease is decided alone, one after another with the others.
/// - A store may refuse to decide by a limit that it lends together with others. So before a limit gets a lease, no process that is still
///   running may have it in a rule with others.
/// - While the store is down, loans are spent first, and then its `fallback` decides. Denials are cached as those of the store. A limit
///   that is asked first (`near`) or is tried (`shadow`) cannot have a lease. A proposal in the place of one that has a lease is asked
///   for with each request.
/// - The request that needs a loan waits for it, unless the gate asks [in the background](super::Gate::in_background), as under the tower layer.
/// - Nobody returns the loans of a process that ends. A reload that changes the leases of a store, or what is around it, also ends its
///   loans. Their units stay used: in a window until it ends, and in a bucket until the loan ends and they have drained.
#[derive(Debug, Default)]
pub struct Rules {
    matcher: Matcher,
    ignores_case: bool,
    exempts_preflights: bool,
    rules: Vec<Rule>,
    /// Those whose keys the application gives.
    dimensions: Vec<Box<str>>,
    /// The policies of each limit, as in a rule.
    limits: Vec<Vec<Option<Policy>>>,
    /// The limits that have a lease, by their names.
    leases: Vec<(Box<str>, Lease)>,
    tiers: Vec<Box<str>>,
    api_key_header: Option<Box<str>>,
    /// The place of each valid key's tier, sorted by the key.
    api_keys: Vec<ValidKey>,
    tokens: Option<Tokens>,
    stores: Vec<StoreRules>,
    /// What puts something around the stores. `None` if nothing is.
    compose: Option<Compose>,
    /// What folds the case of paths, if any rules that are read may ignore it.
    fold_case: Option<FoldCase>,
    /// The name of the gate's first store, once it is known.
    first_store: Option<Box<str>>,
    responses: Responses,
    allowed: List,
    denied: List,
    warnings: Vec<String>,
    /// What gives quotas other limits than the file's.
    limits_from: Vec<LimitFrom>,
    overrides: Overrides,
    /// The limits whose numbers the platform has.
    fixed: Vec<Box<str>>,
    /// What the counts of each model cost.
    prices: Vec<ModelPrices>,
    current: CurrentPolicies,
}

/// A valid API key, and the place of its tier.
type ValidKey = (Box<str>, Option<usize>);

/// A rule of a file.
#[derive(Debug)]
pub struct Rule {
    name: Arc<str>,
    pub(super) pattern: Pattern,
    pub(super) cost: u64,
    pub(super) estimate: Option<u64>,
    store: Option<Box<str>>,
    pub(super) on_failure: OnFailure,
    pub(super) settle_within: Option<Millis>,
    pub(super) lease: Option<Lease>,
    pub(super) refuses_invalid_tokens: bool,
    challenge: Option<Box<str>>,
    /// The places of its limits.
    limits: Box<[usize]>,
    /// For requests without a tier, then for each tier. `None` if it is unlimited.
    policies: Box<[Option<Arc<Policy>>]>,
}

bytes_of_fields!(Rule {
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

impl Rule {
    /// The name, or else its methods and paths, such as `POST /login`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// What it matches.
    #[must_use]
    pub const fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// What a request costs, unless the request says so itself.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// What a request is charged until its cost is known and [settled](super::Gate::settle).
    #[must_use]
    pub const fn estimate(&self) -> Option<u64> {
        self.estimate
    }

    /// The name of the store that counts. `None` for the gate's first store.
    #[must_use]
    pub fn store(&self) -> Option<&str> {
        self.store.as_deref()
    }

    /// How long after its check a charge with a token can be settled, if the rule says so; see
    /// [`Gate::settle_within`](super::Gate::settle_within).
    #[must_use]
    pub const fn settle_within(&self) -> Option<Millis> {
        self.settle_within
    }

    /// The [lease](Rules#leases) of its limit, if it has one: its decisions may be made from loans.
    #[must_use]
    pub const fn lease(&self) -> Option<Lease> {
        self.lease
    }

    /// The address of the challenge that requests have to pass first.
    #[must_use]
    pub fn challenge(&self) -> Option<&str> {
        self.challenge.as_deref()
    }

    /// The policies for senders without a tier and for those of each tier that is limited.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter().flatten().map(|policy| &**policy)
    }

    /// An error about this rule.
    pub(super) fn invalid(&self, error: &Error) -> Error {
        Error::new(error.kind(), format!("rule {}: {error}", Quoted(&self.name)))
    }

    /// Places the policies of all tiers by their key, as [`placed`] does.
    pub(super) fn place_by_key(&mut self) {
        for policy in self.policies.iter_mut().flatten() {
            *policy = placed(Arc::clone(policy));
        }
    }

    /// The policy for a tier. `None` if the tier is unlimited.
    pub(super) fn policy(&self, tier: Option<usize>) -> Option<&Arc<Policy>> {
        self.policies[place_of(tier)].as_ref()
    }

    /// The policies for senders without a tier, and then for those of each tier.
    pub(super) fn policies_by_tier(&self) -> impl Iterator<Item = Option<&Arc<Policy>>> {
        self.policies.iter().map(Option::as_ref)
    }
}

/// Stores what is counted at a place that the key alone selects, for a store that decides on one place at a time: the rules
/// of one sender then share their counts. Policies of several keys name the group that selects the place.
pub(super) fn placed(policy: Arc<Policy>) -> Arc<Policy> {
    Policy::clone(&policy).place_by_key().map_or(policy, Arc::new)
}

impl Rules {
    /// Reads a rules file. `file` is its name, which ends in `.toml` or `.json` and begins each message.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) with the file, the line, the column, the value and what to write instead.
    pub fn parse(file: &str, text: &str) -> Result<Self, Error> {
        compile(FileText { name: file, text })
    }

    /// The rules as bytes, for [`Rules::from_bytes`]. What verifies [tokens](Rules::verify_tokens) is no part of them.
    ///
    /// The macro `rules!` of the crate `tidegate-rules` does it when an application is compiled.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        bytes::to_bytes(self)
    }

    /// The rules of which [`Rules::to_bytes`] made these bytes. So an application needs no code that reads rules files and reports
    /// their mistakes.
    ///
    /// ```
    /// use tidegate_core::gate::Rules;
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let rules = Rules::parse("rules.json", r#"{
    ///     "limits": { "api": { "quotas": [{ "algorithm": "fixed_window", "limit": 100, "window_ms": 60000 }] } },
    ///     "rules": [{ "path": "/api/*", "limits": ["api"] }]
    /// }"#)?;
    /// let same = Rules::from_bytes(&rules.to_bytes())?;
    /// assert_eq!(same.rules()[0].name(), "/api/*");
    /// assert!(Rules::from_bytes(b"something else").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the bytes are damaged, or another version of this library made them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let rules = bytes::from_bytes::<Self>(bytes)?;
        Ok(Self { compose: Some(compose), fold_case: Some(in_lower_case), ..rules })
    }

    /// Like [`Rules::from_bytes`], for rules that put nothing around their stores and tell upper and lower case apart, so that the
    /// code that others need is not linked.
    ///
    /// # Errors
    /// Also [`Invalid`](crate::ErrorKind::Invalid) for other rules.
    pub fn from_plain_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let rules = bytes::from_bytes::<Self>(bytes)?;
        if rules.stores.is_empty() && rules.leases.is_empty() && !rules.ignores_case {
            Ok(rules)
        } else {
            Err(Error::invalid("rules: stores, leases or case_insensitive; call Rules::from_bytes"))
        }
    }

    /// One rule for every request.
    ///
    /// ```
    /// use tidegate_core::gate::{OnFailure, Rules};
    /// use tidegate_core::{Millis, Policy, Quota};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("api", [Quota::token_bucket(20, 10, Millis::from_secs(1))?])?;
    /// let rules = Rules::all(policy, OnFailure::Closed);
    /// assert_eq!(rules.rules()[0].name(), "api");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn all(policy: Policy, on_failure: OnFailure) -> Self {
        let pattern = Pattern::default();
        let matcher = Matcher::new([&pattern].into_iter());
        let name = policy.name().into();
        let policies = [Some(Arc::new(policy))].into();
        let rule = Rule {
            name,
            pattern,
            cost: 1,
            estimate: None,
            store: None,
            on_failure,
            settle_within: None,
            lease: None,
            refuses_invalid_tokens: false,
            challenge: None,
            limits: Box::default(),
            policies,
        };
        Self { matcher, rules: vec![rule], ..Self::default() }
    }

    /// Declares dimensions whose keys the application gives with each [request](super::Request::keys), `dimensions` of a file.
    ///
    /// ```
    /// use tidegate_core::gate::{Gate, OnFailure, Rules};
    /// use tidegate_core::{ClientIpSource, MemoryLimiter, Millis, Platform, Policy, Quota};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("api", [Quota::fixed_window(5, Millis::from_secs(60))?.by("tenant")?])?;
    /// let gate = |rules| Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct));
    /// assert!(gate(Rules::all(policy.clone(), OnFailure::Closed)).is_err());
    /// assert!(gate(Rules::all(policy, OnFailure::Closed).with_dimensions(["tenant"])).is_ok());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_dimensions<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.dimensions.extend(names.into_iter().map(Into::into));
        self
    }

    /// The dimensions whose keys the application gives with each [request](super::Request::keys).
    pub fn dimensions(&self) -> impl Iterator<Item = &str> {
        self.dimensions.iter().map(|name| &**name)
    }

    /// Checks that a dimension is one whose key the application gives. For an adapter to which an application gives keys by name.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) with the nearest name if it is not.
    pub fn declares(&self, dimension: &str) -> Result<(), Error> {
        let (known, name): (Vec<_>, _) = (self.dimensions().collect(), Quoted(dimension));
        match &known[..] {
            known if known.contains(&dimension) => Ok(()),
            [] => Err(Error::invalid(format!(
                "key: {name} is not a dimension that the rules declare; write dimensions = [{name}] in their file"
            ))),
            known => {
                let suggestion = Suggestion::of(dimension, known);
                Err(Error::invalid(format!("key: {name} is not a dimension that the rules declare; {suggestion}")))
            }
        }
    }

    /// The limits that have a [lease](Rules#leases), by their names.
    pub fn leases(&self) -> impl Iterator<Item = (&str, Lease)> {
        self.leases.iter().map(|(name, lease)| (&**name, *lease))
    }

    /// All dimensions that have a key: the gate's own, the tokens' claims and the application's.
    pub(super) fn known_dimensions(&self) -> Vec<&str> {
        let claimed = self.tokens.iter().flat_map(Tokens::dimensions);
        DIMENSIONS.into_iter().chain(claimed).chain(self.dimensions()).collect()
    }

    /// Sets the format of a denial's body, `format` in the table `responses` of a file. The default is
    /// [JSON](BodyFormat::Json).
    #[must_use]
    pub const fn body_format(mut self, format: BodyFormat) -> Self {
        self.responses.format = format;
        self
    }

    /// Lengthens each `Retry-After` by a random time up to this, `spread_retry_after_ms` in the table `responses` of a file, so
    /// that clients which were denied together do not return together. The default is zero.
    #[must_use]
    pub const fn spread_retry_after(mut self, most: Millis) -> Self {
        self.responses.spread = most;
        self
    }

    /// Sends further fields, `draft_6_fields` and `retry_after_ms` in the table `responses` of a file. The default is none.
    #[must_use]
    pub const fn extra_fields(mut self, extra: ExtraFields) -> Self {
        self.responses.extra = extra;
        self
    }

    /// Answers a denial for want of credits with a 402 (Payment Required) in place of a 429, `payment_required` in the table `responses` of a
    /// file: a request that a [balance](crate::algorithm::Balance) would have had to pay, and has not enough left for. The body and the fields are
    /// the same. It has a `Retry-After` if the quota that the balance covers admits the request by then. The default is a 429.
    #[must_use]
    pub const fn payment_required(mut self, yes: bool) -> Self {
        self.responses.payment_required = yes;
        self
    }

    pub(super) const fn responses(&self) -> Responses {
        self.responses
    }

    /// Verifies the tokens that the file's table `tokens` describes. Without that table, no token is read.
    #[must_use]
    pub fn verify_tokens(mut self, verifier: impl VerifyToken + 'static) -> Self {
        if let Some(tokens) = &mut self.tokens {
            tokens.verifier = Some(Arc::new(verifier));
        }
        self
    }

    /// What is around the stores.
    pub(super) fn stores(&self) -> &[StoreRules] {
        &self.stores
    }

    pub(super) const fn compose(&self) -> Option<Compose> {
        self.compose
    }

    pub(super) fn set_first_store(&mut self, name: &str) {
        self.first_store = Some(name.into());
    }

    /// What is around the store of a rule.
    pub(super) fn around(&self, rule: &Rule) -> Option<&StoreRules> {
        let name = rule.store().or(self.first_store.as_deref())?;
        self.stores.iter().find(|store| *store.name == *name)
    }

    /// The stores that others replace, with those others, if a rule counts in the first store, and no gate says which that is.
    pub(super) fn perhaps_replaced(&self, rule: &Rule) -> Vec<(&str, &str)> {
        if rule.store().is_some() || self.first_store.is_some() {
            return Vec::new();
        }
        self.stores.iter().filter_map(|rules| Some((&*rules.name, rules.fallback()?))).collect()
    }

    /// What the file expects of tokens, if it has the table `tokens`.
    #[must_use]
    pub fn expected_tokens(&self) -> Option<&TokenRules> {
        self.tokens.as_ref().map(|tokens| &tokens.expected)
    }

    pub(super) const fn has_tiers(&self) -> bool {
        !self.tiers.is_empty()
    }

    /// The names of the tiers.
    pub(super) fn tiers(&self) -> Vec<&str> {
        self.tiers.iter().map(|tier| &**tier).collect()
    }

    pub(super) const fn tokens(&self) -> Option<&Tokens> {
        self.tokens.as_ref()
    }

    /// The header fields that the rules read beside `host`, in lower case, for runtimes where copying every field of a request is
    /// expensive. [`ClientIpSource::fields`](crate::ClientIpSource::fields) are read, too.
    #[must_use]
    pub fn fields(&self) -> Vec<&str> {
        let matched = self.rules.iter().flat_map(|rule| &rule.pattern.headers).map(|name| &**name);
        let token = self.tokens.iter().map(|tokens| tokens.expected.header());
        // Sorting would take more code than there are fields.
        let mut found = Vec::new();
        let preflight = if self.exempts_preflights { &PREFLIGHT_FIELDS[..] } else { &[] };
        for name in matched.chain(self.api_key_header.as_deref()).chain(token).chain(preflight.iter().copied()) {
            if !found.contains(&name) {
                found.push(name);
            }
        }
        found
    }

    /// What is probably a mistake, each with its position: a rule that no request reaches, two rules of which only their order
    /// in the file decides, a limit without a rule, a tier without a limit.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The rules, in the order of the file.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    pub(super) fn rules_mut(&mut self) -> &mut [Rule] {
        &mut self.rules
    }

    pub(super) const fn allowed(&self) -> &List {
        &self.allowed
    }

    pub(super) const fn denied(&self) -> &List {
        &self.denied
    }
}
