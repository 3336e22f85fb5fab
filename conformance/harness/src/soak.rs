//! Random traffic with faults, for as long as wanted. Every answer is judged.
//!
//! A soak test is a sequence of rounds. Each is a random fixture on keys of its own, generated from the seed and the round's
//! number, and judged like every fixture: an exact target must answer like the reference, and another must stay within its
//! bounds. So a violation is reproduced by its seed and number alone, and reduced to the smallest fixture that still fails.

use std::collections::BTreeMap;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize as _, Serialize};
use serde_json::{Map, Value, json};
use tidegate_conformance::fixture::{Case, Disturb, Op, parse};
use tidegate_conformance::judge::Verdict;
use tidegate_conformance::report::FixtureReport;
use tidegate_conformance::run::{self, prepare};
use tidegate_conformance::subject::Subject;
use tidegate_core::lending::LIFETIME_MAX;
use tidegate_core::{Accuracy, Capabilities, Drift, Quota};

use crate::target::Target;

/// What has happened so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// The rounds that the target supports and that were judged.
    pub rounds: u64,
    /// The keys used.
    pub keys: u64,
    /// The decisions asked for.
    pub decisions: u64,
    /// The decisions that were admissions.
    pub admitted: u64,
    /// The answers that were errors, because of a fault.
    pub errors: u64,
    /// How often each fault was injected.
    pub faults: BTreeMap<&'static str, u64>,
    /// The rounds that failed.
    pub violations: u64,
}

/// One round.
#[derive(Debug)]
pub struct Round {
    /// The seed of the test.
    pub seed: u64,
    /// The number of the round.
    pub number: u64,
}

/// The virtual time of the first round.
const START_MS: u64 = 1_800_000_000_000;

/// The virtual time from one round to the next.
const DAY_MS: u64 = 86_400_000;

/// The fault of a clock that steps back.
const CLOCK_STEP: &str = "clock_step";

/// How often a round is generated until the target supports it.
const TRIES: u64 = 200;

impl Round {
    /// Plays the round on a running target, and adds it to the tally. Returns its report.
    ///
    /// # Errors
    /// Fails if the target supports nothing that is generated.
    pub async fn play(
        &self,
        target: &dyn Target,
        subject: &impl Subject,
        tally: &mut Tally,
    ) -> Result<FixtureReport, String> {
        let declared = target.declared().capabilities;
        // A store without tokens loses only answers to writes, and a random burst may write nothing.
        let can = |fault| target.can(fault) && (fault != Disturb::LoseAnswers || declared.idempotency);
        for attempt in 0..TRIES {
            let mut random = ChaCha8Rng::seed_from_u64(self.seed);
            random.set_stream(self.number * TRIES + attempt);
            let plan = Plan::random(&mut random, &declared, can);
            let case = plan.case(&format!("soak/{}-{}", self.seed, self.number), START_MS + self.number * DAY_MS)?;
            // After the clock has stepped back, a key's waits depend on whether its row has been forgotten in the meantime. What
            // is admitted does not.
            let within = Accuracy::Approximate(Drift::WITHIN_LIMIT);
            let by_bounds = plan.steps_back() && matches!(declared.accuracy, Accuracy::Exact);
            let judged_by = if by_bounds { declared.accuracy(within) } else { declared };
            let prepared = prepare(vec![case]).await.map_err(|wrong| wrong.join("\n"))?;
            let prefix = format!("s{:x}-{}-{}.", std::process::id(), self.seed, self.number);
            let report = run::one(target, &judged_by, subject, &prepared[0], &prefix).await;
            if matches!(report.verdict, Verdict::Unsupported | Verdict::Unverified) {
                continue;
            }
            tally.rounds += 1;
            tally.keys += plan.keys;
            tally.decisions += report.offered;
            tally.admitted += report.admitted;
            tally.errors += report.errors;
            for fault in plan.faults {
                *tally.faults.entry(fault).or_default() += 1;
            }
            tally.violations += u64::from(report.verdict == Verdict::Fail);
            return Ok(report);
        }
        Err(format!("{} supports none of {TRIES} random fixtures", target.name()))
    }
}

/// A fixture as it is generated.
struct Plan {
    policy: Value,
    locations: u64,
    keys: u64,
    steps: Vec<Value>,
    faults: Vec<&'static str>,
}

