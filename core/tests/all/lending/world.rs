//! A lender and its borrowers on virtual time, with a network between them that loses, delays and repeats messages.

use std::ops::Range;

use proptest::prelude::*;
use tidegate_core::algorithm::{Algorithm as _, CalendarWindow};
use tidegate_core::lending::{Answer, Borrowers, Lease, Lender, Loan, NumberedQuestion, Question, Verdict};
use tidegate_core::{Check, Key, Millis, Policy, PolicyState, Quota, Rule, UnixMillis};

pub(crate) const START_MS: u64 = 1_800_000_000_000;
pub(crate) const BORROWERS: usize = 3;

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A borrower spends a loan after its end.
    SpentAfterItsEnd,
    /// A loan that is returned twice is taken back twice.
    ReturnedTwice,
    /// A bucket drains below what is lent of it.
    DrainsBelowLoans,
    /// A borrower repeats a denial for longer than it holds.
    DenialKept,
    /// What a borrower owes is not charged.
    OwedForNothing,
}

/// What can happen.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Requests at a borrower, at once.
    Ask {
        borrower: usize,
        cost: u64,
        times: u64,
    },
    /// A request of somebody who does not borrow.
    Plain(u64),
    Forward(u64),
    /// A borrower dies with what it holds. Another takes its place.
    Die(usize),
    /// A borrower's clock is set, by this many milliseconds.
    Set(usize, i64),
    Reset,
    /// The network, from now on.
    Network(Network),
    /// Idle borrowers return their loans.
    Return(usize),
    /// From now on, the lender lends such parts of what it could, in percent: of the units, and of their life.
    Lend(u64, u64),
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Network {
    pub(crate) out_ms: u64,
    pub(crate) back_ms: u64,
    pub(crate) loses_calls: bool,
    pub(crate) loses_answers: bool,
    /// Each call arrives again, this much later.
    pub(crate) again_ms: Option<u64>,
}

/// A request that was decided, by the lender's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    pub(crate) at: UnixMillis,
    pub(crate) cost: u64,
    pub(crate) admitted: bool,
    pub(crate) retry_after: Option<Millis>,
    /// How many resets came before it.
    pub(crate) resets: u32,
}

struct Flight {
    borrower: usize,
    /// Which of the borrowers at this place.
    life: u32,
    asked: Option<NumberedQuestion>,
    cost: u64,
    /// When the call arrives, and whether it has arrived before.
    at_ms: u64,
    again: bool,
    back_ms: Option<u64>,
}

/// A request that waits for the answer to its borrower's question.
struct Waiting {
    borrower: usize,
    life: u32,
    nth: u64,
    cost: u64,
    told: UnixMillis,
    since_ms: u64,
}

struct Back {
    borrower: usize,
    life: u32,
    nth: u64,
    at_ms: u64,
    /// `None` if it is given up.
    answer: Option<Answer>,
}

pub(crate) struct World {
    pub(crate) policy: Policy,
    pub(crate) fault: Fault,
    pub(crate) lease: Lease,
    pub(crate) decided: Vec<Decided>,
    pub(crate) calls: u64,
    now_ms: u64,
    state: Vec<u8>,
    lender: Vec<u8>,
    borrowers: Vec<Borrowers<()>>,
    lives: [u32; BORROWERS],
    ahead_ms: [i64; BORROWERS],
    network: Network,
    lends: (u64, u64),
    flights: Vec<Flight>,
    backs: Vec<Back>,
    /// None if no request waits.
    waiting: Option<Vec<Waiting>>,
    resets: u32,
    /// How many borrowers there were, and how often one may have forgotten what it knew.
    fresh: u64,
}

impl World {
    pub(crate) fn new(policy: Policy, lease: Lease, fault: Fault) -> Self {
        let borrowers = (0..BORROWERS).map(|_| Borrowers::new(lease)).collect();
        let (state, lender) = (policy.encode(&policy.initial_state()), Vec::new());
        Self {
            policy,
            fault,
            lease,
            decided: Vec::new(),
            calls: 0,
            now_ms: START_MS,
            state,
            lender,
            borrowers,
            lives: [0; BORROWERS],
            ahead_ms: [0; BORROWERS],
            network: Network::default(),
            lends: (100, 100),
            flights: Vec::new(),
            backs: Vec::new(),
            waiting: None,
            resets: 0,
            fresh: BORROWERS as u64,
        }
    }

