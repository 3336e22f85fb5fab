//! From a request to its response: rules, identity, one decision, and what to send.
//!
//! A [`Gate`] applies the [`Rules`] of one file to each [`Request`]. It finds the rule and the sender's keys, asks the
//! rule's store, and returns a [`Verdict`]: pass the request on, or send a response. An adapter makes the request and sends the
//! response.
//!
//! ```
//! use tidegate_core::gate::{Gate, Request, Rules, Verdict};
//! use tidegate_core::{ClientIpSource, MemoryLimiter, Platform, UnixMillis};
//! # fn main() -> Result<(), tidegate_core::Error> {
//! # pollster::block_on(async {
//! let rules = Rules::parse("rules.json", r#"{
//!     "limits": { "login": { "quotas": [{ "algorithm": "fixed_window", "limit": 1, "window_ms": 60000, "by": "ip" }] } },
//!     "rules": [{ "path": "/login", "methods": ["POST"], "limits": ["login"] }]
//! }"#)?;
//! let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Cloudflare))?;
//!
//! let headers = [("cf-connecting-ip", "192.0.2.1")];
//! let now = UnixMillis::new(1_800_000_000_000);
//! let request = Request::new("POST", "/login", &headers, now);
//! assert!(matches!(gate.check(&request).await, Verdict::Pass(_)));
//! let Verdict::Refuse(refusal) = gate.check(&request).await else { panic!() };
//! assert_eq!(refusal.rejection().status_code(), 429);
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # Failures
//! Nothing that a client sends lets a request pass undecided. Only a [failure of the store](crate::ErrorKind::is_store_failure)
//! can, if the rule says [`on_failure = "open"`](OnFailure::Open).

mod bytes;
mod dimension_names;
mod event;
mod explain;
mod file;
mod grant;
mod joint;
mod json;
mod lists;
mod matcher;
mod notice;
mod path;
mod pending;
mod request;
mod responses;
mod rules;
mod sender;
mod sink;
mod stores;
mod tally;
mod token;
mod usage;
mod verdict;
mod warning;

pub use event::{Event, EventSink, Events, Outcome};
pub use explain::{Explanation, Listed};
pub use file::OnFailure;
pub use grant::{Credit, Grantee};
pub use joint::Joined;
pub use matcher::{Host, Path, Pattern};
pub use notice::Notice;
pub use pending::{Hold, Pending, Prepared};
pub use request::{Headers, Request};
pub use rules::{Rule, Rules};
#[cfg(feature = "metrics")]
pub use sink::MetricsSink;
#[cfg(feature = "tracing")]
pub use sink::TracingSink;
pub use sink::{JsonLines, LogLimit};
pub use tally::{RuleTally, Tallied, Tally, TopKey};
pub use token::{Claims, InvalidToken, TokenRules, VerifyToken};
pub use usage::{PendingUsage, QuotaUsage, Usage};
pub use verdict::{Pass, Reason, Refusal, Verdict};
pub use warning::{OnWarning, Warning};

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use self::notice::Notices;
use self::pending::Terms;
use self::responses::Draws;
use self::rules::{Applied, Numbers, RuleTerms, place_of, placed};
use self::sender::Sender;
use self::stores::{Composed, Watched, composed, lends, unknown_store};
use self::warning::Charged;
use crate::dimension::OwnKeys;
use crate::lending::Lease;
use crate::quoted_text::Quoted;
#[cfg(feature = "lending")]
use crate::store::{Pausing, ToTell};
use crate::suggestion::Suggestion;
use crate::{
    Accuracy, Check, ClientIpSource, Decision, Dimension, Dimensions, ErasedLimiter, Error, ErrorKind, Limiter,
    LimiterExt, Millis, Policy, Settle, ShadowCounts, UnixMillis,
};

/// Applies rules to requests. See the [module](self) for an example.
///
/// `'s` is the lifetime of the stores, which is `'static` unless they borrow something.
pub struct Gate<'s> {
    state: RwLock<Arc<State<'s>>>,
    stores: Vec<Arc<Watched<'s>>>,
    notices: Arc<Notices>,
    client_ip: ClientIpSource,
    settle_within: Millis,
    draws: Draws,
    events: Option<Events>,
    /// Whether the host asks for next loans after responses.
    in_background: AtomicBool,
    #[cfg(feature = "lending")]
    pausing: Pausing,
}

