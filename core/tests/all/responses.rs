//! Challenges by bot score, and denied clients that do not all return at once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(feature = "toml")]

use pollster::block_on;
use tidegate_core::gate::{Credit, Gate, Grantee, OnFailure, Reason, Request, Rules, Verdict};
use tidegate_core::{
    Capabilities, ClientIpSource, ErrorKind, Fallback, MemoryLimiter, Platform, Policy, Quota, ResponseFields,
};
use tidegate_testing::{Declaring, NOW, failing};

const HEADERS: [(&str, &str); 1] = [("cf-connecting-ip", "192.0.2.1")];

fn gate(rules: &str) -> Gate<'static> {
    let rules = Rules::parse("rules.toml", rules).unwrap();
    Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Cloudflare)).unwrap()
}

#[test]
fn a_bot_score_selects_a_stricter_limit_or_a_challenge() {
    let quota = |limit| format!("[{{ algorithm = 'fixed_window', limit = {limit}, window_ms = 60000 }}]");
    let gate = gate(&format!(
        "lists.allow = ['198.51.100.7']
        [limits]
        api.quotas = {}
        suspects.quotas = {}
        [[rules]]
        path = '/api'
        limits = ['api']
        [[rules]]
        path = '/api'
        bot_score_below = 30
        limits = ['suspects']
        [[rules]]
        path = '/api'
        bot_score_below = 10
        challenge = '/challenge?from=api'",
        quota(9),
        quota(2),
    ));
    let ask = |score: Option<u8>, headers: &[(&str, &str)]| {
        let request = Request::new("GET", "/api", &headers, NOW);
        block_on(gate.check(&score.map_or(request.clone(), |score| request.bot_score(score))))
    };
    let limit = |score| match ask(score, &HEADERS) {
        Verdict::Pass(pass) => pass.decision().map(|decision| decision.binding().limit()),
        Verdict::Refuse(_) => None,
    };
    // Without a score, as on most platforms, no rule for bots applies.
    assert_eq!([None, Some(255), Some(30)].map(limit), [Some(9); 3]);
    assert_eq!([Some(29), Some(10)].map(limit), [Some(2); 2]);
    for score in [9, 1, 0] {
        let Verdict::Refuse(refusal) = ask(Some(score), &HEADERS) else { panic!() };
        assert!(matches!(refusal.reason(), Reason::Challenged(address) if &**address == "/challenge?from=api"));
        let rejection = refusal.rejection();
        let body = r#"{"error":"challenge","url":"/challenge?from=api"}"#;
        assert_eq!((rejection.status_code(), rejection.body()), (403, body));
    }
    assert!(matches!(ask(Some(0), &[("cf-connecting-ip", "198.51.100.7")]), Verdict::Pass(_)));

    for (wrong, message) in [
        ("bot_score_below = 0", "write a whole number from 1 to 255"),
        ("challenge = 'javascript:alert(1)'", "is not an address"),
        ("challenge = '/a\"b'", "is not an address"),
        ("challenge = '/a'\nlimits = ['a']", "delete its limits"),
    ] {
        let text = format!("limits.a.quotas = {}\n[[rules]]\n{wrong}", quota(1));
        let error = Rules::parse("rules.toml", &text).unwrap_err().to_string();
        assert!(error.contains(message), "{wrong}: {error}");
    }
    let hidden = "[[rules]]\nbot_score_below = 9\n[[rules]]\nbot_score_below = 9";
    assert!(Rules::parse("rules.toml", hidden).unwrap().warnings()[0].contains("no request reaches "));
}

