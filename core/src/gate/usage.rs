//! What a sender has used of its limits.

use std::fmt::Write as _;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use super::dimension_names::SENDER;
use super::rules::{CountedLimit, Numbers, placed};
use super::sender::Sender;
use super::stores::Composed;
use super::{Gate, Refusal, Request, Rules, State};
use crate::dimension::OwnKeys;
use crate::{
    Check, Decision, Dimensions, Error, Key, Limiter as _, LimiterExt as _, Millis, Origin, Policy, UnixMillis,
};

/// What the sender of a request has used of its limits, without a charge; see [`Gate::usage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    quotas: Vec<QuotaUsage>,
}

/// What a sender has used of one quota.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaUsage {
    /// The name of the limit.
    pub policy: Box<str>,
    /// The name of the quota.
    pub quota: Box<str>,
    /// The dimension that it counts by, such as `ip`.
    pub by: Box<str>,
    /// The name of the store that counts, if the rules name it.
    pub store: Option<Box<str>>,
    /// The most units that are admitted at once, for this sender.
    pub limit: u64,
    /// How many more requests of cost 1 would be admitted now. `None` if it is not known, and for a penalty that does not block.
    pub remaining: Option<u64>,
    /// The limit less what remains. A debt counts as nothing remaining.
    pub used: Option<u64>,
    /// How long until the quota is unused, if nothing else arrives. `None` for a concurrency limit, and if it is not known.
    pub reset_after: Option<Millis>,
    /// The component that counts: another than the store if that is down.
    pub origin: Origin,
}

impl Usage {
    /// Each quota, in the order of the rules.
    #[must_use]
    pub fn quotas(&self) -> &[QuotaUsage] {
        &self.quotas
    }