/// What a reload replaces.
#[derive(Default)]
struct State<'s> {
    rules: Arc<Rules>,
    /// For each store, what is asked for its decisions.
    asked: Vec<Composed<'s>>,
    /// For each rule, what is known of its requests without a tier, and then with each tier. `None` if they are unlimited.
    terms: Vec<Box<[Option<Arc<Terms>>]>>,
}

impl<'s> Gate<'s> {
    /// The default time in which a charge with a token can be settled: ten minutes.
    pub const DEFAULT_SETTLE_WITHIN: Millis = Millis::from_secs(600);

    /// A gate whose rules all count in one store.
    ///
    /// # Errors
    /// As [`Gate::with_stores`].
    pub fn new(rules: Rules, store: impl Limiter + 's, client_ip: ClientIpSource) -> Result<Self, Error> {
        Self::with_stores(rules, [("default", Box::new(store) as Box<dyn ErasedLimiter + 's>)], client_ip)
    }

    /// A gate with several stores, by the names in the rules. A rule without a store uses the first.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if a rule names another store, if a policy counts by a
    /// [dimension](Rules#dimensions) that is not declared, or if the file describes tokens that nothing
    /// [verifies](Rules::verify_tokens), and [`Unsupported`](ErrorKind::Unsupported) if its store
    /// lacks a feature that its limits need. Both name the rule.
    #[cfg_attr(target_arch = "wasm32", expect(clippy::arc_with_non_send_sync, reason = "there is one thread"))]
    pub fn with_stores<'a>(
        rules: Rules,
        stores: impl IntoIterator<Item = (&'a str, Box<dyn ErasedLimiter + 's>)>,
        client_ip: ClientIpSource,
    ) -> Result<Self, Error> {
        let notices = Arc::<Notices>::default();
        let watched = |(name, store)| Arc::new(Watched::new(name, store, Arc::clone(&notices)));
        let stores: Vec<_> = stores.into_iter().map(watched).collect();
        if stores.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "stores: none; give at least one"));
        }
        let settle_within = Self::DEFAULT_SETTLE_WITHIN;
        let gate = Self {
            state: RwLock::default(),
            stores,
            notices,
            client_ip,
            settle_within,
            draws: Draws::default(),
            events: None,
            in_background: AtomicBool::new(false),
            #[cfg(feature = "lending")]
            pausing: Pausing::default(),
        };
        gate.reload(rules)?;
        Ok(gate)
    }

    /// Replaces the rules. Limits of the same name and shape keep their counts. Requests that are being decided are decided by
    /// the old rules.
    ///
    /// # Errors
    /// As [`Gate::with_stores`]. The old rules then remain.
    #[cfg_attr(target_arch = "wasm32", expect(clippy::arc_with_non_send_sync, reason = "there is one thread"))]
    pub fn reload(&self, rules: Rules) -> Result<(), Error> {
        let leases = |store: usize| self.leases(&rules, store);
        let asked = composed(rules.stores(), rules.compose(), &self.stores, &leases, &self.state().asked)?;
        let rules = Arc::new(self.fitted(rules, &asked)?);
        rules.take_overrides_of(&self.rules())?;
        let terms = rules.rules().iter().map(|rule| self.terms(rule, &rules)).collect::<Result<_, _>>()?;
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(State { rules, asked, terms });
        if self.in_background.load(Ordering::SeqCst) {
            self.in_background();
        }
        Ok(())
    }

    /// Replaces the overrides of single keys that have a file of their own; see [`Rules::with_overrides`]. All else stays as it is, and so do the
    /// counts. A [reload](Gate::reload) keeps them.
    ///
    /// # Errors
    /// As [`Rules::with_overrides`]. The old overrides then remain.
    pub fn reload_overrides(&self, file: &str, text: &str) -> Result<(), Error> {
        self.rules().read_overrides(file, text)
    }

    /// Has requests keep their questions for next loans, which [`Gate::after`] asks, also those by rules that are
    /// [reloaded](Gate::reload). Call it where the gate is made, for a host that runs `after` after each response: then no request of a
    /// steady client waits for a loan. A layer of `tidegate-tower` does both. Otherwise, a request asks before it is answered.
    pub fn in_background(&self) {
        self.in_background.store(true, Ordering::SeqCst);
        self.state().asked.iter().for_each(Composed::in_background);
    }

    /// Sets how long after its check a charge with a token can be settled. Stores remember each charge that long. A rule may
    /// have a time of its own, `settle_within_ms`.
    ///
    /// A charge that takes a slot of a [concurrency limit](crate::algorithm::Concurrency) can be settled and released for the
    /// slot's lifetime, and is then forgotten: under a limit of many quick requests, the charges take more room than the counts.
    /// It is remembered for this time only if the caller [settles it later](Pending::settle_later), or for the time of its rule.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for zero.
    pub fn settle_within(mut self, span: Millis) -> Result<Self, Error> {
        if span == Millis::ZERO {
            let message = "settle_within: 0 ms leaves no time to settle; write at least 1 ms";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        self.settle_within = span;
        Ok(self)
    }

    /// Sets where events are sent. By default, there are none.
    #[must_use]
    pub fn events(mut self, events: Events) -> Self {
        self.events = Some(events);
        self
    }

    /// Sets the seed of the random times that [`Rules::spread_retry_after`] adds. By default, each process draws its own. The
    /// target `wasm32-unknown-unknown` has no random numbers: set a seed there.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.draws = Draws::seeded(seed);
        self
    }

    /// Whether the [events](Gate::events) go to a log. Its verdicts then have no [notices](Verdict::notice).
    #[must_use]
    pub fn logs(&self) -> bool {
        self.events.as_ref().is_some_and(Events::logs)
    }

    /// Checks that the stores of all rules support costs and [settlements](Gate::settle).
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) with the first rule whose store does not.
    pub fn can_settle(&self) -> Result<(), Error> {
        let State { rules, asked, .. } = &*self.state();
        for rule in rules.rules() {
            let can = asked[self.store(rule)?].capabilities();
            let able = can.require(can.costs, "a cost other than 1");
            let able = able.and_then(|()| can.require(can.idempotency, "settlements"));
            able.map_err(|error| rule.invalid(&error))?;
        }
        Ok(())
    }

    /// Where the client's address is.
    #[must_use]
    pub const fn client_ip(&self) -> &ClientIpSource {
        &self.client_ip
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.state().rules)
    }

    fn state(&self) -> Arc<State<'s>> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the proposed limits of the table `stores` would have changed, with the names of the store and of the limit in whose place
    /// each is tried. The counts begin anew if a [reload](Gate::reload) changes what is around the store.
    #[must_use]
    pub fn shadows(&self) -> Vec<(Box<str>, Box<str>, ShadowCounts)> {
        let state = self.state();
        let all = self.stores.iter().zip(&state.asked);
        all.flat_map(|(store, asked)| asked.shadows().map(|(limit, counts)| (store.name.clone(), limit, counts)))
            .collect()
    }

    /// The rules for these stores, each of which must support the limits of its rules.
    fn fitted(&self, mut rules: Rules, asked: &[Composed<'s>]) -> Result<Rules, Error> {
        rules.set_first_store(&self.stores[0].name);
        if rules.tokens().is_some_and(|tokens| tokens.verifier.is_none()) {
            let message = "tokens: no keys are given that could verify them; call Rules::verify_tokens";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let known = rules.known_dimensions();
        for rule in rules.rules() {
            let mut dimensions = rule.policies().flat_map(Policy::dimensions).flat_map(Dimension::parts);
            if let Some(name) = dimensions.find(|name| !name.is_empty() && !known.contains(name)) {
                let suggestion = Suggestion::of(name, &known);
                let message =
                    format!("\"{name}\" is not a dimension; {suggestion}, or declare it with Rules::with_dimensions");
                return Err(rule.invalid(&Error::invalid(message)));
            }
        }
        let mut fixed = Vec::new();
        for rule in rules.rules_mut() {
            let store = self.store(rule)?;
            if rule.lease.is_some() {
                let name = rule.policies().next().map_or("", Policy::name);
                lends(name, &self.stores[store]).map_err(|error| rule.invalid(&error))?;
            }
            let asked = &asked[store];
            let can = asked.capabilities();
            if can.dimensions == Dimensions::Grouped {
                rule.place_by_key();
            }
            let settles =
                can.require(can.idempotency && can.costs || rule.estimate.is_none(), "settlements of an estimate");
            settles.map_err(|error| rule.invalid(&error))?;
            for policy in rule.policies() {
                let suits =
                    can.supports_policy(policy).and_then(|()| can.require(can.costs || rule.cost == 1, "a cost"));
                let suits = suits.and_then(|()| asked.rules().map_or(Ok(()), |rules| rules.suits(policy)));
                suits.map_err(|error| rule.invalid(&error))?;
            }
            if matches!(self.stores[store].limiter.erased_capabilities().accuracy, Accuracy::PerLocation) {
                if rule.policies().any(Policy::warns) {
                    let message = "this store does not tell what is used, and so warns of nothing; delete warn_at";
                    return Err(rule.invalid(&Error::new(ErrorKind::Unsupported, message)));
                }
                fixed.extend(
                    rule.policies().flat_map(Policy::dimensions).map(|dimension| Box::from(dimension.policy())),
                );
            }
        }
        for limit in &fixed {
            rules.fix(limit)?;
        }
        Ok(rules)
    }

    /// The leases of the limits of a store, each once.
    fn leases(&self, rules: &Rules, store: usize) -> Vec<Lease> {
        let mut found = Vec::new();
        for rule in rules.rules().iter().filter(|rule| self.store(rule).is_ok_and(|place| place == store)) {
            if let Some(lease) = rule.lease.filter(|lease| !found.contains(lease)) {
                found.push(lease);
            }
        }
        found
    }

    /// The place of a rule's store.
    fn store(&self, rule: &Rule) -> Result<usize, Error> {
        let Some(wanted) = rule.store() else { return Ok(0) };
        self.stores.iter().position(|store| *store.name == *wanted).ok_or_else(|| {
            let known: Vec<&str> = self.stores.iter().map(|store| &*store.name).collect();
            unknown_store(&format!("rule {}", Quoted(rule.name())), wanted, &known)
        })
    }

    /// What is known of the requests of a rule, by their tiers.
    fn terms(&self, rule: &Rule, rules: &Rules) -> Result<Box<[Option<Arc<Terms>>]>, Error> {
        let (store, all) = (self.store(rule)?, RuleTerms::of(rule));
        let of = |policy: &Arc<Policy>| {
            let by_address = sender::is_by_address(rules, policy);
            let terms = Terms::new(rule, &all, rule.cost, (store, Arc::clone(policy)), rules.responses());
            Terms { by_address, ..terms }
        };
        Ok(rule.policies_by_tier().map(|policy| policy.map(|policy| Arc::new(of(policy)))).collect())
    }

    /// Decides on a request.
    pub async fn check(&self, request: &Request<'_>) -> Verdict {
        let state = self.state();
        let (at, clock) = (request.now(), request.clock);
        let now = || clock.map_or(at, |clock| clock());
        match self.prepare_by(&state, request, |terms, keyed| self.decide_plain(&state, request, terms, keyed, now)) {
            Prepared::Decided(verdict) => verdict,
            Prepared::Pending(ref pending) => {
                let clock = request.clock.unwrap_or(&now);
                match self.decided_at_once(&state, pending, clock) {
                    Some(verdict) => verdict,
                    None => self.decide_by(&state, pending, clock).await,
                }
            }
        }
    }

    /// As [`check`](Self::check), if one store [that never waits](Limiter::check_at_once) decides, and without a future. Otherwise, the request is
    /// pending, and nothing is charged: also if it needs a [token](Pending::set_token) and has none.
    ///
    /// It is for an adapter that has just read the time of the request. `clock` is read again only if a signature was verified since.
    pub fn check_at_once(&self, request: &Request<'_>, clock: &(dyn Fn() -> UnixMillis + Sync)) -> Prepared {
        let state = self.state();
        let now = || if state.rules.tokens().is_some() { clock() } else { request.now() };
        self.prepare_by(&state, request, |terms, keyed| self.decide_plain(&state, request, terms, keyed, now))
    }

    /// Finds what applies to a request, and asks no store yet. For a caller that has to know the limits, or to keep the
    /// [hold](Pending::hold), before the store decides.
    pub fn prepare(&self, request: &Request<'_>) -> Prepared {
        let state = self.state();
        self.prepare_by(&state, request, |terms, keyed| Prepared::Pending(keyed.pending(request, terms)))
    }

    /// What applies to a request: what `by_one` finds, if one rule limits it.
    #[inline]
    fn prepare_by(
        &self,
        state: &State<'s>,
        request: &Request<'_>,
        by_one: impl FnOnce(&Arc<Terms>, Keyed) -> Prepared,
    ) -> Prepared {
        let rules = &*state.rules;
        let Some(applied) = rules.applied(request) else { return Prepared::Decided(Verdict::Pass(Pass::unlimited())) };
        if let Some(terms) = state.by_address(&applied, request) {
            let key = sender::address_key(request, &self.client_ip);
            return by_one(terms, Keyed { keys: OwnKeys::One(key), own: None });
        }
        let sender = Sender::of(request, rules, &self.client_ip);
        if sender.is_on(rules.denied()) {
            return self.refused(request, applied.first(), Outcome::Listed, Refusal::forbidden());
        }
        // An allowed sender is not limited, but its token is no more valid.
        if let (Some(Err(invalid)), Some(rule)) = (sender.token(), applied.refusing_invalid_tokens()) {
            return self.refused(request, rule, Outcome::InvalidToken, Refusal::unauthorized(invalid));
        }
        if sender.is_on(rules.allowed()) {
            return Prepared::Decided(Verdict::Pass(Pass::unlimited()));
        }
        if let Some((rule, address)) = applied.challenge() {
            return self.refused(request, rule, Outcome::Challenged, Refusal::challenged(address));
        }
        let (rule, on_failure, error) = match applied.only_place() {
            Some(place) => match state.terms[place][place_of(sender.tier())].as_ref() {
                Some(terms) => {
                    match rules.takes(request.limits).and_then(|()| Keyed::of(rules, request, &sender, terms)) {
                        Ok(keyed) => return by_one(terms, keyed),
                        Err(error) => (applied.first(), terms.on_failure, error),
                    }
                }
                None => return Prepared::Decided(Verdict::Pass(Pass::unlimited())),
            },
            None => match self.pending_by_all(state, request, &sender, &applied) {
                Some(Ok(pending)) => return Prepared::Pending(pending),
                Some(Err(failed)) => failed,
                None => return Prepared::Decided(Verdict::Pass(Pass::unlimited())),
            },
        };
        let verdict = self.failed_at(request.now(), rule.name(), on_failure, error);
        Prepared::Decided(self.told(rules, verdict))
    }

    /// Decides by one rule, if a store that never waits does, at the time that `now` reads right before. A request with a token or with limits of
    /// its own is pending, and so are all whose events are sent.
    #[inline]
    fn decide_plain(
        &self,
        State { rules, asked, .. }: &State<'s>,
        request: &Request<'_>,
        terms: &Arc<Terms>,
        keyed: Keyed,
        now: impl FnOnce() -> UnixMillis,
    ) -> Prepared {
        let has_own = request.token.is_some() || terms.needs_token || keyed.own.is_some();
        if has_own || self.events.is_some() {
            return Prepared::Pending(keyed.pending(request, terms));
        }
        let (now, cost) = (now(), request.cost.unwrap_or(terms.cost));
        let store = &asked[terms.store];
        // The check is an argument and no variable, which would be copied.
        let decided = store.asked().erased_check_at_once(Check {
            lease: terms.lease,
            ..Check::new(&terms.policy, keyed.keys.as_keys(), now).cost(cost)
        });
        store.hear(now, decided.as_ref());
        // As usual, there is nothing to tell.
        let is_admitted = matches!(&decided, Some(Ok(decision)) if decision.is_allowed()) && !self.notices.has_any();
        let decided = match decided {
            Some(Ok(decision)) if is_admitted => {
                return Prepared::Decided(Verdict::Pass(Pass::admitted(terms, &terms.policy, None, decision)));
            }
            decided => decided,
        };
        let pending = keyed.pending(request, terms);
        match decided {
            Some(decided) => Prepared::Decided(self.told(rules, self.decided(&pending, now, None, decided))),
            None => Prepared::Pending(pending),
        }
    }

    /// What is pending if several rules apply. `None` if none limits the sender.
    #[cold]
    fn pending_by_all<'r>(
        &self,
        state: &State<'s>,
        request: &Request<'_>,
        sender: &Sender<'_>,
        applied: &Applied<'r>,
    ) -> Option<Result<Pending, (&'r Rule, OnFailure, Error)>> {
        let (rules, tier) = (&*state.rules, sender.tier());
        let all = applied.terms(tier)?;
        let pending = |rule: &Rule, charged: (usize, Arc<Policy>), cost: u64| {
            let terms = Arc::new(Terms::new(rule, &all, cost, charged, rules.responses()));
            Keyed::of(rules, request, sender, &terms).map(|keyed| keyed.pending(request, &terms))
        };
        let found = rules.takes(request.limits).and_then(|()| match self.together(state, applied, tier) {
            Some(charged) => pending(all.first, charged, all.cost),
            None => self.one_by_one(applied, tier, pending),
        });
        Some(found.map_err(|error| (all.first, all.on_failure, error)))
    }

    /// The store and the policy of all rules that apply and limit a tier, if one store can decide by all of them at once.
    fn together(
        &self,
        State { rules, asked, .. }: &State<'s>,
        applied: &Applied<'_>,
        tier: Option<usize>,
    ) -> Option<(usize, Arc<Policy>)> {
        let mut stores = applied.limiting(tier).map(|rule| self.store(rule).ok());
        let store = stores.next()??;
        if !stores.all(|other| other == Some(store)) {
            return None;
        }
        let policy = applied.policy(rules, tier).ok()??;
        let can = asked[store].capabilities();
        let policy = if can.dimensions == Dimensions::Grouped { placed(policy) } else { policy };
        can.supports_policy(&policy).is_ok().then_some((store, policy))
    }

    /// What is pending for each rule that applies and limits a tier.
    fn one_by_one(
        &self,
        applied: &Applied<'_>,
        tier: Option<usize>,
        pending: impl Fn(&Rule, (usize, Arc<Policy>), u64) -> Result<Pending, Error>,
    ) -> Result<Pending, Error> {
        let mut found = Vec::new();
        for rule in applied.limiting(tier) {
            let Some(policy) = rule.policy(tier) else { continue };
            found.push(pending(rule, (self.store(rule)?, Arc::clone(policy)), rule.cost)?);
        }
        let mut others = found.into_iter();
        let first = others.next().ok_or_else(|| Error::new(ErrorKind::Invalid, "no rule limits the request"))?;
        Ok(Pending { others: others.collect(), ..first })
    }

    /// The token that [`prepare`](Gate::prepare) verifies, if the request has one. A host that verifies signatures asynchronously
    /// does it first, and then gives what it has found by its [`VerifyToken`].
    #[must_use]
    pub fn token(&self, request: &Request<'_>) -> Option<String> {
        let rules = self.rules();
        let tokens = rules.tokens().filter(|_| rules.find(request).is_some())?;
        let is_denied = Sender::without_token(request, &rules, &self.client_ip).is_on(rules.denied());
        if is_denied { None } else { tokens.of(request) }
    }

    /// The verdict on a request that no store was asked about, because the application could not say what it costs.
    #[must_use]
    pub fn failed(&self, pending: &Pending, error: Error) -> Verdict {
        self.told(&self.rules(), self.failed_at(pending.now, pending.rule(), OnFailure::Closed, error))
    }

    fn failed_at(&self, now: UnixMillis, rule: &str, on_failure: OnFailure, error: Error) -> Verdict {
        let kind = error.kind();
        self.notices.failed(rule, &error, now);
        if let Some(events) = &self.events {
            events.refused(now, rule, Outcome::FailedClosed, Some(kind));
        }
        Verdict::failed(on_failure, error)
    }

    /// A verdict with what is to be logged, unless the events go to a log.
    fn told(&self, rules: &Rules, verdict: Verdict) -> Verdict {
        let Some(mut notice) = self.notices.take() else { return verdict };
        if let Notice::Down { store, replaced, .. } = &mut notice {
            let around = rules.stores().iter().find(|rules| rules.name == *store);
            *replaced = around.and_then(|rules| rules.fallback()).map(Into::into);
        }
        match self.events.as_ref().filter(|events| events.logs()) {
            Some(events) => events.notice(&notice),
            None => return verdict.with_notice(notice),
        }
        verdict
    }

    fn refused(&self, request: &Request<'_>, rule: &Rule, outcome: Outcome, refusal: Refusal) -> Prepared {
        if let Some(events) = &self.events {
            events.refused(request.now(), rule.name(), outcome, None);
        }
        Prepared::Decided(Verdict::Refuse(refusal))
    }

    /// Asks the store for the decision on a request, at the time of the request.
    pub async fn decide(&self, pending: &Pending) -> Verdict {
        self.decide_at(pending, &|| pending.now).await
    }

    /// As [`decide`](Self::decide), by a clock that is read right before each store is asked: a token's verification or another store
    /// may have taken its time since the request was read, and the loans of a [lease](Rules#leases) end by this clock.
    pub async fn decide_at(&self, pending: &Pending, clock: &(dyn Fn() -> UnixMillis + Sync)) -> Verdict {
        self.decide_by(&self.state(), pending, clock).await
    }

    async fn decide_by(
        &self,
        state: &State<'s>,
        pending: &Pending,
        clock: &(dyn Fn() -> UnixMillis + Sync),
    ) -> Verdict {
        let mut verdict = self.decide_alone(state, pending, clock()).await;
        if !pending.is_alone() {
            verdict = self.decide_others(state, pending, verdict, clock).await;
        }
        self.told(&state.rules, verdict)
    }

    /// Decides by the rules that one store cannot decide by together with the first, until one denies.
    async fn decide_others(
        &self,
        state: &State<'s>,
        pending: &Pending,
        mut verdict: Verdict,
        clock: &(dyn Fn() -> UnixMillis + Sync),
    ) -> Verdict {
        for (place, other) in pending.others.iter().enumerate() {
            if matches!(verdict, Verdict::Refuse(_)) {
                break;
            }
            let next = self.decide_alone(state, other, clock()).await;
            if matches!(next, Verdict::Refuse(_)) {
                // What the others have charged is returned if it has a token, and otherwise stays charged.
                self.give_back(state, [pending].into_iter().chain(&pending.others[..place]), clock).await;
                return next;
            }
            // As of several quotas, the one with the fewest remaining is told.
            verdict = verdict.or_fewer(next);
        }
        verdict.holding(pending)
    }

    /// As [`decide_at`](Self::decide_at), if all that is asked is one store [that never waits](Limiter::check_at_once). `None` if it may wait:
    /// nothing is charged then.
    #[must_use]
    pub fn decide_at_once(&self, pending: &Pending, clock: &(dyn Fn() -> UnixMillis + Sync)) -> Option<Verdict> {
        self.decided_at_once(&self.state(), pending, clock)
    }

    fn decided_at_once(
        &self,
        state: &State<'s>,
        pending: &Pending,
        clock: &(dyn Fn() -> UnixMillis + Sync),
    ) -> Option<Verdict> {
        if !pending.is_alone() {
            return None;
        }
        let (now, started) = (clock(), self.started());
        let check = pending.check(now, self.settle_within);
        let decided = state.asked[pending.hold.terms.store].check_at_once(check)?;
        Some(self.told(&state.rules, self.decided(pending, now, started, decided)))
    }

    fn started(&self) -> Option<u64> {
        self.events.as_ref().and_then(Events::started)
    }

    /// Asks one store for the decision by one policy.
    async fn decide_alone(&self, state: &State<'s>, pending: &Pending, now: UnixMillis) -> Verdict {
        let started = self.started();
        let check = pending.check(now, self.settle_within);
        let decided = state.asked[pending.hold.terms.store].check(check).await;
        self.decided(pending, now, started, decided)
    }

    /// The verdict that follows from what a store has decided.
    fn decided(
        &self,
        pending: &Pending,
        now: UnixMillis,
        started: Option<u64>,
        decided: Result<Decision, Error>,
    ) -> Verdict {
        let verdict = match decided {
            Ok(decision) => verdict::decided(pending, decision, &self.draws),
            Err(error) => {
                self.notices.failed(pending.rule(), &error, now);
                Verdict::failed(pending.hold.terms.on_failure, error)
            }
        };
        if let Some(events) = &self.events {
            events.decided(pending, now, &verdict, started);
            if let Some(decision) = verdict.decision() {
                events.charged(&pending.hold, now, decision, Charged::Check(pending.cost()));
            }
        }
        verdict
    }

    /// Asks for the next loans of busy keys, and returns those of idle keys, by the limits that have a [lease](Rules#leases).
    ///
    /// Run it after each response, in a task or in `waitUntil`, for a gate that keeps them [for this](Gate::in_background), and in a task
    /// when a check was dropped: it finishes what the check has asked. `clock` is the caller's clock, and `pause` a timer of the host's
    /// for what can be told together; see [`LendingLimiter::after`](crate::store::LendingLimiter::after).
    pub async fn after(&self, clock: impl Fn() -> UnixMillis, pause: impl Future<Output = ()>) {
        #[cfg(feature = "lending")]
        {
            let now = clock();
            let has = self.state().asked.iter().map(|composed| composed.has_to_tell(now)).max();
            if has == Some(ToTell::Now) || has == Some(ToTell::Soon) && self.pausing.passed(pause).await {
                for composed in &self.state().asked {
                    composed.tell(clock()).await;
                }
            }
        }
        #[cfg(not(feature = "lending"))]
        let _ = (clock, pause);
    }

    /// Corrects what a request was charged to its actual cost; see [`Settle`].
    ///
    /// # Errors
    /// As [`LimiterExt::settle`]. [`UnknownCharge`](ErrorKind::UnknownCharge) for a request without a token.
    pub async fn settle(&self, hold: &Hold, cost: u64, now: UnixMillis) -> Result<Decision, Error> {
        self.settle_all(hold, Some(cost), now).await
    }

    /// Corrects what a request was charged to what it took, by the [prices](Rules::price) of a model: `counts` are the numbers of each of its
    /// units, as the model's answer has them.
    ///
    /// ```
    /// use tidegate_core::gate::{Gate, Prepared, Request, Rules};
    /// use tidegate_core::{ClientIpSource, MemoryLimiter, Platform, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// # pollster::block_on(async {
    /// let rules = Rules::parse("rules.json", r#"{
    ///     "prices": { "gpt-large": { "input": 3, "output": 15, "cached": 1 } },
    ///     "limits": { "tokens": { "quotas": [{ "algorithm": "fixed_window", "limit": 10000, "window_ms": 60000 }] } },
    ///     "rules": [{ "limits": ["tokens"], "estimate": 1 }]
    /// }"#)?;
    /// let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct))?;
    /// let (headers, now): ([(&str, &str); 0], _) = ([], UnixMillis::new(0));
    /// let estimate = gate.rules().price("gpt-large", &[("input", 100), ("output", 400)])?;
    /// let request = Request::new("POST", "/chat", &headers, now).token("a-random-token").cost(estimate);
    /// let Prepared::Pending(pending) = gate.prepare(&request) else { panic!() };
    /// gate.decide(&pending).await;
    /// let hold = pending.hold().expect("a token");
    /// let settled = gate.settle_priced(&hold, "gpt-large", &[("input", 120), ("output", 40)], now).await?;
    /// assert_eq!(settled.quotas()[0].remaining(), Some(10_000 - 960));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Rules::price`], which settle nothing, and those of [`Gate::settle`].
    pub async fn settle_priced(
        &self,
        hold: &Hold,
        model: &str,
        counts: &[(&str, u64)],
        now: UnixMillis,
    ) -> Result<Decision, Error> {
        let cost = self.rules().price(model, counts)?;
        self.settle(hold, cost, now).await
    }

    /// Gives back the slots that a request holds; see [`Settle::release`].
    ///
    /// # Errors
    /// As [`Gate::settle`].
    pub async fn release(&self, hold: &Hold, now: UnixMillis) -> Result<Decision, Error> {
        self.settle_all(hold, None, now).await
    }

    async fn settle_all(&self, hold: &Hold, cost: Option<u64>, now: UnixMillis) -> Result<Decision, Error> {
        let token = hold.token()?;
        let state = self.state();
        let mut settled = None;
        for one in [hold].into_iter().chain(&hold.others) {
            let Hold { terms, policy, keys, cost: charged, .. } = one;
            // Its window may have passed.
            let policy = policy.at(now);
            let release = Settle::release(&policy, keys.as_keys(), token, now);
            let decided = state.asked[terms.store].settle(Settle { cost, ..release }).await;
            if let (Some(events), Ok(decision), Some(more)) =
                (&self.events, &decided, cost.map(|cost| cost.saturating_sub(*charged)))
            {
                events.charged(one, now, decision, Charged::Settlement(more));
            }
            settled = Some(match (settled, decided) {
                (None | Some(Ok(_)), Err(error)) => Err(error),
                (Some(first), _) => first,
                (None, decided) => decided,
            });
        }
        settled.unwrap_or_else(|| Err(Error::unknown_charge()))
    }
}

