//! What this isolate or process has borrowed of a store that lends: see [`tidegate_core::lending`].

use std::cell::RefCell;
use std::collections::VecDeque;

use tidegate_core::lending::{Answer, Asked, Borrowers, Question, Terms, Verdict, can_borrow};
use tidegate_core::store::lending_capabilities;
use tidegate_core::{Capabilities, Check, Decision, Error, Key, Policy, UnixMillis};
use wasm_bindgen::prelude::*;

use crate::limit::Limit;
use crate::options::{Options, misplaced};
use crate::shared::{texts, whole};

pub(crate) struct Borrowing {
    borrowers: RefCell<Borrowers<Key>>,
    /// The questions under way, the last ones at the end.
    questions: RefCell<VecDeque<Asked>>,
}

/// The most questions under way. A platform may drop a request with its question.
const QUESTIONS_MAX: usize = 1_024;

/// What a check gets.
pub(crate) enum Begun {
    /// The decision, and what to ask without having anybody wait.
    Decided(Decision, Option<Asked>),
    /// What to ask along with the check.
    Ask(Asked),
    /// The store decides.
    AskPlainly,
}

impl Borrowing {
    /// The largest loan, or 0 for none, its life, and when a question is given up.
    pub(crate) fn open(options: &mut Options) -> Result<Option<Self>, Error> {
        let (slice, lifetime, deadline) = (options.number(), options.millis(), options.millis());
        if slice == 0 {
            return Ok(None);
        }
        let terms = Terms { deadline, in_background: true, ..Terms::new(slice, lifetime) };
        terms.verify().map_err(|error| misplaced("leases.", &error))?;
        Ok(Some(Self { borrowers: RefCell::new(Borrowers::new(terms)), questions: RefCell::default() }))
    }

    /// What a limiter that borrows from a store supports.
    pub(crate) fn capabilities(&self, store: Capabilities) -> Capabilities {
        let borrowers = self.borrowers.borrow();
        lending_capabilities(store, borrowers.terms().slice, borrowers.terms().lifetime)
    }

    pub(crate) fn begin(&self, check: &Check<'_>) -> Result<Begun, Error> {
        if !can_borrow(check) {
            return Ok(Begun::AskPlainly);
        }
        let Check { policy, now, .. } = *check;
        let key = check.keys.sole(policy)?;
        let name = key.storage_key(policy);
        let verdict = self.borrowers.borrow_mut().decide(&name, check, || key.clone());
        let begun = match (verdict.decision(policy, now), verdict) {
            (Some(decision), Verdict::Admit { then }) => Begun::Decided(decision, then),
            (Some(decision), _) => Begun::Decided(decision, None),
            (None, Verdict::Ask(asked)) => Begun::Ask(asked),
            (None, _) => Begun::AskPlainly,
        };
        if let Begun::Decided(_, Some(asked)) | Begun::Ask(asked) = &begun {
            self.note(*asked);
        }
        Ok(begun)
    }

    fn note(&self, asked: Asked) {
        let mut questions = self.questions.borrow_mut();
        if questions.len() >= QUESTIONS_MAX {
            questions.pop_front();
        }
        questions.push_back(asked);
    }

    /// The question with this number, if it is under way.
    pub(crate) fn question(&self, nth: u64) -> Option<Question> {
        self.questions.borrow().iter().find(|asked| asked.nth == nth).map(|asked| asked.question)
    }

    /// Takes the answer to a key's question, or notes that there is none. A number of 0 is that of a plain call.
    pub(crate) fn answered(&self, policy: &Policy, key: &Key, nth: u64, answer: Option<&Answer>) {
        if nth > 0 {
            self.questions.borrow_mut().retain(|asked| asked.nth != nth);
            self.borrowers.borrow_mut().answered(&key.storage_key(policy), nth, answer);
        }
    }

    /// What an idle key is to return, and the key.
    pub(crate) fn due(&self, now: UnixMillis) -> Option<(Key, Asked)> {
        let due = self.borrowers.borrow_mut().due(now).map(|(_, asked, key)| (key.clone(), asked));
        if let Some((_, asked)) = due {
            self.note(asked);
        }
        due
    }
}

/// From this kind of questions on, they give back what may have denied a check.
const SETTLE: u32 = 2;

#[wasm_bindgen]
impl Limit {
    /// Notes what has become of a question of this kind and number about the key that is pushed: it has no answer, or it has been
    /// read.
    pub fn ended(&self, kind: u32, nth: f64) {
        let (Some(borrowing), Some(Some(key))) = (&self.store.borrowing, texts().pop()) else { return };
        let key = self.key_of(&key);
        borrowing.answered(&self.policy, &key, whole(nth), None);
        if kind >= SETTLE {
            borrowing.borrowers.borrow_mut().forget_denial(&key.storage_key(&self.policy));
        }
    }
}
