//! Warnings: a charge that takes a key to a part of its limit.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(all(feature = "toml", feature = "lending"))]

use std::fmt::Write as _;
use std::num::NonZero;
use std::sync::{Arc, Mutex};

use pollster::block_on;
use proptest::prelude::*;
use tidegate_core::gate::{Events, Gate, JsonLines, OnWarning, Request, Rules, Verdict, Warning};
use tidegate_core::{
    Accuracy, Capabilities, ClientIpSource, ErasedLimiter, ErrorKind, Limiter, MemoryLimiter, Millis, Platform,
    UnixMillis,
};
use tidegate_testing::{Declaring, FlakyStore, NOW};

const CLIENT: [(&str, &str); 1] = [("cf-connecting-ip", "192.0.2.1")];

/// What was told: the quota, the percent, what is used, the end of the window, and whether it is of a settlement and may repeat.
type Told = (String, u8, u64, Option<UnixMillis>, bool, bool);

#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Told>>>);

impl Heard {
    fn events(&self) -> Events {
        let heard = self.clone();
        let warned = OnWarning(move |warning: &Warning<'_>| {
            let Warning { quota, percent, used, window_end, is_settled, may_repeat, .. } = *warning;
            heard.0.lock().unwrap().push((quota.into(), percent, used, window_end, is_settled, may_repeat));
        });
        // A sample leaves out events, and no warning.
        Events::new(warned).sample_allowed(NonZero::new(1_000).unwrap())
    }

    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// The percent of each.
    fn percents(&self) -> Vec<u8> {
        self.take().iter().map(|told| told.1).collect()
    }
}

fn gate(text: &str, store: impl Limiter + 'static) -> (Gate<'static>, Heard) {
    let (rules, heard) = (Rules::parse("rules.toml", text).unwrap(), Heard::default());
    let gate = Gate::new(rules, store, ClientIpSource::new(Platform::Cloudflare)).unwrap();
    (gate.events(heard.events()), heard)
}

fn request(after: u64) -> Request<'static> {
    Request::new("GET", "/", &CLIENT, NOW + Millis::new(after))
}

fn check(gate: &Gate<'_>, cost: u64) -> Verdict {
    block_on(gate.check(&request(0).cost(cost)))
}

const WINDOW: &str = r#"
limits.api.quotas = [{ algorithm = "fixed_window", limit = 10, window_ms = 60_000, warn_at = [50, 80, 100] }]
[[rules]]
limits = ["api"]
"#;

#[test]
fn each_crossing_is_one_warning_and_the_level_is_what_is_reached() {
    let (gate, heard) = gate(WINDOW, MemoryLimiter::new());
    let levels: Vec<_> = [4, 1, 1, 2, 3, 2, 1].map(|cost| check(&gate, cost).level()).into();
    // The fifth costs more than is left, and charges nothing.
    assert_eq!(levels, [None, Some(50), Some(50), Some(80), Some(100), Some(100), Some(100)]);
    let end = Some(UnixMillis::new(NOW.get() - NOW.get() % 60_000 + 60_000));
    let told = |percent, used| ("api".to_owned(), percent, used, end, false, false);
    assert_eq!(heard.take(), [told(50, 5), told(80, 8), told(100, 10)]);
    // The next window crosses all at once.
    block_on(gate.check(&request(60_000).cost(10)));
    let next = end.map(|end| end + Millis::new(60_000));
    let ends: Vec<_> = heard.take().into_iter().map(|told| (told.1, told.3)).collect();
    assert_eq!(ends, [(50, next), (80, next), (100, next)]);
}

