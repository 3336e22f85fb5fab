//! What a [`Limiter`](crate::Limiter) applies, and what it replies.

use alloc::boxed::Box;

use super::capabilities::{BALANCES, LOANS, unsupported};
use super::{Answer, Block, Capabilities, Check, Grant, Question, Refund, Settle};
use crate::{Decision, Error, ErrorKind, Keys, Policy, UnixMillis};

/// What a [`Limiter`](crate::Limiter) applies in one step, and an [`Atomic`](crate::store::Atomic) store, too.
///
/// A caller uses the method of each in [`LimiterExt`](crate::LimiterExt).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// Decide by [`Policy::decide_as`] and store the new state. The reply is the decision.
    Check(Check<'a>),
    /// Read. The reply is what a check would get.
    Peek(Check<'a>),
    /// Decide on a check, take back a loan of its key and grant the next one, by
    /// [`Lender::decide`](crate::lending::Lender::decide), and store the new state and the lender. The reply is the answer.
    Lend(Check<'a>, &'a Question),
    /// Refund by [`Policy::refund`] and store the new state.
    Refund(Refund<'a>),
    /// Find the charge by its token, correct it by [`Policy::settle`], store the new state, and remember that the charge is
    /// settled. If it is settled already, change nothing. The reply is the decision on a request of cost 0.
    Settle(Settle<'a>),
    /// Block by [`Policy::block`] and store the new state.
    Block(Block<'a>),
    /// Grant by [`Policy::grant`], store the new state, and remember the token. If it is remembered, change nothing. The reply is the
    /// decision on a request of cost 0.
    Grant(Grant<'a>),
    /// Remove the states of these keys, but leave a balance, which has a [row](Policy::rows) of its own.
    Reset {
        /// The policy.
        policy: &'a Policy,
        /// The keys.
        keys: Keys<'a>,
    },
}

impl<'a> Operation<'a> {
    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &'a Policy {
        match self {
            Self::Check(check) | Self::Peek(check) | Self::Lend(check, _) => check.policy,
            Self::Refund(refund) => refund.policy,
            Self::Settle(settle) => settle.policy,
            Self::Block(block) => block.policy,
            Self::Grant(grant) => grant.policy,
            Self::Reset { policy, .. } => policy,
        }
    }

    /// The same by another policy.
    #[must_use]
    pub const fn with_policy(mut self, by: &'a Policy) -> Self {
        match &mut self {
            Self::Check(Check { policy, .. })
            | Self::Peek(Check { policy, .. })
            | Self::Lend(Check { policy, .. }, _)
            | Self::Refund(Refund { policy, .. })
            | Self::Settle(Settle { policy, .. })
            | Self::Block(Block { policy, .. })
            | Self::Grant(Grant { policy, .. })
            | Self::Reset { policy, .. } => *policy = by,
        }
        self
    }

    /// The keys.
    #[must_use]
    pub const fn keys(&self) -> Keys<'a> {
        match self {
            Self::Check(check) | Self::Peek(check) | Self::Lend(check, _) => check.keys,
            Self::Refund(refund) => refund.keys,
            Self::Settle(settle) => settle.keys,
            Self::Block(block) => block.keys,
            Self::Grant(grant) => grant.keys,
            Self::Reset { keys, .. } => *keys,
        }
    }

    /// The cost of the request, or the amount to refund. 0 for the others.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        match self {
            Self::Check(check) | Self::Peek(check) | Self::Lend(check, _) => check.cost,
            Self::Refund(refund) => refund.cost,
            Self::Settle(_) | Self::Block(_) | Self::Grant(_) | Self::Reset { .. } => 0,
        }
    }

    /// The caller's clock. A reset has none, and this is the epoch.
    #[must_use]
    pub const fn now(&self) -> UnixMillis {
        match self {
            Self::Check(check) | Self::Peek(check) | Self::Lend(check, _) => check.now,
            Self::Refund(refund) => refund.now,
            Self::Settle(settle) => settle.now,
            Self::Block(block) => block.now,
            Self::Grant(grant) => grant.now,
            Self::Reset { .. } => UnixMillis::new(0),
        }
    }

    /// The same at another time.
    #[must_use]
    pub const fn with_now(mut self, at: UnixMillis) -> Self {
        match &mut self {
            Self::Check(Check { now, .. })
            | Self::Peek(Check { now, .. })
            | Self::Lend(Check { now, .. }, _)
            | Self::Refund(Refund { now, .. })
            | Self::Settle(Settle { now, .. })
            | Self::Block(Block { now, .. })
            | Self::Grant(Grant { now, .. }) => *now = at,
            Self::Reset { .. } => {}
        }
        self
    }

    /// Checks that a limiter with these features can apply this operation, and that it is valid.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] that names the first missing feature, and [`ErrorKind::Invalid`].
    pub fn verify(&self, can: &Capabilities) -> Result<(), Error> {
        self.covered()?;
        if let Self::Settle(settle) = self {
            settle.verify()?;
        }
        let is_able = match self {
            Self::Check(_) => true,
            Self::Peek(_) => can.peek,
            Self::Lend(..) => can.lends,
            Self::Refund(_) => can.refund,
            Self::Settle(_) => can.idempotency,
            Self::Block(_) => can.block,
            Self::Grant(_) => can.grant,
            Self::Reset { .. } => can.reset,
        };
        if !is_able {
            return Err(self.unsupported());
        }
        match self {
            Self::Check(check) | Self::Lend(check, _) => can.supports(check),
            Self::Peek(check) => can.supports_peek(check),
            Self::Refund(refund) => {
                can.supports_policy(refund.policy)?;
                refund.verify()
            }
            Self::Settle(_) | Self::Reset { .. } => can.supports_policy(self.policy()),
            Self::Grant(grant) => {
                can.supports_policy(grant.policy)?;
                grant.verify()
            }
            Self::Block(block) => {
                can.supports_policy(block.policy)?;
                block.verify()
            }
        }
    }

    /// Checks that the policy knows the window of the caller's clock. A reset needs none.
    pub(crate) fn covered(&self) -> Result<(), Error> {
        self.policy().covers(self.now())
    }

    /// The error of a limiter that does not support this operation.
    ///
    /// ```
    /// use tidegate_core::{Check, ErrorKind, Key, Millis, Operation, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("api", [Quota::fixed_window(10, Millis::from_secs(1))?])?;
    /// let key = Key::new("ip:192.0.2.1");
    /// let error = Operation::Peek(Check::new(&policy, &key, UnixMillis::new(0))).unsupported();
    /// assert_eq!(error.kind(), ErrorKind::Unsupported);
    /// assert_eq!(error.to_string(), "this store does not support peek");
    /// # Ok(())
    /// # }
    /// ```
    #[cold]
    #[must_use]
    pub fn unsupported(&self) -> Error {
        unsupported(match self {
            Self::Check(_) => "check",
            Self::Peek(_) => "peek",
            Self::Lend(..) => LOANS,
            Self::Refund(_) => "refund",
            Self::Settle(_) => "settle",
            Self::Block(_) => {
                "block; block keys in one that does, such as Redis or Durable Objects, or refuse them before the check"
            }
            Self::Grant(_) => BALANCES,
            Self::Reset { .. } => "reset",
        })
    }

    /// The reply to this operation, if this is its decision.
    pub(crate) fn reply(&self, decision: Decision) -> Reply {
        match self {
            Self::Check(_) | Self::Peek(_) | Self::Settle(_) | Self::Grant(_) => Reply::Decided(decision),
            Self::Lend(..) => Answer::from(decision).into(),
            Self::Refund(_) | Self::Block(_) | Self::Reset { .. } => Reply::Done,
        }
    }
}

// As decisions and checks are: compilers move so many bytes without a call.
const _: () = assert!(size_of::<Operation<'_>>() <= 128 && size_of::<Result<Reply, Error>>() <= 128);

/// What a [`Limiter`](crate::Limiter) replies to an [`Operation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To a check, a peek, a settlement and a grant.
    Decided(Decision),
    /// To a check along with a borrower's question.
    Lent(Box<Answer>),
    /// To a refund, a block and a reset.
    Done,
}

impl Reply {
    /// The decision, also of an answer.
    #[must_use]
    #[inline]
    pub fn decided(&self) -> Option<&Decision> {
        match self {
            Self::Decided(decision) => Some(decision),
            Self::Lent(answer) => Some(&answer.decision),
            Self::Done => None,
        }
    }

    /// The decision of a check, a peek or a settlement.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is the reply to another operation.
    #[inline]
    pub fn decision(self) -> Result<Decision, Error> {
        match self {
            Self::Decided(decision) => Ok(decision),
            Self::Lent(_) | Self::Done => Err(of_another()),
        }
    }

    /// The answer to a borrower's question.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is the reply to another operation.
    #[inline]
    pub fn answer(self) -> Result<Answer, Error> {
        match self {
            Self::Lent(answer) => Ok(*answer),
            Self::Decided(_) | Self::Done => Err(of_another()),
        }
    }

    /// The success of a refund, a block or a reset.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is the reply to another operation.
    #[inline]
    pub fn done(self) -> Result<(), Error> {
        match self {
            Self::Done => Ok(()),
            Self::Decided(_) | Self::Lent(_) => Err(of_another()),
        }
    }
}

#[cold]
fn of_another() -> Error {
    Error::new(ErrorKind::Corrupt, "the limiter replied to another operation than it was asked for")
}

impl From<Decision> for Reply {
    #[inline]
    fn from(decision: Decision) -> Self {
        Self::Decided(decision)
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self::Lent(Box::new(answer))
    }
}

impl From<()> for Reply {
    #[inline]
    fn from((): ()) -> Self {
        Self::Done
    }
}
