//! Which rule, keys and limits apply to a request, and why.

use std::fmt;
use std::sync::Arc;

use super::OnFailure;
use super::request::Request;
use super::rules::{Applied, LimitNumber, Numbers as Given, Rule, Rules};
use super::sender::{Entry, Sender};
use super::stores::StoreRules;
use super::token::InvalidToken;
use crate::algorithm::CalendarWindow;
#[cfg(feature = "calendar")]
use crate::calendar::to_the_minute;
use crate::dimension::OwnKeys;
use crate::lending::Lease;
use crate::{ClientIpSource, Error, Key, Policy, Quota};

/// Which rule, keys and limits apply to a request, and why. [`Rules::explain`] makes it. Its text is for people; see the
/// fields for everything else.
///
/// ```
/// use tidegate_core::gate::{Request, Rules};
/// use tidegate_core::{ClientIpSource, Platform, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let rules = Rules::parse("rules.json", r#"{
///     "limits": { "login": { "quotas": [{ "algorithm": "fixed_window", "limit": 5, "window_ms": 60000, "by": "ip" }] } },
///     "rules": [{ "name": "login", "path": "/login", "methods": ["POST"], "limits": ["login"] }]
/// }"#)?;
/// let headers = [("cf-connecting-ip", "192.0.2.1")];
/// let request = Request::new("POST", "/login", &headers, UnixMillis::new(0));
/// let explanation = rules.explain(&request, &ClientIpSource::new(Platform::Cloudflare));
/// assert_eq!(explanation.to_string(), "\
/// rule     login: POST /login
/// sender   192.0.2.1
/// cost     1
/// limit    login: fixed_window of 5 in 60 s, by ip = ip:192.0.2.1
/// store    the first
/// failure  closed: a 503 while the store is down
/// ");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Explanation<'r> {
    /// The rule. `None` if no rule matches, and the request is not limited.
    pub rule: Option<&'r Rule>,
    /// The rules that apply too, because the path can be read in several ways.
    pub also: Vec<&'r Rule>,
    /// The rules that match too, but are less specific.
    pub others: Vec<&'r Rule>,
    /// The client's address, if there is one.
    pub address: Option<std::net::IpAddr>,
    /// The key of the identity that is counted, unless that is the address.
    pub verified: Option<Key>,
    /// How that identity is known.
    verified_by: &'static str,
    /// Whether the token is valid, if there is one.
    pub token: Option<Result<(), InvalidToken>>,
    /// Whether the rule refuses the request because of its token.
    pub is_refused: bool,
    /// The sender's tier, if a limit has it.
    pub tier: Option<&'r str>,
    /// The list that the sender is on.
    pub listed: Option<Listed>,
    /// What of the sender that list has.
    entry: Option<Entry>,
    /// The address of the challenge that the request has to pass.
    pub challenge: Option<&'r str>,
    /// What is around its store.
    around: Option<&'r StoreRules>,
    /// The stores that others replace, if it counts in the first and nobody knows which that is.
    perhaps_replaced: Vec<(&'r str, &'r str)>,
    /// What happens if the store fails.
    pub on_failure: OnFailure,
    /// Why the rules that apply cannot be decided together. They are then decided one after another.
    pub unsupported: Option<Error>,
    /// The cost.
    pub cost: u64,
    /// The policy, with the limits that apply to the request. `None` if it is not limited.
    pub policy: Option<Arc<Policy>>,
    /// Its limit's lease: it may be decided from loans.
    pub lease: Option<Lease>,
    /// The key of each dimension of the policy, in its order.
    pub keys: Vec<Result<Key, Error>>,
    /// The quotas whose limit may be another than the rules file's, or why there is none that applies.
    numbers: Result<Vec<LimitNumber<'r>>, Error>,
}

/// A list of senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Listed {
    /// They are not limited.
    Allowed,
    /// They are refused.
    Denied,
}