impl State<'_> {
    /// The terms of the only rule that applies, if the client's address alone decides which key it counts by.
    #[inline]
    fn by_address(&self, applied: &Applied<'_>, request: &Request<'_>) -> Option<&Arc<Terms>> {
        let terms = self.terms[applied.only_place()?].first()?.as_ref()?;
        let is_other = request.has_identity() || !request.limits.is_empty();
        if terms.by_address && !is_other && !self.rules.may_change(&terms.policy) { Some(terms) } else { None }
    }
}

/// What a request counts by.
struct Keyed {
    keys: OwnKeys,
    /// Its policy, if that is not the one of its terms.
    own: Option<Arc<Policy>>,
}

impl Keyed {
    #[inline]
    fn of(rules: &Rules, request: &Request<'_>, sender: &Sender<'_>, terms: &Terms) -> Result<Self, Error> {
        let keys = sender.keys(&terms.policy, request.keys)?;
        let own = if rules.may_change(&terms.policy) {
            let claim = |name: &str| sender.claimed_limit(name);
            let numbers = Numbers { claim: &claim, given: request.limits };
            Some(rules.numbered(&terms.policy, sender.tier(), &keys, numbers, request.now())?)
        } else {
            None
        };
        Ok(Self { keys, own })
    }

    fn pending(self, request: &Request<'_>, terms: &Arc<Terms>) -> Pending {
        let policy = self.own.unwrap_or_else(|| Arc::clone(&terms.policy));
        Pending::new(request, terms, policy, self.keys)
    }
}