#[cfg(feature = "calendar")]
#[test]
fn a_calendar_window_has_its_end_also_with_what_it_carries_over() {
    let text = r#"
        limits.api.quotas = [{ algorithm = "calendar_window", limit = 10, every = "day", zone = "UTC", carry_over = 10, warn_at = [50, 100] }]
        [[rules]]
        limits = ["api"]
    "#;
    let (gate, heard) = gate(text, MemoryLimiter::new());
    let day = 86_400_000;
    let end = |nth| Some(UnixMillis::new(NOW.get() - NOW.get() % day + nth * day));
    check(&gate, 5);
    let told = heard.take();
    let limit = block_on(gate.usage(&request(0))).unwrap().quotas()[0].limit;
    // Ten of the day before are left, too.
    assert_eq!((limit, told.len()), (20, 0));
    check(&gate, 5);
    assert_eq!(heard.take().into_iter().map(|told| (told.1, told.3)).collect::<Vec<_>>(), [(50, end(1))]);
}

#[test]
fn a_replay_a_refund_and_a_settlement_warn_of_what_they_charge() {
    let (gate, heard) = gate(WINDOW, MemoryLimiter::new());
    let hold = |token: &'static str, cost| {
        let Verdict::Pass(pass) = block_on(gate.check(&request(0).cost(cost).token(token))) else { panic!() };
        pass.hold().unwrap().clone()
    };
    let settle = |hold, cost| block_on(gate.settle(hold, cost, NOW)).unwrap();
    let first = hold("a", 6);
    assert_eq!(heard.percents(), [50]);
    hold("a", 6);
    assert_eq!(heard.percents(), Vec::<u8>::new(), "a replay");
    // Back below a part, and then again to it.
    settle(&first, 1);
    settle(&first, 9);
    assert_eq!(heard.percents(), Vec::<u8>::new(), "a refund, and its replay");
    let second = hold("b", 4);
    assert_eq!(heard.percents(), [50]);
    settle(&second, 9);
    let told: Vec<_> = heard.take().into_iter().map(|told| (told.1, told.2, told.4, told.5)).collect();
    assert_eq!(told, [(80, 10, true, false), (100, 10, true, false)]);
}

#[test]
fn a_settlement_into_debt_may_tell_again() {
    let (gate, heard) = gate(WINDOW, MemoryLimiter::new());
    let Verdict::Pass(pass) = block_on(gate.check(&request(0).cost(9).token("a"))) else { panic!() };
    assert_eq!(heard.percents(), [50, 80]);
    block_on(gate.settle(pass.hold().unwrap(), 14, NOW)).unwrap();
    // 9 were used, and 14 are. All that the store tells is that none are left.
    let told: Vec<_> = heard.take().into_iter().map(|told| (told.1, told.4, told.5)).collect();
    assert_eq!(told, [(80, true, true), (100, true, true)]);
}

#[test]
fn counts_that_are_not_the_stores_warn_of_nothing() {
    let around = r#"
        stores.default = { fallback = { store = "backup", percent = 50 }, deny_cache = true }
        limits.api.quotas = [{ algorithm = "fixed_window", limit = 10, window_ms = 60_000, warn_at = [10, 100] }]
        [[rules]]
        limits = ["api"]
    "#;
    let (main, heard) = (FlakyStore::default(), Heard::default());
    let stores =
        [("default", Box::new(main.clone()) as Box<dyn ErasedLimiter>), ("backup", Box::new(MemoryLimiter::new()))];
    let rules = Rules::parse("rules.toml", around).unwrap();
    let gate =
        Gate::with_stores(rules, stores, ClientIpSource::new(Platform::Cloudflare)).unwrap().events(heard.events());
    main.fail(ErrorKind::Unavailable);
    assert_eq!((check(&gate, 4).level(), heard.percents()), (None, vec![]), "a fallback");
    main.fail(None);
    let later = |cost| block_on(gate.check(&request(30_000).cost(cost)));
    assert_eq!((later(10).level(), heard.percents()), (Some(100), vec![10, 100]));
    // The second denial is the cache's.
    assert_eq!(([later(1).level(), later(1).level()], heard.percents()), ([Some(100); 2], vec![]));
    main.fail(ErrorKind::Timeout);
}