    /// One in which requests wait for the answers to others' questions.
    pub(crate) fn of_waiting(policy: Policy, lease: Lease, fault: Fault) -> Self {
        Self { waiting: Some(Vec::new()), ..Self::new(policy, lease, fault) }
    }

    pub(crate) const fn now(&self) -> UnixMillis {
        UnixMillis::new(self.now_ms)
    }

    pub(crate) fn play(&mut self, step: &Step) {
        match *step {
            Step::Ask { borrower, cost, times } => (0..times).for_each(|_| self.ask(borrower, "k", cost)),
            Step::Plain(cost) => drop(self.decide(cost, None)),
            Step::Forward(ms) => self.forward(ms),
            Step::Die(borrower) => {
                self.borrowers[borrower] = Borrowers::new(self.lease);
                self.lives[borrower] += 1;
                self.fresh += 1;
            }
            Step::Set(borrower, by_ms) => {
                // The clock is read before and after it is set. Nobody could tell otherwise.
                self.ask(borrower, "another", 0);
                // No clock tells an instant before the epoch.
                let ahead_ms = self.ahead_ms[borrower] + by_ms;
                self.ahead_ms[borrower] = ahead_ms.max(-START_MS.cast_signed());
                self.fresh += 1;
                self.ask(borrower, "another", 0);
            }
            Step::Reset => self.reset(),
            Step::Network(network) => self.network = network,
            Step::Return(borrower) => self.tell(borrower),
            Step::Lend(units, lasts) => self.lends = (units, lasts),
        }
        self.forward(0);
    }

    /// A borrower tells what nobody waits for.
    fn tell(&mut self, borrower: usize) {
        let now = self.told(borrower);
        while let Some((_, asked, ())) = self.borrowers[borrower].due(now) {
            self.send(borrower, Some(asked), 0);
        }
    }

    /// What a borrower's clock tells.
    fn told(&self, borrower: usize) -> UnixMillis {
        UnixMillis::new(self.now_ms.saturating_add_signed(self.ahead_ms[borrower]))
    }

    fn ask(&mut self, borrower: usize, key: &str, cost: u64) {
        let (policy, told, sole) = (self.policy.clone(), self.told(borrower), Key::new(key));
        let check = Check::new(&policy, &sole, told).cost(cost);
        let verdict = self.borrowers[borrower].decide(key, &check, || ());
        if key != "k" {
            return;
        }
        if verdict == Verdict::AskPlainly && self.waits(borrower, cost, told) {
            return;
        }
        self.follow(borrower, cost, verdict);
        self.forward(0);
    }

    /// Has a request wait, if there is a question whose answer is probably enough.
    fn waits(&mut self, borrower: usize, cost: u64, told: UnixMillis) -> bool {
        let (life, since_ms) = (self.lives[borrower], self.now_ms);
        let (Some(waiting), Some((nth, expected))) = (&mut self.waiting, self.borrowers[borrower].last_question("k"))
        else {
            return false;
        };
        let for_it = |one: &&Waiting| (one.borrower, one.life, one.nth) == (borrower, life, nth);
        let enough = waiting.iter().filter(for_it).map(|one| one.cost).sum::<u64>() + cost <= expected;
        if enough {
            waiting.push(Waiting { borrower, life, nth, cost, told, since_ms });
        }
        enough
    }

    /// A borrower has its answer, and those that have waited for it are decided on.
    fn answered(&mut self, borrower: usize, nth: u64, answer: Option<&Answer>) {
        self.borrowers[borrower].answered("k", nth, answer);
        let Some(waiting) = &mut self.waiting else { return };
        let life = self.lives[borrower];
        let done: Vec<_> =
            waiting.extract_if(.., |one| (one.borrower, one.life, one.nth) == (borrower, life, nth)).collect();
        self.borrowers[borrower].reserve("k", done.iter().map(|one| one.cost).sum());
        let (policy, key) = (self.policy.clone(), Key::new("k"));
        for Waiting { cost, told, since_ms, .. } in done {
            let waited = Millis::new(self.now_ms - since_ms);
            let check = Check::new(&policy, &key, told).cost(cost);
            let verdict = self.borrowers[borrower].decide_after("k", &check, waited, || ());
            self.follow(borrower, cost, verdict);
        }
    }

