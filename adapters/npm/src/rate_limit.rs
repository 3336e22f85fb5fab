//! Cloudflare's Rate Limiting binding as the store. The host calls it.

use tidegate_cloudflare::rate_limit::{Binding, CAPABILITIES, RateLimit, failed};
use tidegate_core::algorithm::Algorithm as _;
use tidegate_core::{Capabilities, Decision, Error, ErrorKind, Policy, Rule, UnixMillis};
use wasm_bindgen::prelude::*;

use crate::limit::{Limit, Question};
use crate::options::{Options, misplaced};
use crate::shared::{leave, leave_error, leave_text, whole, with_text};

/// The binding, of which the policy is a part.
pub(crate) struct Store {
    limit: u64,
}

impl Store {
    pub(crate) fn open(_: &mut Options, policy: &Policy) -> Result<Self, Error> {
        let [quota] = policy.quotas() else { return Err(not_one_window("policy.quotas")) };
        let Rule::FixedWindow(window) = quota.rule() else { return Err(not_one_window("policy.quotas[0]")) };
        let (limit, period) = (window.limit(), window.window());
        RateLimit::new(Elsewhere, limit, period).map_err(|error| misplaced("policy.quotas[0].fixedWindow.", &error))?;
        Ok(Self { limit })
    }

    #[expect(clippy::unused_self, reason = "the stores have one signature")]
    pub(crate) const fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    #[expect(clippy::unused_self, reason = "the stores have one signature")]
    pub(crate) fn text(&self, _: u32) -> i32 {
        0
    }
}

/// Stands for the binding, which the host has.
struct Elsewhere;

impl Binding for Elsewhere {
    async fn limit(&self, _: &str) -> Result<bool, Error> {
        Err(Error::new(ErrorKind::Unsupported, "the host calls the binding"))
    }
}

fn not_one_window(place: &str) -> Error {
    let right =
        "write one quota with the numbers of the binding, such as { fixedWindow: { limit: 100, windowMs: 60000 } }";
    Error::new(ErrorKind::Unsupported, format!("{place}: the binding counts one fixed window; {right}"))
}

#[wasm_bindgen]
impl Limit {
    /// Leaves the key under which the binding is to count a request.
    pub fn ask(&self, kind: u32, length: usize, cost: f64, now: f64, extra: f64) -> i32 {
        with_text(length, |key| {
            self.with(Question { kind, cost, now, extra }, self.key_of(key), &mut |asked| {
                Ok(leave_text(&asked.keys().sole(&self.policy)?.storage_key(&self.policy)))
            })
        })
    }

    /// Leaves the decision of the binding.
    pub fn read(&self, admitted: bool, now: f64) -> i32 {
        leave(&Decision::native(admitted, self.store.limit, UnixMillis::new(whole(now))))
    }

    /// Leaves the error of a call that threw a text of this length.
    pub fn failed(&self, length: usize) -> i32 {
        with_text(length, |why| leave_error(&failed(why)))
    }
}