impl Rules {
    /// Explains what applies to a request. It asks no store.
    #[must_use]
    pub fn explain(&self, request: &Request<'_>, client_ip: &ClientIpSource) -> Explanation<'_> {
        let applied = self.applied(request);
        let (rule, also) = match &applied {
            Some(applied) => (Some(applied.first()), applied.rules().skip(1).collect()),
            None => (None, Vec::new()),
        };
        let is_other = |known: &&Rule| applied.iter().flat_map(Applied::rules).all(|rule| rule.name() != known.name());
        let others = self.matching(request).into_iter().filter(is_other).collect();
        let sender = Sender::of(request, self, client_ip);
        let (listed, entry) = match (sender.entry_of(self.denied()), sender.entry_of(self.allowed())) {
            (Some(entry), _) => (Some(Listed::Denied), Some(entry)),
            (None, Some(entry)) => (Some(Listed::Allowed), Some(entry)),
            (None, None) => (None, None),
        };
        let token = sender.token();
        let refusing = applied.as_ref().and_then(Applied::refusing_invalid_tokens);
        let is_refused = matches!(token, Some(Err(_))) && refusing.is_some();
        let limited = applied.as_ref().filter(|_| listed.is_none() && !is_refused);
        let policy = limited.map_or(Ok(None), |applied| applied.policy(self, sender.tier()));
        let (policy, unsupported) = match policy {
            Ok(policy) => (policy, None),
            Err(error) => (None, Some(error)),
        };
        let dimensions = policy.as_ref().map_or(&[][..], |policy| policy.dimensions());
        let terms = applied.as_ref().and_then(|applied| applied.terms(sender.tier()));
        let cost = terms.as_ref().map(|terms| terms.cost).or(rule.map(Rule::cost));
        let keys = dimensions.iter().map(|dimension| sender.key(dimension, request.keys)).collect();
        let (policy, numbers) = match policy {
            Some(policy) => self.explained(policy, &sender, request),
            None => (None, Ok(Vec::new())),
        };
        Explanation {
            rule,
            also,
            others,
            around: rule.and_then(|rule| self.around(rule)),
            perhaps_replaced: rule.map_or_else(Vec::new, |rule| self.perhaps_replaced(rule)),
            challenge: applied.as_ref().and_then(Applied::challenge).map(|(_, address)| address),
            on_failure: terms.map(|terms| terms.on_failure).unwrap_or_default(),
            unsupported,
            address: sender.address(),
            verified: sender.verified().cloned(),
            verified_by: sender.verified_by(),
            token,
            is_refused,
            tier: sender.tier().map(|place| self.tier_name(place)),
            listed,
            entry,
            cost: request.cost.or(cost).unwrap_or(1),
            lease: policy.as_ref().and(rule).and_then(Rule::lease),
            policy,
            keys,
            numbers,
        }
    }

    /// A policy with the numbers that apply, and where they come from.
    fn explained(
        &self,
        policy: Arc<Policy>,
        sender: &Sender<'_>,
        request: &Request<'_>,
    ) -> (Option<Arc<Policy>>, Result<Vec<LimitNumber<'_>>, Error>) {
        let policy = self.current(&policy, request.now());
        // Of a request that lacks a key, the numbers of its others are told.
        let keys = OwnKeys::known(&policy, &|dimension| sender.key(dimension, request.keys).ok());
        let claim = |name: &str| sender.claimed_limit(name);
        let given = Given { claim: &claim, given: request.limits };
        let numbers =
            self.takes(request.limits).and_then(|()| self.numbers(&policy, sender.tier(), keys.as_ref(), given));
        let numbered = numbers.as_ref().ok().map(|numbers| LimitNumber::applied(&policy, numbers));
        (Some(numbered.and_then(Result::ok).unwrap_or(policy)), numbers)
    }
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(rule) = self.rule else { return writeln!(f, "rule     none matches: not limited") };
        writeln!(f, "rule     {}: {}", rule.name(), rule.pattern)?;
        for also in &self.also {
            writeln!(f, "         and, as the path can be read so, {}: {}", also.name(), also.pattern)?;
        }
        for other in &self.others {
            writeln!(f, "         more specific than {}: {}", other.name(), other.pattern)?;
        }
        self.sender(f)?;
        let entry = self.entry.as_ref();
        if let (Some(Listed::Denied), Some(entry)) = (self.listed, entry) {
            return writeln!(f, "list     deny has {entry}: refused with a 403");
        }
        if let Some(Err(InvalidToken(reason))) = self.token {
            let then = if self.is_refused { "refused with a 401" } else { "ignored" };
            writeln!(f, "token    invalid, because {reason}: {then}")?;
            if self.is_refused {
                return Ok(());
            }
        }
        if let Some(entry) = entry {
            return writeln!(f, "list     allow has {entry}: not limited");
        }
        if let Some(address) = self.challenge {
            return writeln!(f, "challenge at {address}: refused with a 403");
        }
        if let Some(error) = &self.unsupported {
            return writeln!(f, "limit    those of each rule, one after another: {error}");
        }
        let Some(policy) = &self.policy else { return writeln!(f, "limit    none") };
        writeln!(f, "cost     {}", self.cost)?;
        let numbers = match &self.numbers {
            Ok(numbers) => numbers,
            Err(error) => return writeln!(f, "limit    unknown: {error}: refused with a 503"),
        };
        for (dimension, key) in policy.dimensions().iter().zip(&self.keys) {
            for place in dimension.quotas() {
                let quota = &policy.quotas()[place];
                write!(f, "limit    {}: {}, by ", quota.name(), Numbers(quota))?;
                let name = if dimension.name().is_empty() { "sender" } else { dimension.name() };
                match key {
                    Ok(key) => write!(f, "{name} = {key}")?,
                    Err(error) => write!(f, "{name}: {error}")?,
                }
                match numbers.iter().find(|number| number.is_of(place)) {
                    Some(number) => writeln!(f, "{number}")?,
                    None => writeln!(f)?,
                }
            }
        }
        write!(f, "store    {}", rule.store().unwrap_or("the first"))?;
        match self.around {
            Some(around) => writeln!(f, "{around}")?,
            None => writeln!(f)?,
        }
        if let Some(lease) = self.lease {
            writeln!(f, "lease    {lease}")?;
        }
        f.write_str("failure  ")?;
        if let Some((store, at_most)) = self.around.and_then(StoreRules::replacement) {
            write!(f, "{store} decides for {at_most}, then ")?;
        }
        f.write_str(match self.on_failure {
            OnFailure::Open => "open: not limited while the store is down",
            OnFailure::Closed => "closed: a 503 while the store is down",
        })?;
        for (main, store) in &self.perhaps_replaced {
            write!(f, ", unless the first store is {main}, in whose place {store} decides first")?;
        }
        writeln!(f)
    }
}