    fn follow(&mut self, borrower: usize, cost: u64, verdict: Verdict) {
        match verdict {
            Verdict::Admit { then } => {
                self.record(cost, true, None);
                if let Some(asked) = then {
                    self.send(borrower, Some(asked), 0);
                }
            }
            Verdict::Deny(denied) => self.record(cost, false, Some(denied.retry_after)),
            Verdict::Ask(asked) => self.send(borrower, Some(asked), cost),
            Verdict::AskPlainly => self.send(borrower, None, cost),
        }
    }

    fn send(&mut self, borrower: usize, asked: Option<NumberedQuestion>, cost: u64) {
        self.calls += 1;
        let Network { out_ms, back_ms, loses_calls, loses_answers, again_ms } = self.network;
        let life = self.lives[borrower];
        let at_ms = self.now_ms + out_ms;
        let back_ms = (!loses_answers).then_some(back_ms);
        if (loses_calls || loses_answers)
            && let Some(NumberedQuestion { nth, .. }) = asked
        {
            let at_ms = self.now_ms + self.lease.deadline.get();
            self.backs.push(Back { borrower, life, nth, at_ms, answer: None });
        }
        if !loses_calls {
            self.flights.push(Flight { borrower, life, asked, cost, at_ms, again: false, back_ms });
        }
        if let Some(later_ms) = again_ms {
            self.flights.push(Flight { borrower, life, asked, cost, at_ms: at_ms + later_ms, again: true, back_ms });
        }
    }

    /// Lets time pass, and delivers what arrives meanwhile.
    fn forward(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        loop {
            let call = (0..self.flights.len()).min_by_key(|place| self.flights[*place].at_ms);
            let back = (0..self.backs.len()).min_by_key(|place| self.backs[*place].at_ms);
            let at = |place: Option<usize>, at: &dyn Fn(usize) -> u64| place.map_or(u64::MAX, at);
            let (call_ms, back_ms) =
                (at(call, &|place| self.flights[place].at_ms), at(back, &|place| self.backs[place].at_ms));
            if call_ms.min(back_ms) > until_ms {
                break;
            }
            self.now_ms = self.now_ms.max(call_ms.min(back_ms));
            match (call, back) {
                (_, Some(back)) if back_ms <= call_ms => {
                    let Back { borrower, life, nth, answer, .. } = self.backs.remove(back);
                    if self.lives[borrower] == life {
                        self.answered(borrower, nth, answer.as_ref());
                    }
                }
                (Some(call), _) => self.arrive(call),
                _ => break,
            }
        }
        self.now_ms = until_ms;
    }

    fn arrive(&mut self, place: usize) {
        let Flight { borrower, life, asked, cost, again, back_ms, .. } = self.flights.remove(place);
        let before = self.decided.len();
        let answer = self.decide(cost, asked.map(|asked| asked.question));
        if again {
            // The request is the same one: it runs once.
            self.decided.truncate(before);
        }
        if let (Some(back_ms), Some(NumberedQuestion { nth, .. }), false) = (back_ms, asked, again) {
            self.backs.push(Back { borrower, life, nth, at_ms: self.now_ms + back_ms, answer: Some(answer) });
        }
    }

    fn read(&self) -> (PolicyState, Lender) {
        (self.policy.decode(&self.state, self.now()).unwrap(), Lender::decode(&self.lender).unwrap())
    }

    fn write(&mut self, state: &PolicyState, lender: &Lender) {
        (self.state, self.lender) = (self.policy.encode(state), lender.encode());
    }

    /// The lender's step.
    fn decide(&mut self, cost: u64, question: Option<Question>) -> Answer {
        let (now, policy) = (self.now(), self.policy.clone());
        let (mut state, mut lender) = self.read();
        let question = question.map(|question| match self.fault {
            Fault::OwedForNothing => Question { owed: 0, ..question },
            _ => question,
        });
        match self.fault {
            Fault::DrainsBelowLoans => drop(Lender::default().settle(&policy, &mut state, now)),
            _ => drop(lender.settle(&policy, &mut state, now)),
        }
        if self.fault == Fault::ReturnedTwice
            && let Some(back) = question.and_then(|question| question.back)
        {
            policy.refund(&mut state, now, now, back.unspent);
        }
        let mut answer = match question {
            Some(question) => self.lend(&mut lender, &mut state, cost, &question),
            None => {
                let decision = policy.decide(&mut state, now, cost);
                lender.corrected(&policy, &state, now, cost, decision).into()
            }
        };
        if let (Fault::SpentAfterItsEnd, Some(granted)) = (self.fault, &mut answer.granted) {
            granted.lasts = Millis::new(10 * granted.lasts.get());
        }
        if self.fault == Fault::DenialKept {
            answer.denies_for = Millis::new(10 * answer.denies_for.get());
        }
        self.write(&state, &lender);
        self.record(cost, answer.decision.is_allowed(), answer.decision.retry_after());
        answer
    }