impl Plan {
    /// Generates what these capabilities allow. In a round with a fault, time does not step back. If some answers are errors,
    /// all checks are alike, because only then the bounds around errors are known.
    fn random(random: &mut ChaCha8Rng, declared: &Capabilities, can: impl Fn(Disturb) -> bool) -> Self {
        let holds = matches!(declared.accuracy, Accuracy::Approximate(drift) if drift.floor.held > 0);
        let busy = [Disturb::Kill, Disturb::Abort].into_iter().filter(|fault| can(*fault)).collect::<Vec<_>>();
        if !busy.is_empty() && random.random_ratio(if holds { 4 } else { 1 }, 8) {
            return match busy[random.random_range(0..busy.len())] {
                Disturb::Kill => Self::of_kills(random, declared),
                _ => Self::of_aborts(random, declared),
            };
        }
        let faults = [
            Disturb::ScriptFlush,
            Disturb::Restart,
            Disturb::Hang,
            Disturb::LoseAnswers,
            Disturb::Evict,
            Disturb::Abort,
        ];
        let faults: Vec<_> = faults.into_iter().filter(|fault| can(*fault)).collect();
        let fault =
            (!faults.is_empty() && random.random_ratio(1, 8)).then(|| faults[random.random_range(0..faults.len())]);
        let plain = fault.is_some_and(Disturb::interrupts);
        let quotas = if plain { 1 } else { random.random_range(1..=declared.max_quotas.min(4)) };
        let algorithms: Vec<_> =
            Capabilities::COUNTING.iter().filter(|name| declared.algorithms.contains(name)).collect();
        let quotas: Vec<_> = (0..quotas)
            .map(|nth| {
                let algorithm = algorithms[random.random_range(0..algorithms.len())];
                quota(random, algorithm, nth)
            })
            .collect();
        let charge_denied = !plain && declared.charge_denied && random.random_ratio(1, 8);
        let mut plan = Self {
            policy: json!({ "name": "soak", "quotas": quotas, "charge_denied": charge_denied }),
            locations: if random.random_ratio(1, 4) { 3 } else { 1 },
            keys: random.random_range(1..=40),
            steps: Vec::new(),
            faults: Vec::new(),
        };
        let (mut at_ms, count) = (0_i64, random.random_range(10..60));
        let goes_back = fault.is_none() && random.random_ratio(1, 4);
        let disturbed = random.random_range(0..count);
        for nth in 0..count {
            at_ms += match random.random_range(0..10) {
                0 => random.random_range(1_000..90_000),
                1..4 => random.random_range(1..2_000),
                4 if goes_back => {
                    plan.faults.push(CLOCK_STEP);
                    -random.random_range(1..30_000)
                }
                _ => 0,
            };
            let mut step = plan.step(random, declared, plain);
            step.insert("at_ms".into(), at_ms.into());
            if let Some(fault) = fault.filter(|_| nth == disturbed) {
                plan.disturb(random, declared, step, fault);
                continue;
            }
            plan.steps.push(step.into());
        }
        plan
    }

    /// Generates a round in which the processes that ask the store are killed now and then, with what they have borrowed. Their limit
    /// is large, so that it is more than all dead borrowers together may hold. At last, each key is asked for more than its limit when
    /// nothing counts any more.
    fn of_kills(random: &mut ChaCha8Rng, declared: &Capabilities) -> Self {
        let limit = random.random_range(400..1_200);
        let (mut plan, window_ms) = Self::of_busy_keys(random, declared, limit);
        let mut at_ms = 0;
        for nth in 0..random.random_range(12..32) {
            at_ms += match random.random_range(0..8) {
                0 => random.random_range(1_000..90_000),
                1..5 => random.random_range(1..700),
                _ => 0,
            };
            let fault = (nth > 0 && random.random_bool(0.5)).then_some(Disturb::Kill);
            let burst = random.random_range(20..100);
            plan.ask_any(random, at_ms, burst, fault);
        }
        plan.ask_each(at_ms + LIFETIME_MAX.get() + 2 * window_ms, limit + 50);
        plan
    }

    /// Generates a round in which clients abort requests while the store is asked, and then each key is asked for more than its limit.
    /// Only few are aborted at a time, because each of them lowers the floor. This is so again whenever nothing counts any more.
    fn of_aborts(random: &mut ChaCha8Rng, declared: &Capabilities) -> Self {
        let limit = random.random_range(200..500);
        let (mut plan, window_ms) = Self::of_busy_keys(random, declared, limit);
        let mut at_ms = 0;
        for _ in 0..random.random_range(1..4) {
            plan.ask_each(at_ms, random.random_range(20..100));
            for _ in 0..random.random_range(4..12) {
                at_ms += random.random_range(1..80);
                let burst = random.random_range(3..10);
                plan.ask_any(random, at_ms, burst, Some(Disturb::Abort));
            }
            plan.ask_each(at_ms, limit + 50);
            at_ms = (at_ms + LIFETIME_MAX.get() + 2 * window_ms).next_multiple_of(window_ms);
        }
        plan
    }

    /// A plan without steps for a few busy keys with this limit, and the length of its window. All checks are to be alike, as only then
    /// the floor is known.
    fn of_busy_keys(random: &mut ChaCha8Rng, declared: &Capabilities, limit: u64) -> (Self, u64) {
        let algorithms = ["fixed_window", "sliding_window", "token_bucket"];
        let algorithms: Vec<_> = algorithms.iter().filter(|name| declared.algorithms.contains(name)).collect();
        let algorithm = algorithms[random.random_range(0..algorithms.len())];
        let quota = sized(random, algorithm, 0, limit);
        let window_ms = Quota::deserialize(&quota).map_or(1, |quota| quota.rule().window().get());
        let policy = json!({ "name": "soak", "quotas": [quota] });
        let keys = random.random_range(1..=2);
        (Self { policy, locations: 1, keys, steps: Vec::new(), faults: Vec::new() }, window_ms)
    }

