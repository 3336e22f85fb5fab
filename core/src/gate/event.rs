//! One record per decision, for logs and metrics.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};

use siphasher::sip::SipHasher13;

use super::warning::{Charged, warnings};
use super::{Hold, Notice, Pending, Verdict, Warning};
use crate::{Decision, ErrorKind, Key, MaybeSend, MaybeSync, Origin, Status, UnixMillis};

/// What a gate did with one request. It has no address, no subject and no API key.
///
/// ```
/// use std::sync::Mutex;
/// use tidegate_core::gate::{Events, Gate, OnFailure, Request, Rules};
/// use tidegate_core::{ClientIpSource, MemoryLimiter, Millis, Platform, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// let policy = Policy::new("api", [Quota::fixed_window(1, Millis::from_secs(60))?])?;
/// let rules = Rules::all(policy, OnFailure::Closed);
/// let events = Events::new(|event: &tidegate_core::gate::Event<'_>| LINES.lock().unwrap().push(event.to_json()));
/// let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct))?.events(events);
/// let request = Request::new("GET", "/", &[("host", "example.com")], UnixMillis::new(1_800_000_000_000));
/// pollster::block_on(gate.check(&request));
/// let line = LINES.lock().unwrap().remove(0);
/// assert!(line.starts_with(r#"{"at_ms":1800000000000,"rule":"api","policy":"api","outcome":"allowed","quota":"api","key":""#));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// When the request was checked.
    pub at: UnixMillis,
    /// The rule.
    pub rule: &'a str,
    /// The policy: the names of its limits. Empty if the sender is on a list.
    pub policy: &'a str,
    /// What happened to the request.
    pub outcome: Outcome,
    /// The binding quota.
    pub quota: Option<&'a str>,
    /// A hash of the key that the binding quota counts by; see [`Events::key_secret`].
    pub key: Option<u64>,
    /// The binding quota's limit.
    pub limit: Option<u64>,
    /// How many more requests of cost 1 fit into the binding quota.
    pub remaining: Option<u64>,
    /// What a balance paid for the request. 0 for a repeated answer, which took nothing.
    pub from_balance: u64,
    /// The component that decided.
    pub origin: Option<Origin>,
    /// The kind of the error, if the limiter did not decide.
    pub error: Option<ErrorKind>,
    /// How long the store took, in microseconds, if there is a [timer](Events::timer).
    pub latency_us: Option<u64>,
    /// How many requests this event stands for: more than 1 for a sample of those that were allowed.
    pub weight: u32,
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// A limit admitted it.
    Allowed,
    /// A limit denied it.
    Denied,
    /// It costs more than a limit can hold.
    NeverAdmissible,
    /// The list `deny` has its sender.
    Listed,
    /// The rule asks for a challenge.
    Challenged,
    /// Its token is invalid, and the rule refuses it.
    InvalidToken,
    /// The store failed, and it passed.
    FailedOpen,
    /// The limiter failed, and it was refused.
    FailedClosed,
}

impl Outcome {
    /// A stable name in snake case.
    ///
    /// ```
    /// assert_eq!(tidegate_core::gate::Outcome::FailedOpen.name(), "failed_open");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::NeverAdmissible => "never_admissible",
            Self::Listed => "listed",
            Self::Challenged => "challenged",
            Self::InvalidToken => "invalid_token",
            Self::FailedOpen => "failed_open",
            Self::FailedClosed => "failed_closed",
        }
    }
}