#[test]
fn mistakes_say_what_to_delete() {
    let error = |limit: &str, more: &str| {
        let text = format!("{more}\n[limits.api]\n{limit}\n[[rules]]\nlimits = [\"api\"]\n");
        Rules::parse("rules.toml", &text).unwrap_err().to_string()
    };
    let warned = r#"quotas = [{ algorithm = "fixed_window", limit = 9, window_ms = 60_000, warn_at = [80] }]"#;
    assert_eq!(
        error(&format!("{warned}\nlease = true"), ""),
        "rules.toml:4:9: a decision from a loan tells no counts; delete lease, or delete warn_at"
    );
    assert!(error(&format!("{warned}\ncharge_denied = true"), "").ends_with(
        "charge_denied: a denial that is charged does not tell what was used before; delete it, or delete warn_at"
    ));
    for around in [r#"near = { store = "other", limit = "api" }"#, r#"shadow = { api = "api" }"#] {
        let text = error(warned, &format!("stores.default = {{ {around} }}"));
        assert!(
            text.ends_with(r#"what is asked first or tried warns of nothing; delete warn_at from the limit "api""#),
            "{text}"
        );
    }
    let misspelt = error(&warned.replace("warn_at", "warnat"), "");
    assert!(misspelt.contains("unknown field `warnat`; did you mean \"warn_at\"?"), "{misspelt}");
    let penalty = r#"quotas = [{ algorithm = "fixed_window", limit = 9, window_ms = 60_000 }, { algorithm = "block", cap_ms = 5, warn_at = [80] }]"#;
    assert!(error(penalty, "").contains("unknown field `warn_at`"), "{}", error(penalty, ""));
    let native = Declaring(Capabilities::EXACT.accuracy(Accuracy::PerLocation), MemoryLimiter::new());
    let made =
        Gate::new(Rules::parse("rules.toml", WINDOW).unwrap(), native, ClientIpSource::new(Platform::Cloudflare));
    let Err(error) = made else { panic!() };
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        error.to_string(),
        "rule \"/*\": this store does not tell what is used, and so warns of nothing; delete warn_at"
    );
}