    /// Answers a question as another version of the lender may: only what is safe is agreed on, not how much is lent.
    fn lend(&self, lender: &mut Lender, state: &mut PolicyState, cost: u64, question: &Question) -> Answer {
        let (now, (units, lasts)) = (self.now(), self.lends);
        let answer = lender.clone().decide(&self.policy, &mut state.clone(), now, cost, question);
        let part = |loan: &Loan| Loan {
            units: (loan.units * units).div_ceil(100),
            lasts: Millis::new((loan.lasts.get() * lasts).div_ceil(100)),
            ..*loan
        };
        match answer.granted.as_ref().map(part).filter(|loan| loan.units > 0) {
            granted if granted == answer.granted => lender.decide(&self.policy, state, now, cost, question),
            granted => lender.accept(&self.policy, state, now, cost, question, granted).unwrap(),
        }
    }

    fn record(&mut self, cost: u64, admitted: bool, retry_after: Option<Millis>) {
        let (at, resets) = (self.now(), self.resets);
        self.decided.push(Decided { at, cost, admitted, retry_after, resets });
    }

    fn reset(&mut self) {
        let (state, lender) = self.read();
        let (lender, state) =
            lender.reset(&self.policy, &state).unwrap_or((Lender::default(), self.policy.initial_state()));
        self.write(&state, &lender);
        self.resets += 1;
        // A row that is gone does not know which numbers its loans of this millisecond had. A call from before that still arrives could
        // return another's.
        if !self.flights.is_empty() {
            self.now_ms += 1;
        }
    }

    /// Panics if the wait of a denial is not right: until then the check is denied, and then it is admitted.
    pub(crate) fn waits_are_right(&self, cost: u64) {
        let (mut state, mut lender) = self.read();
        lender.settle(&self.policy, &mut state, self.now());
        let peeked = self.policy.peek(&state, self.now(), cost);
        let Some(wait) = lender.corrected(&self.policy, &state, self.now(), cost, peeked).retry_after() else { return };
        let allowed_after = |ms: u64| {
            let (mut state, mut lender) = (state.clone(), lender.clone());
            let then = self.now() + Millis::new(ms);
            lender.settle(&self.policy, &mut state, then);
            self.policy.peek(&state, then, cost).is_allowed()
        };
        assert!(allowed_after(wait.get()), "denied after {wait}");
        assert!(!allowed_after(wait.get() - 1), "admitted before {wait}");
    }

    /// What was admitted in an interval over the most that it may be, if anything. A bucket repays a grace, and a window does not: each
    /// one may have it again.
    pub(crate) fn excess(&self) -> Option<String> {
        let grace = self.lease.grace * self.fresh;
        let admitted: Vec<_> = self.decided.iter().filter(|one| one.admitted && one.cost > 0).collect();
        for (place, first) in admitted.iter().enumerate() {
            let mut sum = 0;
            for last in admitted[place..].iter().take_while(|last| last.resets == first.resets) {
                sum += last.cost;
                for quota in self.policy.quotas() {
                    let windows = match quota.rule() {
                        Rule::TokenBucket(_) => 1,
                        Rule::FixedWindow(rule) => {
                            let nth = |at: UnixMillis| at.get() / rule.window().get();
                            1 + nth(last.at) - nth(first.at)
                        }
                        Rule::CalendarWindow(rule) => {
                            (rule.maximum(first.at, last.at) - rule.carry_over()) / rule.limit()
                        }
                        rule => 1 + last.at.since(first.at).get() / rule.window().get(),
                    };
                    let most = quota.rule().maximum(first.at, last.at) + grace * windows;
                    if sum > most {
                        return Some(format!("{sum} of at most {most} from {} to {}", first.at, last.at));
                    }
                }
            }
        }
        None
    }
}