impl Event<'_> {
    /// One line of JSON, without a line end. Unknown values are left out.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = String::with_capacity(192);
        // The names of rules, policies and quotas need no escapes.
        let _ = write!(out, r#"{{"at_ms":{},"rule":"{}""#, self.at.get(), self.rule);
        if !self.policy.is_empty() {
            let _ = write!(out, r#","policy":"{}""#, self.policy);
        }
        let _ = write!(out, r#","outcome":"{}""#, self.outcome.name());
        if let Some(quota) = self.quota {
            let _ = write!(out, r#","quota":"{quota}""#);
        }
        if let Some(key) = self.key {
            let _ = write!(out, r#","key":"{key:016x}""#);
        }
        let numbers = [("limit", self.limit), ("remaining", self.remaining), ("latency_us", self.latency_us)];
        for (name, value) in numbers.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            let _ = write!(out, r#","{name}":{value}"#);
        }
        if self.from_balance > 0 {
            let _ = write!(out, r#","from_balance":{}"#, self.from_balance);
        }
        if let Some(origin) = self.origin {
            let _ = write!(out, r#","origin":"{}""#, origin.name());
        }
        if let Some(error) = self.error {
            let _ = write!(out, r#","error":"{}""#, error.name());
        }
        if self.weight > 1 {
            let _ = write!(out, r#","weight":{}"#, self.weight);
        }
        out.push('}');
        out
    }
}

/// Receives events. Implemented by functions of an event.
pub trait EventSink: MaybeSend + MaybeSync {
    /// Takes an event. It must not block: the request waits for it.
    fn event(&self, event: &Event<'_>);

    /// Takes a warning that a key has reached a part of its limit. It must not block.
    fn warning(&self, warning: &Warning<'_>) {
        let _ = warning;
    }

    /// Whether it logs [notices](Self::notice), so that an adapter need not. The default is no.
    fn logs(&self) -> bool {
        false
    }

    /// Takes what is to be logged of failures, if it [logs](Self::logs).
    fn notice(&self, notice: &Notice) {
        let _ = notice;
    }
}

impl<F: Fn(&Event<'_>) + MaybeSend + MaybeSync> EventSink for F {
    fn event(&self, event: &Event<'_>) {
        self(event);
    }
}

/// Both take each event. Nest pairs for more.
///
/// ```
/// # #[cfg(all(feature = "metrics", feature = "tracing"))] {
/// use tidegate_core::gate::{Events, MetricsSink, TracingSink};
/// let events = Events::new((MetricsSink, TracingSink::default()));
/// # }
/// ```
impl<A: EventSink, B: EventSink> EventSink for (A, B) {
    fn event(&self, event: &Event<'_>) {
        self.0.event(event);
        self.1.event(event);
    }

    fn warning(&self, warning: &Warning<'_>) {
        self.0.warning(warning);
        self.1.warning(warning);
    }

    fn logs(&self) -> bool {
        self.0.logs() || self.1.logs()
    }

    fn notice(&self, notice: &Notice) {
        self.0.notice(notice);
        self.1.notice(notice);
    }
}

/// Where a [`Gate`](super::Gate) sends its events, and which.
pub struct Events {
    sink: Box<dyn EventSink>,
    every: NonZero<u32>,
    allowed: AtomicU64,
    secret: (u64, u64),
    timer: Option<fn() -> u64>,
}

impl Events {
    /// Sends every event to a sink.
    pub fn new(sink: impl EventSink + 'static) -> Self {
        // The standard library's source of random secrets.
        let secret = || RandomState::new().build_hasher().finish();
        Self {
            sink: Box::new(sink),
            every: NonZero::<u32>::MIN,
            allowed: AtomicU64::new(0),
            secret: (secret(), secret()),
            timer: None,
        }
    }

    /// Sends one event for each `every` allowed requests. All other events are always sent.
    #[must_use]
    pub const fn sample_allowed(mut self, every: NonZero<u32>) -> Self {
        self.every = every;
        self
    }

    /// Sets the secret by which keys are hashed (SipHash-1-3), so that their hashes are the same in all processes. By default,
    /// each process draws its own, so that nobody can find an address by trying all. The target `wasm32-unknown-unknown` has no
    /// random numbers: set a secret there.
    #[must_use]
    pub const fn key_secret(mut self, secret: [u8; 16]) -> Self {
        let whole = u128::from_le_bytes(secret);
        #[expect(clippy::cast_possible_truncation, reason = "each half")]
        let halves = (whole as u64, (whole >> 64) as u64);
        self.secret = halves;
        self
    }

    /// Sets a clock that counts microseconds, to measure how long stores take.
    #[must_use]
    pub const fn timer(mut self, timer: fn() -> u64) -> Self {
        self.timer = Some(timer);
        self
    }

    pub(super) fn logs(&self) -> bool {
        self.sink.logs()
    }

    pub(super) fn notice(&self, notice: &Notice) {
        self.sink.notice(notice);
    }

    pub(super) fn started(&self) -> Option<u64> {
        self.timer.map(|timer| timer())
    }

    /// Tells of a decision of a store that was asked at `started`.
    pub(super) fn decided(&self, pending: &Pending, at: UnixMillis, verdict: &Verdict, started: Option<u64>) {
        let (outcome, weight) = match (verdict, verdict.decision()) {
            (Verdict::Pass(_), Some(_)) => {
                let nth = self.allowed.fetch_add(1, Ordering::Relaxed);
                if !nth.is_multiple_of(u64::from(self.every.get())) {
                    return;
                }
                (Outcome::Allowed, self.every.get())
            }
            (Verdict::Pass(_), None) => (Outcome::FailedOpen, 1),
            (Verdict::Refuse(_), Some(decision)) if decision.status() == Status::NeverAdmissible => {
                (Outcome::NeverAdmissible, 1)
            }
            (Verdict::Refuse(_), Some(_)) => (Outcome::Denied, 1),
            (Verdict::Refuse(_), None) => (Outcome::FailedClosed, 1),
        };
        let (policy, decision) = (pending.policy(), verdict.decision());
        let binding = decision.map(|decision| (decision.binding(), &policy.quotas()[decision.binding_index()]));
        let now = self.started();
        self.sink.event(&Event {
            at,
            rule: pending.rule(),
            policy: policy.name(),
            outcome,
            quota: binding.map(|(_, quota)| quota.name()),
            key: binding.and_then(|(_, quota)| pending.hold.keys.of_quota(policy, quota)).map(|key| self.hash(key)),
            limit: binding.map(|(status, _)| status.limit()),
            remaining: binding.and_then(|(status, _)| status.remaining()),
            from_balance: decision.filter(|decision| !decision.is_replay()).map_or(0, Decision::from_balance),
            origin: decision.map(|decision| decision.origin()),
            error: verdict.error().map(|error| error.kind()),
            latency_us: now.zip(started).map(|(now, started)| now.saturating_sub(started)),
            weight,
        });
    }

    /// Tells of each part of a limit that a charge has crossed.
    pub(super) fn charged(&self, hold: &Hold, at: UnixMillis, decision: &Decision, charged: Charged) {
        warnings(hold, at, decision, charged, &mut |warning, quota| {
            let key = hold.keys.of_quota(&hold.policy, quota).map(|key| self.hash(key));
            self.sink.warning(&Warning { key, ..warning });
        });
    }

    /// Tells of a request that no store was asked about.
    pub(super) fn refused(&self, at: UnixMillis, rule: &str, outcome: Outcome, error: Option<ErrorKind>) {
        self.sink.event(&Event {
            at,
            rule,
            policy: "",
            outcome,
            quota: None,
            key: None,
            limit: None,
            remaining: None,
            from_balance: 0,
            origin: None,
            error,
            latency_us: None,
            weight: 1,
        });
    }

    fn hash(&self, key: &Key) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.secret.0, self.secret.1);
        key.as_str().hash(&mut hasher);
        hasher.finish()
    }
}
