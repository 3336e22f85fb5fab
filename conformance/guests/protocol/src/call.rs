use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use tidegate_core::{Block, Check, Grant, Keys, Millis, Policy, Refund, Settle, UnixMillis};

/// One operation on a limiter, with its arguments.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The policy to decide by.
    pub policy: Policy,
    /// The key of a policy with one dimension.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The key of each dimension, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, String>,
    /// The cost, the units to refund or to grant, or the actual cost of a charge.
    #[serde(default = "one")]
    pub cost: u64,
    /// The virtual time.
    pub now_ms: u64,
    /// For a refund: when the cost was charged. The default is the virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_at_ms: Option<u64>,
    /// For a grant: when its units expire. Without it, they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<u64>,
    /// For a block: how long it is. 0 ends one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_ms: Option<u64>,
    /// For a check or a grant: the token that identifies retries of the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// For a settlement or a release: the token of the charge.
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
    /// Reads a request's body.
    ///
    /// # Errors
    /// What is wrong with the JSON, and where.
    pub fn from_body(body: &[u8]) -> serde_json::Result<Self> {
        let call: Self = serde_json::from_slice(body)?;
        // Calendar windows are those of the virtual time.
        let policy = call.policy.at(UnixMillis::new(call.now_ms)).into_owned();
        Ok(Self { policy, ..call })
    }

    /// Writes a request's body.
    #[must_use]
    pub fn to_body(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Builds the check.
    #[must_use]
    pub fn check<'a>(&'a self, keys: Keys<'a>) -> Check<'a> {
        let check = Check::new(&self.policy, keys, UnixMillis::new(self.now_ms)).cost(self.cost);
        match &self.token {
            Some(token) => check.idempotent(&token.text, Millis::new(token.ttl_ms)),
            None => check,
        }
    }

    /// Builds the refund.
    #[must_use]
    pub fn refund<'a>(&'a self, keys: Keys<'a>) -> Refund<'a> {
        let charged_at = UnixMillis::new(self.charged_at_ms.unwrap_or(self.now_ms));
        Refund::new(&self.policy, keys, self.cost, charged_at, UnixMillis::new(self.now_ms))
    }

    /// Builds the block, if the call says how long it is.
    #[must_use]
    pub fn block<'a>(&'a self, keys: Keys<'a>) -> Option<Block<'a>> {
        let span = Millis::new(self.block_ms?);
        Some(Block::new(&self.policy, keys, span, UnixMillis::new(self.now_ms)))
    }

    /// Builds the grant, if the call has its token.
    #[must_use]
    pub fn grant<'a>(&'a self, keys: Keys<'a>) -> Option<Grant<'a>> {
        let Token { text, ttl_ms } = self.token.as_ref()?;
        let grant = Grant::new(&self.policy, keys, self.cost, text, UnixMillis::new(self.now_ms));
        let expires = self.expires_at_ms.map_or(UnixMillis::MAX, UnixMillis::new);
        Some(grant.remembered_for(Millis::new(*ttl_ms)).expires(expires))
    }

    /// Builds the settlement, if the call names a charge.
    #[must_use]
    pub fn settle<'a>(&'a self, keys: Keys<'a>) -> Option<Settle<'a>> {
        let token = self.settles.as_deref()?;
        Some(Settle::new(&self.policy, keys, token, self.cost, UnixMillis::new(self.now_ms)))
    }

    /// Builds the release of a charge's slots, if the call names a charge.
    #[must_use]
    pub fn release<'a>(&'a self, keys: Keys<'a>) -> Option<Settle<'a>> {
        Some(Settle::release(&self.policy, keys, self.settles.as_deref()?, UnixMillis::new(self.now_ms)))
    }
}

const fn one() -> u64 {
    1
}
