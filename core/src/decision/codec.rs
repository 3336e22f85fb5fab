//! Encodes decisions as bytes, for stores that send or keep them. Integers are LEB128: seven bits a byte, low bits first.
//!
//! | part | bytes |
//! |-|-|
//! | status (2 bits), whether it is a replay, whether the wait is known | 1 |
//! | binding quota, instant, delay; the wait if it is known | 1 to 10 each |
//! | for each quota: limit, remaining + 1, time until the reset + 1; 0 for one that is unknown | 1 to 10 each |

use alloc::vec::Vec;

use super::{Decision, QuotaStatus, Status};
use crate::algorithm::Standing;
use crate::{Error, ErrorKind, Millis, Policy, UnixMillis};

const REPLAY: u8 = 4;
const WAITS: u8 = 8;

impl Decision {
    /// Encodes the decision, without its origin: some 15 bytes for one quota.
    ///
    /// ```
    /// use tidegate_core::{Decision, Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])?;
    /// let decision = policy.decide(&mut policy.initial_state(), UnixMillis::new(1_800_000_000_000), 3);
    /// let bytes = decision.encode();
    /// assert_eq!(bytes.len(), 13);
    /// assert_eq!(Decision::decode(&bytes, &policy)?, decision);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let status = match self.status {
            Status::Allowed => 0,
            Status::Denied => 1,
            Status::NeverAdmissible => 2,
        };
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let mut out = Vec::with_capacity(32);
        out.push(status | flag(self.replay, REPLAY) | flag(self.retry_after().is_some(), WAITS));
        put(&mut out, self.binding_index() as u64);
        put(&mut out, self.decided_at.get());
        put(&mut out, self.delay().get());
        if let Some(wait) = self.retry_after() {
            put(&mut out, wait.get());
        }
        let or_unknown = |value: Option<u64>| value.map_or(0, |value| value.saturating_add(1));
        for quota in self.quotas() {
            put(&mut out, quota.limit());
            put(&mut out, or_unknown(quota.remaining()));
            put(&mut out, or_unknown(quota.reset_after().map(Millis::get)));
        }
        out
    }

    /// Decodes what [`Decision::encode`] wrote of a decision by this policy, or by one of its shape. The origin is
    /// [`Origin::Store`](crate::Origin::Store).
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for other bytes.
    pub fn decode(bytes: &[u8], policy: &Policy) -> Result<Self, Error> {
        read(bytes, policy.quotas().len()).ok_or_else(|| {
            Error::new(
                ErrorKind::Corrupt,
                "decision: the bytes are not a decision by this policy; what else writes there?",
            )
        })
    }
}

impl QuotaStatus {
    /// With what another program says of it.
    pub(super) fn told(limit: u64, remaining: Option<u64>, reset_after: Option<u64>) -> Self {
        let (used, drain) = (reset_after.unwrap_or_default(), u64::from(reset_after.is_some()));
        let standing = |room| Self(Standing { limit, room, unit: 1, used, drain, lag: Millis::ZERO });
        remaining.map_or(Self::unknown(limit), standing)
    }
}

fn read(mut rest: &[u8], count: usize) -> Option<Decision> {
    let (flags, after) = rest.split_first()?;
    rest = after;
    let status = match flags & 3 {
        0 => Status::Allowed,
        1 => Status::Denied,
        2 => Status::NeverAdmissible,
        _ => return None,
    };
    let binding = usize::try_from(take(&mut rest)?).ok().filter(|place| *place < count)?;
    let decided_at = UnixMillis::new(take(&mut rest)?);
    let delay = Millis::new(take(&mut rest)?);
    let retry_after = match flags & WAITS {
        0 => None,
        _ => Some(Millis::new(take(&mut rest)?)),
    };
    let mut quotas = Vec::with_capacity(count);
    for _ in 0..count {
        let (limit, room, reset) = (take(&mut rest)?, take(&mut rest)?, take(&mut rest)?);
        quotas.push(QuotaStatus::told(limit, room.checked_sub(1), reset.checked_sub(1)));
    }
    let quotas = quotas.into_iter().collect();
    let replay = flags & REPLAY != 0;
    let is_known = *flags < 2 * WAITS && rest.is_empty();
    let step = status.step(delay, retry_after);
    is_known.then(|| Decision::new(step, quotas, Some(binding), decided_at).replayed(replay))
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Takes an integer from the front of `rest`.
fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (place, byte) in rest.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            *rest = &rest[place + 1..];
            return Some(value);
        }
    }
    None
}