impl Explanation<'_> {
    /// Why the request cannot be decided: a key that the application has to give, or a limit that cannot be read.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.keys.iter().find_map(|key| key.as_ref().err()).or(self.numbers.as_ref().err())
    }

    fn sender(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sender   ")?;
        match (&self.verified, self.address) {
            (Some(key), _) => write!(f, "{key}, {}", self.verified_by)?,
            (None, Some(address)) => write!(f, "{address}")?,
            (None, None) => f.write_str("unknown: the platform reports no address")?,
        }
        match self.tier {
            Some(tier) => writeln!(f, ", tier {tier}"),
            None => writeln!(f),
        }
    }
}

/// The algorithm and the numbers of a quota.
struct Numbers<'a>(&'a Quota);

impl fmt::Display for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::Rule;
        let rule = self.0.rule();
        let (name, [most, span, rate]) = (rule.name(), rule.parameters());
        let long = |ms: u64| if ms.is_multiple_of(1_000) { format!("{} s", ms / 1_000) } else { format!("{ms} ms") };
        let span = long(span);
        match rule {
            Rule::Penalty(penalty) if !penalty.punishes() => write!(f, "{name} by hand, of at most {}", long(most)),
            Rule::Penalty(_) => {
                write!(f, "{name} of {span}, times {rate} for each further violation, up to {}", long(most))
            }
            Rule::Balance(balance) if balance.covers() => {
                write!(f, "{name} of up to {most}, for what is beyond the quota before")
            }
            Rule::Balance(_) => write!(f, "{name} of up to {most}"),
            Rule::TokenBucket(_) | Rule::LeakyBucket(_) => write!(f, "{name} of {most}, {rate} in {span}"),
            Rule::Concurrency(_) => write!(f, "{name} of {most}, each for at most {span}"),
            Rule::CalendarWindow(window) => calendar_window(f, self.0, window),
            _ => write!(f, "{name} of {most} in {span}"),
        }
    }
}

fn calendar_window(f: &mut fmt::Formatter<'_>, quota: &Quota, window: &CalendarWindow) -> fmt::Result {
    write!(f, "{} of {}", quota.rule().name(), quota.rule().limit())?;
    #[cfg(feature = "calendar")]
    if let Some(calendar) = quota.calendar() {
        write!(f, " each {} in {}, from {}", calendar.every().name(), calendar.zone_name(), calendar.anchor_text())?;
    }
    let end = window.start() + window.window();
    #[cfg(feature = "calendar")]
    write!(f, ", now from {} to {}", to_the_minute(window.start()), to_the_minute(end))?;
    #[cfg(not(feature = "calendar"))]
    write!(f, ", now from {} to {}", window.start(), end)?;
    if window.carry_over() > 0 {
        write!(f, ", and up to {} that the one before has left", window.carry_over())?;
    }
    Ok(())
}