#[test]
fn a_file_may_ask_for_the_fields_of_draft_6() {
    for (asks, expected) in
        [("draft_6_fields = true", true), ("draft_6_fields = false", false), ("format = 'json'", false)]
    {
        let gate = gate(&format!(
            "responses.{asks}
            limits.api.quotas = [{{ algorithm = 'fixed_window', limit = 1, window_ms = 60000 }}]
            rules = [{{ limits = ['api'] }}]"
        ));
        let request = Request::new("GET", "/", &HEADERS, NOW);
        let Verdict::Pass(pass) = block_on(gate.check(&request)) else { panic!() };
        assert_eq!(pass.fields().get(ResponseFields::RATELIMIT_LIMIT), expected.then_some("1"));
        assert!(pass.fields().get(ResponseFields::RATELIMIT).is_some());
        let Verdict::Refuse(refusal) = block_on(gate.check(&request)) else { panic!() };
        assert_eq!(refusal.rejection().fields().get(ResponseFields::RATELIMIT_REMAINING), expected.then_some("0"));
    }
}

#[test]
fn a_file_may_ask_for_the_wait_in_milliseconds() {
    for (asks, expected) in [("retry_after_ms = true", Some("60000")), ("retry_after_ms = false", None)] {
        let gate = gate(&format!(
            "responses.{asks}
            limits.api.quotas = [{{ algorithm = 'fixed_window', limit = 1, window_ms = 60000 }}]
            rules = [{{ limits = ['api'] }}]"
        ));
        let request = Request::new("GET", "/", &HEADERS, NOW);
        assert!(matches!(block_on(gate.check(&request)), Verdict::Pass(_)));
        let Verdict::Refuse(refusal) = block_on(gate.check(&request)) else { panic!() };
        assert_eq!(refusal.rejection().fields().get(ResponseFields::RETRY_AFTER_MS), expected);
    }
}

/// Only a denial that a grant would end is a 402, and it says when the quota admits the request, if it will.
#[test]
fn a_file_may_ask_for_402_if_credits_are_missing() {
    let rules = |responses: &str| {
        format!(
            "responses = {{ {responses} }}
            [limits]
            api.quotas = [
              {{ algorithm = 'fixed_window', limit = 1, window_ms = 60_000 }},
              {{ algorithm = 'balance', max = 5, covers = true }},
            ]
            credits.quotas = [{{ algorithm = 'balance', max = 5 }}]
            hourly.quotas = [{{ algorithm = 'fixed_window', limit = 1, window_ms = 3_600_000 }}]
            [[rules]]
            path = '/api'
            limits = ['api']
            [[rules]]
            path = '/credits'
            limits = ['credits']
            [[rules]]
            path = '/hourly'
            limits = ['hourly', 'api']"
        )
    };
    let refused = |gate: &Gate<'_>, path: &str, cost| match block_on(
        gate.check(&Request::new("GET", path, &HEADERS, NOW).cost(cost)),
    ) {
        Verdict::Refuse(refusal) => {
            let rejection = refusal.rejection();
            let field = |name| rejection.fields().get(name).map(str::to_owned);
            (rejection.status_code(), field(ResponseFields::RETRY_AFTER), rejection.body().to_owned())
        }
        Verdict::Pass(_) => (200, None, String::new()),
    };
    let (paid, usual) = (gate(&rules("payment_required = true")), gate(&rules("")));
    for gate in [&paid, &usual] {
        assert_eq!(refused(gate, "/api", 1).0, 200);
    }
    // The quota replenishes.
    let (status, retry_after, body) = refused(&paid, "/api", 1);
    assert_eq!((status, retry_after.as_deref()), (402, Some("60")));
    assert_eq!((429, retry_after, body), refused(&usual, "/api", 1));
    // Waiting does not help.
    let (status, retry_after, body) = refused(&paid, "/credits", 1);
    assert_eq!((status, retry_after.as_deref()), (402, None));
    assert_eq!((429, retry_after, body), refused(&usual, "/credits", 1));
    // Credits do not help: the balance can hold no more, or another quota denies.
    assert_eq!(refused(&paid, "/credits", 6).0, 429);
    let bob = || Request::new("GET", "/hourly", &HEADERS, NOW).subject("bob");
    block_on(paid.grant(&Credit::new("api", Grantee::Subject("bob"), 5, "order", NOW))).unwrap();
    assert!(matches!(block_on(paid.check(&bob())), Verdict::Pass(_)));
    let Verdict::Refuse(refusal) = block_on(paid.check(&bob())) else { panic!() };
    assert_eq!(refusal.rejection().status_code(), 429);
    // The problem document has the same status as the response.
    let problems = gate(&rules("payment_required = true, format = 'problem'"));
    let (status, _, body) = refused(&problems, "/credits", 1);
    assert!(status == 402 && body.contains("\"status\":402"), "{body}");
    // In an outage nobody knows the balance, and credits would not help.
    let policy = || Policy::new("api", [Quota::balance(5).unwrap()]).unwrap();
    let store = Declaring(Capabilities::EXACT.grant(true), failing(ErrorKind::Timeout));
    let fallback = Fallback::new(store, 50).unwrap();
    let by_code = Rules::all(policy(), OnFailure::Closed).payment_required(true);
    let down = Gate::new(by_code, fallback, ClientIpSource::new(Platform::Cloudflare)).unwrap();
    assert_eq!(refused(&down, "/", 1).0, 429);
}

