use alloc::string::String;

use serde::{Deserialize, Serialize};
use tidegate_core::{Check, Key, Millis, Policy, Refund, Settle, UnixMillis};

/// One operation on a limiter, with its arguments.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The policy to decide by.
    pub policy: Policy,
    /// The key.
    pub key: String,
    /// The cost, the units to refund, or the actual cost of a charge.
    #[serde(default = "one")]
    pub cost: u64,
    /// The virtual time.
    pub now_ms: u64,
    /// For a refund: when the cost was charged. The default is the virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_at_ms: Option<u64>,
    /// For a check: the token that identifies retries of the same check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// For a settlement: the token of the charge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settles: Option<String>,
}

/// An idempotency token.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// A text that is unique to the request.
    pub text: String,
    /// How long the first answer is remembered.
    pub ttl_ms: u64,
}

impl Call {
    /// Builds the check.
    #[must_use]
    pub fn check<'a>(&'a self, key: &'a Key) -> Check<'a> {
        let check = Check::new(&self.policy, key, UnixMillis::new(self.now_ms)).cost(self.cost);
        match &self.token {
            Some(token) => check.idempotent(&token.text, Millis::new(token.ttl_ms)),
            None => check,
        }
    }

    /// Builds the refund.
    #[must_use]
    pub fn refund<'a>(&'a self, key: &'a Key) -> Refund<'a> {
        let charged_at = UnixMillis::new(self.charged_at_ms.unwrap_or(self.now_ms));
        Refund::new(&self.policy, key, self.cost, charged_at, UnixMillis::new(self.now_ms))
    }

    /// Builds the settlement, if the call names a charge.
    #[must_use]
    pub fn settle<'a>(&'a self, key: &'a Key) -> Option<Settle<'a>> {
        let token = self.settles.as_deref()?;
        Some(Settle::new(&self.policy, key, token, self.cost, UnixMillis::new(self.now_ms)))
    }
}

const fn one() -> u64 {
    1
}