/// The kinds of policies that can be lent.
pub(crate) const ALL: Range<u8> = 0..8;

/// Those without a bucket.
pub(crate) const WINDOWS: Range<u8> = 0..5;

pub(crate) fn policies(kinds: Range<u8>) -> impl Strategy<Value = Policy> {
    let numbers = (kinds, 1..40u64, 1..30u64, 20..3_000u64);
    numbers.prop_map(|(kind, limit, refill, span_ms)| {
        let span = Millis::new(span_ms);
        let bucket = || Quota::token_bucket(limit, refill, span).unwrap().named("burst").unwrap();
        let fixed = || Quota::fixed_window(limit, span).unwrap();
        let sliding = || Quota::sliding_window(limit, span).unwrap();
        let longer = || Quota::fixed_window(2 * limit, Millis::new(3 * span_ms)).unwrap().named("long").unwrap();
        // One begins some seconds after the start.
        let calendar = || {
            let (start, minute) = (UnixMillis::new(START_MS - 60_000 * (span_ms % 3)), Millis::from_secs(60));
            let window = CalendarWindow::new(limit, start, minute + minute, minute, refill.min(limit) - 1).unwrap();
            Quota::from(Rule::CalendarWindow(window)).named("calendar").unwrap()
        };
        let quotas = match kind {
            0 => vec![fixed()],
            1 => vec![sliding()],
            2 => vec![sliding(), longer()],
            3 => vec![calendar()],
            4 => vec![calendar(), sliding()],
            5 => vec![bucket()],
            6 => vec![bucket(), longer()],
            _ => vec![sliding(), longer(), bucket()],
        };
        Policy::new("api", quotas).unwrap()
    })
}

pub(crate) fn lease() -> impl Strategy<Value = Lease> {
    (1..40u64, 1..4_000u64, any::<bool>()).prop_map(|(slice, lifetime_ms, in_background)| Lease {
        in_background,
        deadline: Millis::new(500),
        ..Lease::new(slice, Millis::new(lifetime_ms))
    })
}

/// With a grace.
pub(crate) fn lease_with_grace() -> impl Strategy<Value = Lease> {
    (lease(), 1..5u64).prop_map(|(lease, grace)| Lease { in_background: true, grace, ..lease })
}

/// Steps of a story in which anything goes wrong.
pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let borrower = || 0..BORROWERS;
    let cost = prop_oneof![4 => Just(1), 1 => 0..9u64];
    let delay = || prop_oneof![2 => Just(0u64), 1 => 0..50u64, 1 => 0..900u64];
    let again = prop_oneof![2 => Just(None), 1 => delay().prop_map(Some)];
    let network = (delay(), delay(), prop::bool::weighted(0.1), prop::bool::weighted(0.2), again).prop_map(
        |(out_ms, back_ms, loses_calls, loses_answers, again_ms)| Network {
            out_ms,
            back_ms,
            loses_calls,
            loses_answers,
            again_ms,
        },
    );
    // A clock that is set back by less than its readings may be out of order is not seen to be.
    const YEAR_MS: i64 = 365 * 86_400_000;
    let end_ms = (UnixMillis::MAX.get() - START_MS).cast_signed();
    let set = prop_oneof![
        3 => -5_000..-20i64,
        3 => 0..5_000i64,
        1 => prop::sample::select(vec![-YEAR_MS, YEAR_MS, end_ms, -end_ms, end_ms - 10_000, -2 * YEAR_MS]),
    ];
    let step = prop_oneof![
        12 => (borrower(), cost.clone(), 1..20u64)
            .prop_map(|(borrower, cost, times)| Step::Ask { borrower, cost, times }),
        1 => cost.prop_map(Step::Plain),
        8 => prop_oneof![4 => 0..20u64, 4 => 0..400u64, 4 => 0..4_000u64, 1 => 0..70_000u64].prop_map(Step::Forward),
        1 => borrower().prop_map(Step::Die),
        1 => (borrower(), set).prop_map(|(borrower, by_ms)| Step::Set(borrower, by_ms)),
        1 => Just(Step::Reset),
        2 => network.prop_map(Step::Network),
        2 => borrower().prop_map(Step::Return),
        1 => (0..=100u64, 1..=100u64).prop_map(|(units, lasts)| Step::Lend(units, lasts)),
    ];
    prop::collection::vec(step, 1..80)
}