    /// Adds a step for one of the keys.
    fn ask_any(&mut self, random: &mut ChaCha8Rng, at_ms: u64, burst: u64, fault: Option<Disturb>) {
        let key = format!("user:{}", random.random_range(0..self.keys));
        let mut step = json!({ "at_ms": at_ms, "key": key, "burst": burst });
        if let Some(fault) = fault {
            step["disturb"] = json!(fault);
            self.faults.push(fault.name());
        }
        self.steps.push(step);
    }

    /// Adds a step for each key.
    fn ask_each(&mut self, at_ms: u64, burst: u64) {
        let step = |key| json!({ "at_ms": at_ms, "key": format!("user:{key}"), "burst": burst });
        self.steps.extend((0..self.keys).map(step));
    }

    /// Adds a step during which a fault is injected. Its requests may repeat one another with a token; then those of the step
    /// after it do so, too, like a client that got an error.
    fn disturb(
        &mut self,
        random: &mut ChaCha8Rng,
        declared: &Capabilities,
        mut step: Map<String, Value>,
        fault: Disturb,
    ) {
        step.retain(|name, _| matches!(name.as_str(), "at_ms" | "key" | "location"));
        step.insert("burst".into(), random.random_range(100..600).into());
        let retried = declared.idempotency && random.random_bool(0.5);
        if retried {
            step.insert("token".into(), "retried".into());
            step.insert("token_ttl_ms".into(), 600_000.into());
        }
        let retry = retried.then(|| Value::from(step.clone()));
        step.insert("disturb".into(), json!(fault));
        self.steps.push(step.into());
        self.steps.extend(retry);
        self.faults.push(fault.name());
    }

    fn steps_back(&self) -> bool {
        self.faults.contains(&CLOCK_STEP)
    }

    fn step(&self, random: &mut ChaCha8Rng, declared: &Capabilities, plain: bool) -> Map<String, Value> {
        let op = match random.random_range(0..20) {
            0 if !plain && declared.peek => Op::Peek,
            1 if !plain && declared.refund => Op::Refund,
            2 if !plain && declared.reset => Op::Reset,
            _ => Op::Check,
        };
        let burst = match random.random_range(0..4) {
            0 => random.random_range(20..150),
            1 => random.random_range(2..20),
            _ => 1,
        };
        // Few keys get most of the traffic.
        let key = random.random_range(0..self.keys).min(random.random_range(0..self.keys));
        let mut step = json!({
            "op": op, "key": format!("user:{key}"), "location": random.random_range(0..self.locations),
            "burst": if matches!(op, Op::Refund | Op::Reset) { 1 } else { burst },
        });
        if declared.costs && !plain && op != Op::Reset && random.random_ratio(1, 5) {
            step["cost"] = random.random_range(0..6).into();
        }
        if declared.idempotency && !plain && op == Op::Check && random.random_ratio(1, 12) {
            step["token"] = format!("t{}", random.random_range(0..1_000_000)).into();
            step["token_ttl_ms"] = 600_000.into();
        }
        step.as_object().cloned().unwrap_or_default()
    }

    fn case(&self, id: &str, start_ms: u64) -> Result<Case, String> {
        let Self { policy, locations, steps, .. } = self;
        let about = "Random traffic.";
        let text = json!({ "id": id, "about": about, "start_ms": start_ms, "policy": policy, "locations": locations, "steps": steps });
        parse(id, &text.to_string(), None).map_err(|wrong| {
            let wrong: Vec<_> = wrong.iter().map(ToString::to_string).collect();
            format!("the generated fixture is invalid: {}", wrong.join("; "))
        })
    }
}

fn quota(random: &mut ChaCha8Rng, algorithm: &str, nth: usize) -> Value {
    let limit = match random.random_range(0..4) {
        0 => random.random_range(1..5),
        1 => random.random_range(100..400),
        _ => random.random_range(5..100),
    };
    sized(random, algorithm, nth, limit)
}

fn sized(random: &mut ChaCha8Rng, algorithm: &str, nth: usize, limit: u64) -> Value {
    let window_ms = [1_000, 10_000, 60_000][random.random_range(0..3)];
    let name = format!("q{nth}");
    match algorithm {
        "token_bucket" | "leaky_bucket" => {
            let refill = random.random_range(1..=limit);
            json!({ "name": name, "algorithm": algorithm, "capacity": limit, "refill": refill, "per_ms": window_ms })
        }
        "calendar_window" => {
            let anchor = format!("2001-01-01T00:{:02}", random.random_range(0..60));
            let carry_over = random.random_range(0..=limit);
            json!({ "name": name, "algorithm": algorithm, "limit": limit, "every": "hour", "anchor": anchor, "carry_over": carry_over })
        }
        _ => json!({ "name": name, "algorithm": algorithm, "limit": limit, "window_ms": window_ms }),
    }
}