/// How many of a thousand clients, which were denied together, return in each second after the window's end.
fn herd(spread_ms: u64) -> Vec<usize> {
    let gate = gate(&format!(
        "responses.spread_retry_after_ms = {spread_ms}
        limits.api.quotas = [{{ algorithm = 'fixed_window', limit = 1, window_ms = 60000 }}]
        rules = [{{ limits = ['api'] }}]"
    ));
    let request = Request::new("GET", "/", &HEADERS, NOW);
    assert!(matches!(block_on(gate.check(&request)), Verdict::Pass(_)));
    let mut returning = vec![0; usize::try_from(spread_ms / 1_000).unwrap() + 1];
    for _ in 0..1_000 {
        let Verdict::Refuse(refusal) = block_on(gate.check(&request)) else { panic!() };
        let after: usize = refusal.rejection().fields().get(ResponseFields::RETRY_AFTER).unwrap().parse().unwrap();
        // Never earlier than the request is admissible, and never later than asked for.
        returning[after - 60] += 1;
        let Reason::Denied(decision) = refusal.reason() else { panic!() };
        assert_eq!(decision.retry_after().unwrap().get(), 60_000);
    }
    returning
}

/// `cargo test -p tidegate-core --features toml --test all responses -- --nocapture` prints the numbers.
#[test]
fn denied_clients_do_not_return_together() {
    let (together, spread) = (herd(0), herd(10_000));
    println!("1,000 clients return in these seconds: {together:?}, and with a spread of 10 s: {spread:?}");
    assert_eq!(together, [1_000]);
    // Each second expects 100. Nine standard deviations are 85.
    assert!(spread.iter().all(|count| *count < 185), "{spread:?}");
    assert_eq!(spread.iter().sum::<usize>(), 1_000);
}

/// The numbers are the first four of the generator's reference implementation with the seed 0.
#[test]
fn a_seed_repeats_the_spread() {
    const SPLIT_MIX_64: [u64; 4] =
        [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f, 0xf88b_b8a8_724c_81ec];
    let gate = gate(
        "responses.spread_retry_after_ms = 60_000
        limits.api.quotas = [{ algorithm = 'fixed_window', limit = 1, window_ms = 60_000 }]
        rules = [{ limits = ['api'] }]",
    )
    .seed(0);
    let request = Request::new("GET", "/", &HEADERS, NOW);
    assert!(matches!(block_on(gate.check(&request)), Verdict::Pass(_)));
    for number in SPLIT_MIX_64 {
        let Verdict::Refuse(refusal) = block_on(gate.check(&request)) else { panic!() };
        let after: u64 = refusal.rejection().fields().get(ResponseFields::RETRY_AFTER).unwrap().parse().unwrap();
        assert_eq!(after, (60_000 + number % 60_001).div_ceil(1_000));
    }
}
