use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidegate_core::gate::{
    Claims, Events, Gate, InvalidToken, OnWarning, Reason, Request, Rules, TokenRules, Verdict, VerifyToken, Warning,
};
use tidegate_core::{ClientIpSource, ErasedLimiter, Error, Key, Limiter, UnixMillis};

use crate::{Answer, Arrival, Reply};

/// A request for a gate with these rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gated {
    /// The rules file.
    pub rules: Value,
    /// The names of the gate's stores, which are all the same. Without them, there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stores: Vec<String>,
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The host, if it is not in the field `host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The sender.
    pub sender: Arrival,
    /// The sender's tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The bot score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bot_score: Option<u8>,
    /// The fingerprint of the client's TLS handshake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ja4: Option<String>,
    /// The keys of the application, by their dimension.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, String>,
    /// The limits that the application gives, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, u64>,
    /// The cost, if it is not the rule's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// The token of the charge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The claims of a valid token that the request has. Without them, no token is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<Map<String, Value>>,
    /// The virtual time.
    pub now_ms: u64,
}

/// Takes every token for one with these claims, or for an invalid one.
#[derive(Clone, Debug)]
pub struct Fixed(pub Option<Map<String, Value>>);

impl VerifyToken for Fixed {
    fn verify(&self, _: &str, expected: &TokenRules, _: UnixMillis) -> Result<Claims, InvalidToken> {
        let claims = Value::Object(self.0.clone().ok_or(InvalidToken("the fixture gives no claims"))?);
        Claims::new(expected, |name| {
            let claim = if name.starts_with('/') { claims.pointer(name) } else { claims.get(name) };
            match claim? {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                _ => None,
            }
        })
    }
}

/// A [`Verdict`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Judged {
    /// Whether the request passes.
    pub passes: bool,
    /// How many more requests of cost 1 fit into the binding quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
    /// The highest part of a limit that is reached, in percent, of those in `warn_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
    /// The parts that warnings were told of since the answer before this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warned: Vec<u8>,
}

impl Judged {
    /// A request that passes or not, of which nothing else is known.
    #[must_use]
    pub const fn plain(passes: bool) -> Self {
        Self { passes, remaining: None, level: None, warned: Vec::new() }
    }
}

impl Gated {
    pub(crate) async fn decide<L: Limiter>(&self, limiter: &L) -> Reply {
        let warned = Arc::default();
        match self.verdict(limiter, &warned).await {
            Ok(verdict) => reply(verdict, mem::take(&mut *locked(&warned))),
            Err(error) => Reply::error(&error),
        }
    }

    async fn verdict<L: Limiter>(&self, limiter: &L, warned: &Arc<Mutex<Vec<u8>>>) -> Result<Verdict, Error> {
        let rules = Rules::parse("rules.json", &self.rules.to_string())?;
        let mut headers = self.sender.headers.clone();
        if let (Some(expected), Some(_)) = (rules.expected_tokens(), &self.claims) {
            let scheme = if expected.header() == "authorization" { "Bearer " } else { "" };
            headers.push((expected.header().to_string(), [scheme, "of.a.fixture"].concat()));
        }
        let rules = rules.verify_tokens(Fixed(self.claims.clone()));
        let (client_ip, peer) = self.sender.source()?;
        let told = Arc::clone(warned);
        let events = Events::new(OnWarning(move |warning: &Warning<'_>| locked(&told).push(warning.percent)));
        let gate = gate(rules, &self.stores, limiter, client_ip)?.events(events);
        let keys: Vec<(&str, Key)> = self.keys.iter().map(|(name, key)| (name.as_str(), Key::new(key))).collect();
        let keys: Vec<(&str, &Key)> = keys.iter().map(|(name, key)| (*name, key)).collect();
        let limits: Vec<(&str, u64)> = self.limits.iter().map(|(name, number)| (name.as_str(), *number)).collect();
        let now = UnixMillis::new(self.now_ms);
        let mut request = Request::new(&self.method, &self.path, &headers, now).peer(peer).keys(&keys).limits(&limits);
        if let Some(host) = &self.host {
            request = request.with_host(host);
        }
        if let Some(subject) = &self.sender.subject {
            request = request.subject(subject);
        }
        if let Some(tier) = &self.tier {
            request = request.tier(tier);
        }
        if let Some(score) = self.bot_score {
            request = request.bot_score(score);
        }
        if let Some(fingerprint) = &self.ja4 {
            request = request.ja4(fingerprint);
        }
        if let Some(cost) = self.cost {
            request = request.cost(cost);
        }
        if let Some(token) = &self.token {
            request = request.token(token);
        }
        Ok(gate.check(&request).await)
    }
}

/// A gate whose stores of these names, of which the first is that of rules without one, are all this one.
///
/// # Errors
/// As [`Gate::with_stores`].
pub fn gate<'s>(
    rules: Rules,
    names: &[impl AsRef<str>],
    store: &'s (impl Limiter + 's),
    client_ip: ClientIpSource,
) -> Result<Gate<'s>, Error> {
    if names.is_empty() {
        return Gate::new(rules, store, client_ip);
    }
    let stores = names.iter().map(|name| (name.as_ref(), Box::new(store) as Box<dyn ErasedLimiter + 's>));
    Gate::with_stores(rules, stores, client_ip)
}

fn locked(warned: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    warned.lock().unwrap_or_else(PoisonError::into_inner)
}

fn reply(verdict: Verdict, warned: Vec<u8>) -> Reply {
    let level = verdict.level();
    let remaining = verdict.decision().and_then(|decision| decision.binding().remaining());
    let judged = |passes| Answer::Verdict(Judged { passes, remaining, level, warned });
    let (status, answer, fields) = match verdict {
        Verdict::Pass(pass) => (200, judged(true), pass.fields()),
        Verdict::Refuse(refusal) => {
            let answer = match refusal.reason() {
                Reason::Failed(error) => Answer::Error((&**error).into()),
                _ => judged(false),
            };
            let (status, fields, _) = refusal.into_rejection().into_parts();
            (status, answer, fields)
        }
    };
    let mut reply = Reply::new(status, &answer);
    // The suite's answer has a media type of its own.
    let fields = fields.iter().filter(|(name, _)| *name != "content-type");
    reply.headers.extend(fields.map(|(name, value)| (name.to_string(), value.to_string())));
    reply
}
