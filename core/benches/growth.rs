//! What a decision costs as a number grows: keys, rules, quotas, dimensions and borrowers. `tidegate-dev bench-report` fits an exponent to
//! each line.
//!
//! `cargo bench -p tidegate-core --features toml --bench growth`
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Result;

use tidegate_core::gate::{Request, Rules};
use tidegate_core::lending::{Borrowers, Lease, Lender, Verdict};
use tidegate_core::{Check, Key, MemoryLimiter, Millis, Policy, PolicyState, Quota};
use tidegate_measured::{At, Measurement, Unit, ns_per_call, shortened};
use tidegate_testing::NOW;

const HEADERS: [(&str, &str); 2] = [("host", "www.example.com"), ("accept", "*/*")];

/// The calls of a part of a round.
const CALLS: u32 = 20_000;

fn main() -> Result<()> {
    for many in [1_000, 10_000, 100_000, 1_000_000, 10_000_000] {
        keys(many)?;
    }
    for many in [1, 10, 100, 1_000, 10_000] {
        rules(many)?;
    }
    for many in [1, 2, 4, 8] {
        quotas(many)?;
    }
    for many in [1, 2, 3, 4] {
        dimensions(many)?;
    }
    for many in [1, 4, 16, 64] {
        borrowers(many)?;
    }
    Ok(())
}

fn measured(name: &str, at: At) -> Measurement<'_> {
    Measurement::new("growth", name, Unit::Ns).at(at)
}

fn bucket() -> Quota {
    Quota::token_bucket(1_000_000_000, 1_000_000_000, Millis::from_secs(1)).unwrap()
}

fn keys(many: u32) -> Result<()> {
    let policy = Policy::new("api", [bucket()]).unwrap();
    let memory = MemoryLimiter::new();
    let check = |nth: u32| {
        let key = Key::new(format!("user:{nth}"));
        assert!(memory.decide(Check::new(&policy, &key, NOW)).unwrap().is_allowed());
    };
    (0..many).for_each(check);
    let mut nth = 0;
    measured("a check in memory, and making its key", At::Keys(many)).alone(|| {
        ns_per_call(CALLS, || {
            // A prime, so that it shares no factor with the number of keys.
            nth = (nth + 7_919) % many;
            check(nth);
        })
    })
}

/// Each rule has a path and a limit of its own.
fn rules(many: u32) -> Result<()> {
    let mut text = String::new();
    for nth in 0..many {
        let _ =
            write!(text, "[limits.l{nth}]\nquotas = [{{ algorithm = 'fixed_window', limit = 5, window_ms = 1000 }}]\n");
        let _ = write!(text, "[[rules]]\npath = '/api/v{}/things{}/{{id}}'\nlimits = ['l{nth}']\n", nth % 10, nth / 10);
    }
    let rules = Rules::parse("rules.toml", &text).unwrap();
    let path = format!("/api/v{}/things{}/7", (many - 1) % 10, (many - 1) / 10);
    let request = Request::new("GET", &path, &HEADERS, NOW);
    let at = At::Rules(many);
    let find = || assert!(rules.find(black_box(&request)).is_some());
    measured("finding the rule of a request", at).alone(|| ns_per_call(CALLS, find))?;
    let parse = || Rules::parse("rules.toml", black_box(&text)).unwrap();
    measured("reading the file of rules", at).alone(|| ns_per_call((2_000 / many).max(1), parse))
}

fn quotas(many: u32) -> Result<()> {
    let policy = Policy::new("api", (0..many).map(|nth| bucket().named(&format!("q{nth}")).unwrap())).unwrap();
    let (memory, key) = (MemoryLimiter::new(), Key::new("user:1"));
    let check = || memory.decide(Check::new(&policy, black_box(&key), NOW)).unwrap();
    measured("a check in memory of one key", At::Quotas(many)).alone(|| ns_per_call(CALLS, check))
}

/// Each quota counts by a dimension of its own, and so by a key of its own.
fn dimensions(many: u32) -> Result<()> {
    let names: Vec<String> = (0..many).map(|nth| format!("d{nth}")).collect();
    let quota = |name: &String| bucket().named(name).and_then(|quota| quota.by(name)).unwrap();
    let policy = Policy::new("api", names.iter().map(quota)).unwrap();
    let keys: Vec<(&str, Key)> = names.iter().map(|name| (name.as_str(), Key::new(name))).collect();
    let keys: Vec<(&str, &Key)> = keys.iter().map(|(name, key)| (*name, key)).collect();
    let memory = MemoryLimiter::new();
    let check = || memory.decide(Check::new(&policy, black_box(&keys[..]), NOW)).unwrap();
    measured("a check in memory of a quota in each", At::Dimensions(many)).alone(|| ns_per_call(CALLS, check))
}

/// A limit that is large beside what is lent, so that each borrower has a loan.
fn borrowers(many: u32) -> Result<()> {
    let policy = Policy::new("api", [Quota::fixed_window(1 << 40, Millis::from_secs(3_600)).unwrap()]).unwrap();
    let key = Key::new("user:1");
    let mut row = Row { state: policy.initial_state(), lender: Lender::default() };
    let lease = Lease::new(50, Millis::from_secs(10));
    let mut all: Vec<Borrowers<()>> = (0..many).map(|_| Borrowers::new(lease)).collect();
    let mut spend = |row: &mut Row| {
        for borrower in &mut all {
            row.spend(borrower, &Check::new(&policy, &key, NOW));
        }
    };
    // Loans double until they are as large as they get.
    (0..shortened(1_000)).for_each(|_| spend(&mut row));
    let mut round = || ns_per_call((CALLS / many).max(1), || spend(&mut row)) / f64::from(many);
    measured("a decision from a lease, and its share of the lender's", At::Borrowers(many)).alone(&mut round)
}

struct Row {
    state: PolicyState,
    lender: Lender,
}

impl Row {
    fn spend(&mut self, borrower: &mut Borrowers<()>, check: &Check<'_>) {
        if let Verdict::Ask(asked) = borrower.decide("user:1", check, || ()) {
            self.lender.settle(check.policy, &mut self.state, check.now);
            let answer = self.lender.decide(check.policy, &mut self.state, check.now, check.cost, &asked.question);
            borrower.answered("user:1", asked.nth, Some(&answer));
        }
    }
}