    /// The body of a response: JSON without a key, an identity or the name of a store. Unknown numbers are `null`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = String::with_capacity(32 + 128 * self.quotas.len());
        out.push_str(r#"{"quotas":["#);
        for (place, quota) in self.quotas.iter().enumerate() {
            let QuotaUsage { policy, quota, by, limit, remaining, used, reset_after, origin, .. } = quota;
            let comma = if place == 0 { "" } else { "," };
            // The names of limits, quotas and dimensions need no escapes.
            let _ = write!(out, r#"{comma}{{"policy":"{policy}","quota":"{quota}","by":"{by}","limit":{limit}"#);
            let numbers =
                [("remaining", *remaining), ("used", *used), ("reset_after_ms", reset_after.map(Millis::get))];
            for (name, number) in numbers {
                let _ = match number {
                    Some(number) => write!(out, r#","{name}":{number}"#),
                    None => write!(out, r#","{name}":null"#),
                };
            }
            if *origin != Origin::Store {
                let _ = write!(out, r#","origin":"{}""#, origin.name());
            }
            out.push('}');
        }
        out.push_str("]}");
        out
    }
}

/// What is to be asked for the [usage](Gate::usage) of a sender.
#[derive(Debug)]
pub struct PendingUsage {
    questions: Vec<Question>,
}

/// What one store is asked in one step.
#[derive(Debug)]
struct Question {
    store: usize,
    named: Option<Box<str>>,
    /// The first rule that counts by it.
    rule: Arc<str>,
    /// It may be of several limits.
    policy: Arc<Policy>,
    keys: OwnKeys,
    /// Whether nothing else is asked in the same step: a store decides by a limit that it lends alone.
    is_alone: bool,
}

impl<'s> Gate<'s> {
    /// What the sender of a request has used of its limits: of each limit by which a rule counts, whatever the request asks for, with the
    /// sender's tier, identity and [numbers](Rules#limits-from-data). Nothing is charged. A limit that counts by a dimension of which
    /// the request has [no key](Request::keys) is left out. A sender on the list `allow` has no limits.
    ///
    /// Each limit is asked for once in each store, at the same time, and those that one store can decide by together in one step: so it
    /// is one trip for at most eight quotas in one store. The units of a [lease](Rules#leases) that processes hold count as used. While a store is down, its `fallback` tells
    /// what it counts.
    ///
    /// ```
    /// use tidegate_core::gate::{Gate, Request, Rules};
    /// use tidegate_core::{ClientIpSource, MemoryLimiter, Platform, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// # pollster::block_on(async {
    /// let rules = Rules::parse("rules.json", r#"{
    ///     "limits": {
    ///         "api": { "quotas": [{ "algorithm": "fixed_window", "limit": 100, "window_ms": 60000 }] },
    ///         "login": { "quotas": [{ "algorithm": "fixed_window", "limit": 5, "window_ms": 60000, "by": "ip" }] }
    ///     },
    ///     "rules": [{ "path": "/login", "limits": ["login"] }, { "path": "/api/*", "limits": ["api"] }]
    /// }"#)?;
    /// let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Cloudflare))?;
    /// let (headers, now) = ([("cf-connecting-ip", "192.0.2.1")], UnixMillis::new(1_800_000_045_000));
    /// gate.check(&Request::new("GET", "/api/items", &headers, now)).await;
    ///
    /// let usage = gate.usage(&Request::new("GET", "/usage", &headers, now)).await.unwrap();
    /// let [login, api] = usage.quotas() else { panic!() };
    /// assert_eq!((&*login.policy, login.used, login.remaining), ("login", Some(0), Some(5)));
    /// assert_eq!((&*api.policy, api.used, api.remaining), ("api", Some(1), Some(99)));
    /// assert_eq!(
    ///     usage.to_json(),
    ///     r#"{"quotas":[{"policy":"login","quota":"login","by":"ip","limit":5,"remaining":5,"used":0,"reset_after_ms":0},"#.to_owned()
    ///         + r#"{"policy":"api","quota":"api","by":"sender","limit":100,"remaining":99,"used":1,"reset_after_ms":15000}]}"#
    /// );
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The response to send: a 403 for a sender on the list `deny`, a 401 for an invalid token if any rule refuses those, a 503 if a store
    /// does not answer, also under a rule that [opens](super::OnFailure::Open), and a 500 for a request without the address that it is
    /// counted by.
    pub async fn usage(&self, request: &Request<'_>) -> Result<Usage, Box<Refusal>> {
        let pending = self.prepare_usage(request)?;
        let now = request.now();
        let at_once = || now;
        self.tell_usage(&pending, request.clock.unwrap_or(&at_once)).await
    }

    /// Finds what to ask for the [usage](Gate::usage) of a sender, and asks no store yet.
    ///
    /// # Errors
    /// As [`Gate::usage`], but for those of stores.
    pub fn prepare_usage(&self, request: &Request<'_>) -> Result<PendingUsage, Box<Refusal>> {
        let State { rules, asked, .. } = &*self.state();
        let sender = Sender::of(request, rules, self.client_ip());
        if sender.is_on(rules.denied()) {
            return Err(Box::new(Refusal::forbidden()));
        }
        if let (Some(Err(invalid)), true) = (sender.token(), rules.refuse_invalid_tokens()) {
            return Err(Box::new(Refusal::unauthorized(invalid)));
        }
        if sender.is_on(rules.allowed()) {
            return Ok(PendingUsage { questions: Vec::new() });
        }
        let found = rules.takes(request.limits).and_then(|()| self.questions(rules, asked, request, &sender));
        let questions = found.map_err(|error| Box::new(Refusal::failed(error)))?;
        let lacks_address = || questions.iter().any(|question| question.keys.any(Key::has_missing_ip));
        if self.client_ip().reads_peer() && request.peer.is_none() && lacks_address() {
            let message = "peer: the request has no address of its connection";
            return Err(Box::new(Refusal::misconfigured(Error::invalid(message))));
        }
        Ok(PendingUsage { questions })
    }

    /// Asks the stores for what [`Gate::prepare_usage`] has found, by a clock that is read right before.
    ///
    /// # Errors
    /// As [`Gate::usage`], but for those of requests.
    pub async fn tell_usage(
        &self,
        PendingUsage { questions }: &PendingUsage,
        clock: &(dyn Fn() -> UnixMillis + Sync),
    ) -> Result<Usage, Box<Refusal>> {
        let state = self.state();
        let ask = async |question: &Question| {
            let (asked, now) = (&state.asked[question.store], clock());
            // A charge of nothing is not denied by what is asked first.
            let cost = u64::from(!asked.capabilities().costs);
            asked.peek(Check::new(&question.policy, question.keys.as_keys(), now).cost(cost)).await
        };
        let mut quotas = Vec::new();
        for (question, told) in questions.iter().zip(at_once(questions.iter().map(ask)).await) {
            let decision = told.map_err(|error| {
                self.notices.failed(&question.rule, &error, clock());
                Box::new(Refusal::failed(error))
            })?;
            question.read(&decision, &mut quotas);
        }
        Ok(Usage { quotas })
    }

    /// Checks that the stores of all rules can tell the [usage](Gate::usage) of a sender.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) with the first rule whose store cannot.
    pub fn can_tell_usage(&self) -> Result<(), Error> {
        let State { rules, asked, .. } = &*self.state();
        for rule in rules.rules() {
            let can = asked[self.store(rule)?].capabilities();
            let able =
                can.require(can.peek, "a peek, which tells what is used; count this rule's limits in one that does");
            able.map_err(|error| rule.invalid(&error))?;
        }
        Ok(())
    }

    fn questions(
        &self,
        rules: &Rules,
        asked: &[Composed<'s>],
        request: &Request<'_>,
        sender: &Sender<'_>,
    ) -> Result<Vec<Question>, Error> {
        let mut questions: Vec<Question> = Vec::new();
        for CountedLimit { rule, policy } in rules.every_limit(sender.tier()) {
            // Without a key in each dimension, nothing counts the sender.
            if sender.keys(&policy, request.keys).is_err() {
                continue;
            }
            let store = self.store(rule)?;
            let can = asked[store].capabilities();
            let policy = if can.dimensions == Dimensions::Grouped { placed(policy) } else { policy };
            let is_alone = rule.lease.is_some();
            let joined = questions.iter_mut().filter(|other| other.store == store && !other.is_alone && !is_alone);
            let joined = joined.filter_map(|other| {
                let policy = Policy::join([&*other.policy, &*policy]).ok()?;
                let policy =
                    if can.dimensions == Dimensions::Grouped { placed(Arc::new(policy)) } else { Arc::new(policy) };
                can.supports_policy(&policy).is_ok().then_some((other, policy))
            });
            match { joined }.next() {
                Some((other, policy)) => other.policy = policy,
                None => {
                    let (named, rule) = (rule.store().map(Into::into), rule.shared_name());
                    questions.push(Question {
                        store,
                        named,
                        rule,
                        policy,
                        keys: OwnKeys::Many(Box::default()),
                        is_alone,
                    });
                }
            }
        }
        let claim = |name: &str| sender.claimed_limit(name);
        let numbers = Numbers { claim: &claim, given: request.limits };
        for question in &mut questions {
            question.keys = sender.keys(&question.policy, request.keys)?;
            let policy = rules.numbered(&question.policy, sender.tier(), &question.keys, numbers, request.now())?;
            question.policy = policy;
        }
        Ok(questions)
    }
}

impl Question {
    fn read(&self, decision: &Decision, quotas: &mut Vec<QuotaUsage>) {
        for dimension in self.policy.dimensions() {
            for place in dimension.quotas() {
                let (quota, Some(status)) = (&self.policy.quotas()[place], decision.quotas().get(place)) else {
                    continue;
                };
                let remaining = status.remaining();
                quotas.push(QuotaUsage {
                    policy: dimension.policy().into(),
                    quota: quota.name().into(),
                    by: if quota.dimension().is_empty() { SENDER } else { quota.dimension() }.into(),
                    store: self.named.clone(),
                    limit: status.limit(),
                    remaining,
                    used: remaining.map(|remaining| status.limit().saturating_sub(remaining)),
                    reset_after: status.reset_after(),
                    origin: decision.origin(),
                });
            }
        }
    }
}

/// What all of these return, which run at the same time.
async fn at_once<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    enum Running<F: Future> {
        Still(Pin<Box<F>>),
        Over(Option<F::Output>),
    }
    let mut running: Vec<_> = futures.map(|future| Running::Still(Box::pin(future))).collect();
    let all = poll_fn(move |context| {
        let mut is_over = true;
        for one in &mut running {
            if let Running::Still(future) = one {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *one = Running::Over(Some(output)),
                    Poll::Pending => is_over = false,
                }
            }
        }
        let take = |one: &mut Running<F>| match one {
            Running::Over(output) => output.take(),
            Running::Still(_) => None,
        };
        if is_over { Poll::Ready(running.iter_mut().filter_map(take).collect()) } else { Poll::Pending }
    });
    all.await
}
