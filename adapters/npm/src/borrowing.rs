//! What this isolate or process has borrowed of a store that lends: see [`tidegate_core::lending`].

use std::cell::RefCell;

use tidegate_core::lending::{Answer, Borrowers, Lease, NumberedQuestion, Verdict, can_borrow};
use tidegate_core::store::lending_capabilities;
use tidegate_core::{Capabilities, Check, Decision, Error, Key, Policy, UnixMillis};
use wasm_bindgen::prelude::*;

use crate::limit::Limit;
use crate::options::{Options, misplaced};
use crate::shared::{number, texts, whole};

pub(crate) struct Borrowing(RefCell<Borrowers<Key>>);

/// What a check gets.
pub(crate) enum Begun {
    /// The decision, and what to ask without having anybody wait.
    Decided(Decision, Option<NumberedQuestion>),
    /// What to ask along with the check.
    Ask(NumberedQuestion),
    /// The store decides.
    AskPlainly,
}

impl Borrowing {
    /// The largest loan, or 0 for none, its life, when a question is given up, and the grace.
    pub(crate) fn open(options: &mut Options) -> Result<Option<Self>, Error> {
        let (slice, lifetime, deadline, grace) =
            (options.number(), options.millis(), options.millis(), options.number());
        if slice == 0 {
            return Ok(None);
        }
        let lease = Lease { deadline, in_background: true, grace, ..Lease::new(slice, lifetime) };
        lease.verify().map_err(|error| misplaced("leases.", &error))?;
        Ok(Some(Self(RefCell::new(Borrowers::new(lease)))))
    }

    /// What a limiter that borrows from a store supports.
    pub(crate) fn capabilities(&self, store: Capabilities) -> Capabilities {
        let borrowers = self.0.borrow();
        lending_capabilities(store, borrowers.lease())
    }

    pub(crate) fn begin(&self, check: &Check<'_>) -> Result<Begun, Error> {
        if !can_borrow(check) {
            return Ok(Begun::AskPlainly);
        }
        let Check { policy, now, .. } = *check;
        let key = check.keys.single(policy)?;
        let name = key.storage_key(policy);
        let verdict = self.0.borrow_mut().decide(&name, check, || key.clone());
        Ok(match (verdict.decision(policy, now), verdict) {
            (Some(decision), Verdict::Admit { then }) => Begun::Decided(decision, then),
            (Some(decision), _) => Begun::Decided(decision, None),
            (None, Verdict::Ask(asked)) => Begun::Ask(asked),
            (None, _) => Begun::AskPlainly,
        })
    }

    /// Takes the answer to a key's question, or notes that there is none. A number of 0 is that of a plain call.
    pub(crate) fn answered(&self, policy: &Policy, key: &Key, nth: u64, answer: Option<&Answer>) {
        if nth > 0 {
            self.0.borrow_mut().answered(&key.storage_key(policy), nth, answer);
        }
    }

    /// What a key has to tell, and the key.
    pub(crate) fn due(&self, now: UnixMillis) -> Option<(Key, NumberedQuestion)> {
        self.0.borrow_mut().due(now).map(|(_, asked, key)| (key.clone(), asked))
    }
}

/// The number of a call, as the host knows it: that of a borrower's question or 0, and which script it is, below 4.
pub(crate) fn call_of(nth: u64, script: u64) -> f64 {
    number(nth << 2 | script)
}

/// The number of the borrower's question in that of a call.
pub(crate) const fn nth_of(call: f64) -> u64 {
    whole(call) >> 2
}

/// From this kind of questions on, they give back what may have denied a check.
const SETTLE: u32 = 2;

#[wasm_bindgen]
impl Limit {
    /// Notes that a call of this number, for a question of this kind about the key that is pushed, has ended: without an answer, or it has
    /// been read.
    pub fn ended(&self, kind: u32, call: f64) {
        let (Some(borrowing), Some(Some(key))) = (&self.store.borrowing, texts().pop()) else { return };
        // An idle key is known by its own text, not by the application's. No two keys have a question of one number.
        for key in [Some(self.key_of(&key)), Key::from_text(&key)].into_iter().flatten() {
            borrowing.answered(&self.policy, &key, nth_of(call), None);
            if kind >= SETTLE {
                borrowing.0.borrow_mut().forget_denial(&key.storage_key(&self.policy));
            }
        }
    }
}