#[test]
fn compiled_rules_warn_as_their_file_and_lines_have_no_key() {
    let rules = Rules::parse("rules.toml", WINDOW).unwrap();
    let same = Rules::from_bytes(&rules.to_bytes()).unwrap();
    assert_eq!(same.rules()[0].policies().next().unwrap().quotas()[0].warns_at().collect::<Vec<_>>(), [50, 80, 100]);
    let lines = Arc::new(Mutex::new(Vec::<String>::new()));
    let telling = Arc::clone(&lines);
    let warned = OnWarning(move |warning: &Warning<'_>| telling.lock().unwrap().push(warning.to_json()));
    let gate = Gate::new(same, MemoryLimiter::new(), ClientIpSource::new(Platform::Cloudflare)).unwrap();
    let gate = gate.events(Events::new((JsonLines::new(std::io::sink()), warned)).key_secret([7; 16]));
    check(&gate, 5);
    let lines = lines.lock().unwrap();
    let [line] = &lines[..] else { panic!() };
    let (start, rest) = line.split_once(r#""key":""#).unwrap();
    assert_eq!(start, format!(r#"{{"at_ms":{},"rule":"/*","policy":"api","warning":50,"quota":"api","#, NOW.get()));
    let end = NOW.get() - NOW.get() % 60_000 + 60_000;
    assert_eq!(&rest[16..], format!(r#"","limit":10,"used":5,"window_end_ms":{end}}}"#));
    assert!(!line.contains("192.0.2.1"));
}

/// A quota of each kind, which warns at these parts.
fn file(picks: &[(usize, u64)], percents: &[u8]) -> String {
    let mut quotas = String::new();
    for (nth, (algorithm, limit)) in picks.iter().enumerate() {
        let algorithm = [
            format!("algorithm = \"fixed_window\", limit = {limit}, window_ms = 20_000"),
            format!("algorithm = \"sliding_window\", limit = {limit}, window_ms = 20_000"),
            format!("algorithm = \"sliding_log\", limit = {limit}, window_ms = 20_000"),
            format!("algorithm = \"token_bucket\", capacity = {limit}, refill = 3, per_ms = 7_000"),
            format!("algorithm = \"leaky_bucket\", capacity = {limit}, refill = 3, per_ms = 7_000"),
            format!("algorithm = \"concurrency\", limit = {limit}, lifetime_ms = 9_000"),
        ][*algorithm]
            .clone();
        write!(quotas, "{{ {algorithm}, name = \"q{nth}\", warn_at = {percents:?} }}, ").unwrap();
    }
    format!("limits.api.quotas = [{quotas}]\n[[rules]]\nlimits = [\"api\"]\n")
}

proptest! {
    /// The oracle peeks before and after each check at the same instant: each part between is told once, and nothing else.
    #[test]
    fn what_is_told_is_what_lies_between_two_peeks(
        picks in prop::collection::vec((0..6_usize, 1..40_u64), 1..4),
        percents in prop::collection::btree_set(1..=100_u8, 1..8),
        steps in prop::collection::vec((0..6_u64, 0..5_000_u64, any::<bool>(), 0..9_u64), 1..60),
    ) {
        let percents: Vec<u8> = percents.into_iter().collect();
        let (gate, heard) = gate(&file(&picks, &percents), MemoryLimiter::new());
        let mut after = 0;
        for (nth, (cost, span, settles, actual)) in steps.into_iter().enumerate() {
            after += span;
            let (now, token) = (request(after).now(), format!("t{nth}"));
            let used = || -> Vec<(u64, u64)> {
                let usage = block_on(gate.usage(&request(after))).unwrap();
                usage.quotas().iter().map(|quota| (quota.limit, quota.used.unwrap())).collect()
            };
            let reached = |used: u64, limit: u64, percent: u8| u128::from(used) * 100 >= u128::from(percent) * u128::from(limit);
            let crossed = |before: &[(u64, u64)], now: &[(u64, u64)]| -> Vec<(String, u8)> {
                let places = 0..before.len();
                places.flat_map(|place| {
                    let ((limit, was), (_, is)) = (before[place], now[place]);
                    let between = percents.iter().filter(move |percent| !reached(was, limit, **percent) && reached(is, limit, **percent));
                    between.map(move |percent| (format!("q{place}"), *percent)).collect::<Vec<_>>()
                }).collect()
            };
            let named = || -> Vec<(String, u8)> { heard.take().into_iter().map(|told| (told.0, told.1)).collect() };
            let before = used();
            let verdict = block_on(gate.check(&request(after).cost(cost).token(&token)));
            let then = used();
            let mut expected = crossed(&before, &then);
            // Quotas may be told in the policy's order, which is that of the file.
            expected.sort_unstable();
            let mut told = named();
            told.sort_unstable();
            prop_assert_eq!(&told, &expected, "{:?} {:?}", before, then);
            let most = percents.iter().rev().find(|percent| then.iter().any(|(limit, used)| reached(*used, *limit, **percent)));
            let level = if matches!(verdict, Verdict::Pass(_)) { most.copied() } else { Some(100) };
            prop_assert_eq!(verdict.level(), level);
            let Verdict::Pass(pass) = verdict else { continue };
            if !settles || cost == 0 {
                continue;
            }
            let decision = block_on(gate.settle(pass.hold().unwrap(), actual, now)).unwrap();
            let last = used();
            // A slot is given back first, so a concurrency limit crosses nothing.
            let mut expected = crossed(&then, &last);
            expected.sort_unstable();
            let told = heard.take();
            let mut certain: Vec<(String, u8)> = told.iter().filter(|told| !told.5).map(|told| (told.0.clone(), told.1)).collect();
            let mut all: Vec<(String, u8)> = told.iter().map(|told| (told.0.clone(), told.1)).collect();
            certain.sort_unstable();
            all.sort_unstable();
            if decision.is_allowed() {
                prop_assert_eq!(&all, &expected, "settled {:?} {:?}", then, last);
            }
            // In debt, what is told may be more than was crossed, and never less.
            prop_assert!(expected.iter().all(|one| all.contains(one)), "{:?} {:?}", expected, all);
            prop_assert!(certain.iter().all(|one| expected.contains(one)), "{:?} {:?}", certain, expected);
        }
    }
}
