//! Limits whose numbers a token, the application or an override gives.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(all(feature = "toml", feature = "lending"))]

use pollster::block_on;
use tidegate_core::gate::{Claims, Gate, InvalidToken, Reason, Request, Rules, TokenRules, Verdict, VerifyToken};
use tidegate_core::store::AtomicLimiter;
use tidegate_core::{
    Capabilities, ClientIpSource, Decision, ErasedLimiter, Error, ErrorKind, MemoryLimiter, Origin, Platform,
    UnixMillis, limiter_fn,
};
use tidegate_testing::{FlakyStore, NOW};

use crate::lending::store::Store;

/// Every token has this payload.
#[derive(Debug)]
struct Says(String);

impl VerifyToken for Says {
    fn verify(&self, _: &str, expected: &TokenRules, now: UnixMillis) -> Result<Claims, InvalidToken> {
        Claims::of_payload(self.0.as_bytes(), expected, now)
    }
}

const WITHOUT_TOKEN: [(&str, &str); 1] = [("x-limit", "1000000")];

const HEADERS: [(&str, &str); 2] = [("authorization", "Bearer a.b.c"), ("x-limit", "1000000")];

/// A window of ten requests, more of a claim or of the application.
const RULES: &str = r#"
[tokens]
algorithms = ["EdDSA"]

[limits.api]
quotas = [{ algorithm = "fixed_window", limit = 10, window_ms = 60_000, limit_from = { claim = "rpm", max = 50, min = 5 } }]

[limits.plan]
quotas = [{ algorithm = "fixed_window", limit = 10, window_ms = 60_000, limit_from = { application = "plan", max = 50 } }]

[[rules]]
limits = ["api"]
on_failure = "open"

[[rules]]
path = "/plan"
limits = ["plan"]
"#;

/// The limit of the rules file for the token of alice with this claim, as `"rpm": 20`.
fn rules(text: &str, claim: &str) -> Rules {
    let payload = Says(format!("{{ \"sub\": \"alice\", \"exp\": 1800000300{claim} }}"));
    Rules::parse("rules.toml", text).unwrap().verify_tokens(payload)
}

fn gate(claim: &str) -> Gate<'static> {
    Gate::new(rules(RULES, claim), MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap()
}

fn request(path: &str) -> Request<'_> {
    Request::new("GET", path, &HEADERS, NOW).peer("192.0.2.1".parse().ok())
}

/// The limit that applied and what remains, or the error.
fn told(gate: &Gate<'_>, request: &Request<'_>) -> Result<(u64, Option<u64>), String> {
    match block_on(gate.check(request)) {
        Verdict::Refuse(refusal) => match refusal.reason() {
            Reason::Denied(decision) => Ok(of(decision)),
            Reason::Failed(error) => Err(error.to_string()),
            other => Err(format!("{other:?}")),
        },
        Verdict::Pass(pass) => pass.decision().map(of).ok_or_else(|| "not decided".to_string()),
    }
}

fn of(decision: &Decision) -> (u64, Option<u64>) {
    (decision.binding().limit(), decision.binding().remaining())
}

#[test]
fn a_claim_of_the_counted_token_gives_the_limit() {
    for (claim, limit) in [
        ("", 10),
        (r#", "rpm": null"#, 10),
        (r#", "rpm": 20"#, 20),
        (r#", "rpm": 50"#, 50),
        (r#", "rpm": 51"#, 50),
        (r#", "rpm": 9007199254740991"#, 50),
        (r#", "rpm": 4"#, 5),
        (r#", "rpm": 0"#, 5),
    ] {
        assert_eq!(told(&gate(claim), &request("/")), Ok((limit, Some(limit - 1))), "{claim}");
    }
    // The application's identity is counted, and the token beside it gives nothing.
    assert_eq!(told(&gate(r#", "rpm": 20"#), &request("/").subject("bob")), Ok((10, Some(9))));
}

#[test]
fn a_claim_that_is_no_number_refuses_the_request_whatever_a_failure_does() {
    for (claim, shown) in [
        (r#""20""#, r#""20""#),
        (r#""unlimited""#, r#""unlimited""#),
        ("20.5", "20.5"),
        ("2e1", "2e1"),
        ("-1", "-1"),
        ("9007199254740992", "9007199254740992"),
        ("99999999999999999999999999", "99999999999999999999999999"),
        ("true", "true"),
        ("[20]", "a list"),
        (r#"{ "a": 20 }"#, "a table"),
        (r#""""#, r#""""#),
    ] {
        let gate = gate(&format!(r#", "rpm": {claim}"#));
        let expected =
            format!(r#"limit "api": the claim "rpm" is {shown}; give a whole number from 0 to 9007199254740991"#);
        assert_eq!(told(&gate, &request("/")), Err(expected), "{claim}");
        let Verdict::Refuse(refusal) = block_on(gate.check(&request("/"))) else { panic!("{claim}") };
        assert_eq!(refusal.rejection().status_code(), 503);
        let rules = gate.rules();
        let explained = rules.explain(&request("/"), gate.client_ip());
        assert!(explained.to_string().ends_with(": refused with a 503\n"), "{explained}");
        assert!(explained.error().is_some());
    }
}

#[test]
fn the_application_gives_the_limit_of_a_request() {
    let gate = gate("");
    let ask = |limits: &[(&str, u64)]| told(&gate, &request("/plan").limits(limits));
    assert_eq!(ask(&[("plan", 20)]), Ok((20, Some(19))));
    assert_eq!(ask(&[]), Ok((10, Some(8))));
    assert_eq!(ask(&[("plan", 1_000)]), Ok((50, Some(47))));
    let wrong = ask(&[("plan", 1 << 53)]);
    let message = r#"limit "plan": the application's number "plan" is 9007199254740992; give a whole number from 0 to 9007199254740991"#;
    assert_eq!(wrong, Err(message.into()));
    let unknown = r#"limits: no limit takes "plam" from the application; did you mean "plan"? Write one of "plan""#;
    assert_eq!(ask(&[("plam", 20)]), Err(unknown.into()));
    // A claim is none of its names.
    let claimed = ask(&[("rpm", 20)]);
    assert_eq!(claimed, Err(r#"limits: no limit takes "rpm" from the application; write one of "plan""#.into()));
    assert_eq!(ask(&[("plan", 0)]), Ok((1, Some(0))));
}

/// A change of the number neither resets what was used nor loses it, for every algorithm with a limit.
#[test]
fn another_number_keeps_what_was_used() {
    for (algorithm, numbers) in [
        ("fixed_window", "limit = 10, window_ms = 60_000"),
        ("sliding_window", "limit = 10, window_ms = 60_000"),
        ("sliding_log", "limit = 10, window_ms = 60_000"),
        ("token_bucket", "capacity = 10, refill = 5, per_ms = 60_000"),
        ("leaky_bucket", "capacity = 10, refill = 5, per_ms = 60_000"),
    ] {
        let text = format!(
            r#"limits.api.quotas = [{{ algorithm = "{algorithm}", {numbers}, limit_from = {{ application = "n", max = 100 }} }}]
            rules = [{{ limits = ["api"] }}]"#
        );
        let rules = Rules::parse("rules.toml", &text).unwrap();
        let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
        let ask = |number| told(&gate, &request("/").limits(&[("n", number)]).cost(4));
        assert_eq!(ask(10), Ok((10, Some(6))), "{algorithm}");
        assert_eq!(ask(20), Ok((20, Some(12))), "{algorithm}");
        assert_eq!(ask(5), Ok((5, Some(0))), "{algorithm}");
        assert_eq!(ask(100), Ok((100, Some(88))), "{algorithm}");
        assert_eq!(ask(5), Ok((5, Some(0))), "{algorithm}");
        assert_eq!(ask(20), Ok((20, Some(4))), "{algorithm}");
    }
}

#[test]
fn the_rate_of_a_bucket_changes_as_its_capacity() {
    let text = r#"
        limits.api.quotas = [{ algorithm = "token_bucket", capacity = 20, refill = 10, per_ms = 1000, limit_from = { application = "n", max = 200 } }]
        rules = [{ limits = ["api"] }]"#;
    let rules = Rules::parse("rules.toml", text).unwrap();
    let explained = |number| {
        let explained = rules.explain(&request("/").limits(&[("n", number)]), &ClientIpSource::new(Platform::Direct));
        explained.to_string().lines().find(|line| line.starts_with("limit")).unwrap().to_string()
    };
    let line = |numbers: &str, from: &str| {
        format!(
            r#"limit    api: token_bucket of {numbers} in 1 s, by sender = ip:192.0.2.1, from the application's number "n"{from}"#
        )
    };
    assert_eq!(explained(200), line("200, 100", ""));
    assert_eq!(explained(5), line("5, 2", ""));
    assert_eq!(explained(0), line("1, 1", ": 0, but at least 1"));
    assert_eq!(explained(201), line("200, 100", ": 201, but at most 200"));
}

const KEYS: &str = r#"
[overrides]
"sub:alice" = { api = { limit = 30 } }
"ip:192.0.2.1" = { plan = { limit = 3 } }
"#;

#[test]
fn an_override_is_of_one_key_and_precedes_what_is_given() {
    let text = format!("{RULES}{KEYS}");
    let open =
        |claim| Gate::new(rules(&text, claim), MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
    let gate = open(r#", "rpm": 20"#);
    assert_eq!(told(&gate, &request("/")), Ok((30, Some(29))));
    assert_eq!(told(&gate, &request("/").subject("bob")), Ok((10, Some(9))));
    // Above the maximum of what is given: who writes the file may.
    assert_eq!(told(&gate, &request("/plan").limits(&[("plan", 40)]).subject("bob")), Ok((40, Some(39))));
    let without_token = Request::new("GET", "/plan", &WITHOUT_TOKEN, NOW).peer("192.0.2.1".parse().ok());
    assert_eq!(told(&gate, &without_token.limits(&[("plan", 40)])), Ok((3, Some(2))));
    // A subject that is written as another's key is another key.
    assert_eq!(told(&gate, &request("/plan").subject("ip:192.0.2.1")), Ok((10, Some(9))));
    assert_eq!(told(&open(r#", "rpm": "x""#), &request("/")), Ok((30, Some(29))));
    let explained = rules(&text, "").explain(&request("/"), gate.client_ip()).to_string();
    assert!(explained.contains("fixed_window of 30 in 60 s, by sender = sub:alice, by an override\n"), "{explained}");
}

#[test]
fn a_file_of_overrides_is_read_again_without_the_rules() {
    let gate = gate("");
    let own = |number: u64| format!("[overrides]\n\"sub:alice\" = {{ api = {{ limit = {number} }} }}\n");
    assert_eq!(told(&gate, &request("/")), Ok((10, Some(9))));
    gate.reload_overrides("overrides.toml", &own(30)).unwrap();
    assert_eq!(told(&gate, &request("/")), Ok((30, Some(28))));
    assert_eq!(gate.rules().overrides(), 1);
    // What is wrong with it changes nothing.
    let error = gate.reload_overrides("overrides.toml", &own(0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "overrides.toml:2:33: 0 is out of range; write a whole number from 1 to 2251799813685248"
    );
    assert_eq!(told(&gate, &request("/")), Ok((30, Some(27))));
    // Nor does a reload of the rules forget it, which have others.
    let with_others = || rules(&format!("{RULES}{KEYS}"), "");
    gate.reload(with_others()).unwrap();
    assert_eq!(told(&gate, &request("/")), Ok((30, Some(26))));
    assert_eq!(gate.rules().overrides(), 2);
    gate.reload_overrides("overrides.toml", &own(20)).unwrap();
    assert_eq!(told(&gate, &request("/")), Ok((20, Some(15))));
    // The rules no longer have its limit.
    let fewer = RULES.replace("api", "apis");
    let error = gate.reload(rules(&fewer, "")).unwrap_err();
    assert!(
        error.to_string().starts_with(r#"overrides.toml:2:23: "api" is not a limit; did you mean "apis"?"#),
        "{error}"
    );
    assert_eq!(told(&gate, &request("/")), Ok((20, Some(14))));
    gate.reload_overrides("overrides.json", r#"{ "overrides": {} }"#).unwrap();
    gate.reload(rules(&fewer, "")).unwrap();
    assert_eq!(told(&gate, &request("/")), Ok((10, Some(9))));
}

#[test]
fn rules_that_were_compiled_before_have_the_same_numbers() {
    let text = format!("{RULES}{KEYS}");
    let compiled = Rules::from_plain_bytes(&rules(&text, "").to_bytes()).unwrap();
    let payload = Says(r#"{ "sub": "bob", "exp": 1800000300, "rpm": 20 }"#.into());
    let gate = Gate::new(compiled.verify_tokens(payload), MemoryLimiter::new(), ClientIpSource::new(Platform::Direct));
    let gate = gate.unwrap();
    assert_eq!(told(&gate, &request("/")), Ok((20, Some(19))));
    assert_eq!(told(&gate, &request("/").subject("alice")), Ok((30, Some(29))));
}

#[test]
fn what_replaces_a_store_admits_a_share_of_the_number_that_applies() {
    let text = format!("{RULES}\n[stores.main]\nfallback = {{ store = \"other\", percent = 20 }}\ndeny_cache = true\n");
    let (main, other) = (FlakyStore::default(), FlakyStore::default());
    let of = |store: &FlakyStore| Box::new(store.clone()) as Box<dyn ErasedLimiter>;
    let stores = [("main", of(&main)), ("other", of(&other))];
    let gate = Gate::with_stores(rules(&text, ""), stores, ClientIpSource::new(Platform::Direct)).unwrap();
    let ask = |number, cost| told(&gate, &request("/plan").limits(&[("plan", number)]).cost(cost));
    // A denial that is cached is of that number. Each decision asks the store once.
    assert_eq!(ask(10, 10), Ok((10, Some(0))));
    assert_eq!((ask(10, 10), ask(10, 10)), (Ok((10, Some(0))), Ok((10, None))));
    assert_eq!(main.take_checks(), 2);
    assert_eq!(ask(20, 10), Ok((20, Some(0))));
    assert_eq!(main.take_checks(), 1);
    main.fail(ErrorKind::Unavailable);
    assert_eq!(ask(50, 1), Ok((10, Some(9))));
    assert_eq!(ask(10, 1), Ok((2, Some(0))));
}

/// The lender and the borrower count by the number of each request. A key whose number has changed gets no grace until it is answered.
#[test]
fn a_loan_is_of_the_number_that_applied() {
    let text = r#"
        limits.plan = { lease = { slice = 4, lifetime_ms = 10_000, grace = 1 }, quotas = [{ algorithm = "fixed_window", limit = 10, window_ms = 60_000, limit_from = { application = "plan", max = 50 } }] }
        rules = [{ limits = ["plan"] }]"#;
    let store = Store::default();
    let open = || {
        let lender = AtomicLimiter::new(store.clone());
        let gate = Gate::new(rules(text, ""), lender, ClientIpSource::new(Platform::Direct)).unwrap();
        gate.in_background();
        gate
    };
    let gate = open();
    let origin = |number: u64| {
        let verdict = block_on(gate.check(&request("/").limits(&[("plan", number)])));
        (matches!(verdict, Verdict::Pass(_)), verdict.decision().unwrap().origin())
    };
    assert_eq!(origin(10), (true, Origin::Lease), "the grace of a key that nobody knows");
    assert_eq!(origin(20), (true, Origin::Store), "no grace by another number");
    let mut passed = 2;
    for nth in 0..60 {
        passed += u64::from(origin(if nth % 2 == 0 { 10 } else { 20 }).0);
    }
    assert!(passed <= 20, "{passed}");
    let other = open();
    let by_other = request("/").limits(&[("plan", 20)]);
    for _ in 0..60 {
        passed += u64::from(matches!(block_on(other.check(&by_other)), Verdict::Pass(_)));
    }
    assert!(passed <= 20 + 2, "{passed} is more than the limit and a grace of each");
}

#[test]
fn a_store_whose_numbers_the_platform_has_takes_no_others() {
    let native = || {
        limiter_fn(Capabilities::NATIVE.algorithms(&["fixed_window"]), |_| Err(Error::new(ErrorKind::Unavailable, "")))
    };
    let plain = r#"
        limits.api.quotas = [{ algorithm = "fixed_window", limit = 10, window_ms = 60_000 }]
        rules = [{ limits = ["api"] }]"#;
    let open = |text: &str| {
        Gate::new(Rules::parse("rules.toml", text).unwrap(), native(), ClientIpSource::new(Platform::Direct))
    };
    let varying = plain.replace("60_000 }", "60_000, limit_from = { application = \"n\", max = 20 } }");
    let message =
        r#"limit "api": it counts in a store whose numbers the platform has; delete limit_from and its overrides"#;
    assert_eq!(open(&varying).err().unwrap().to_string(), message);
    let overrides = "[overrides]\n'sub:a' = { api = { limit = 5 } }\n";
    assert_eq!(open(&format!("{plain}\n{overrides}")).err().unwrap().to_string(), message);
    let gate = open(plain).unwrap();
    let error = gate.reload_overrides("overrides.toml", overrides).unwrap_err();
    let message = r#"overrides.toml:2:19: "api" counts in a store whose numbers the platform has; delete this"#;
    assert_eq!(error.to_string(), message);
}

/// The mistakes that a file may have, each with what to write instead.
#[test]
fn a_mistake_in_a_file_is_an_error_with_what_to_write() {
    let quota = |from: &str| {
        format!(
            r#"[limits.api]
quotas = [{{ algorithm = "fixed_window", limit = 10, window_ms = 60000, limit_from = {from} }}]
[[rules]]
limits = ["api"]
"#
        )
    };
    let client =
        "is what a client writes, and it would choose its limit; write claim, of a verified token, or application";
    for (from, expected) in [
        (r#"{ header = "x-limit", max = 20 }"#, &*format!(r#""header" {client}"#)),
        (r#"{ query = "limit", max = 20 }"#, &format!(r#""query" {client}"#)),
        (r#""x-limit""#, r#"expected a table; write one such as { claim = "rpm", max = 10000 }"#),
        (r#"{ claim = "rpm", max = 20 }"#, "the file verifies no tokens; write the table tokens, or application"),
        (r#"{ max = 20 }"#, "write either claim or application"),
        (r#"{ claim = "a", application = "b", max = 20 }"#, "write either claim or application"),
        (r#"{ application = "b" }"#, "missing field `max`"),
        (r#"{ application = "b", max = 9 }"#, "9 is out of range; write a whole number from 10 to 2251799813685248"),
        (r#"{ application = "b", max = 20, min = 11 }"#, "11 is out of range; write a whole number from 1 to 10"),
        (
            r#"{ application = "b", max = 20, mim = 1 }"#,
            r#"unknown field `mim`; did you mean "min"? Write one of "claim", "application", "max", "min""#,
        ),
        (
            r#"{ application = "a b", max = 20 }"#,
            r#"application: "a b" cannot be a name; write 1 to 32 of the characters a-z A-Z 0-9 - _ ."#,
        ),
    ] {
        let error = Rules::parse("rules.toml", &quota(from)).unwrap_err().to_string();
        assert!(error.starts_with("rules.toml:2:") && error.ends_with(expected), "{from}: {error}");
    }
    let with = |overrides: &str| {
        format!(
            "{}[limits.two]\nquotas = [{{ algorithm = \"fixed_window\", limit = 10, window_ms = 60000 }}, {{ algorithm = \"sliding_log\", limit = 10, window_ms = 60000, name = \"log\" }}, {{ algorithm = \"block\", cap_ms = 5 }}]\n[[rules]]\npath = \"/two\"\nlimits = [\"two\"]\n[overrides]\n{overrides}\n",
            quota(r#"{ application = "n", max = 20 }"#)
        )
    };
    let hash =
        "this is not the hash of an API key; write 32 hexadecimal digits in lower case, the first half of its SHA-256";
    for (overrides, expected) in [
        (
            r#""sub:a" = { apo = { limit = 5 } }"#,
            r#""apo" is not a limit; did you mean "api"? Write one of "api", "two""#,
        ),
        (
            r#""sub:a" = { api = { limits = 5 } }"#,
            r#"unknown field `limits`; did you mean "limit"? Write one of "limit", "api""#,
        ),
        (r#""sub:a" = { two = { limit = 5 } }"#, r#"unknown field `limit`; write one of "two-1", "log""#),
        (r#""sub:a" = { two = { log = 1001 } }"#, "limit: 1001 is out of range for a sliding log"),
        (r#""sub:a" = { api = { limit = 0 } }"#, "0 is out of range; write a whole number from 1 to 2251799813685248"),
        (r#""sub:a" = { api = {} }"#, "empty; write one such as { limit = 5000 }"),
        (r#""sub:a" = { api = { limit = 5, api = 6 } }"#, "its only quota has two numbers; write limit alone"),
        (r#""sub:a" = { api = 5 }"#, "expected a table, found a number"),
        (r#""key:sk_live_secret" = { api = { limit = 5 } }"#, hash),
        (
            r#""tenant:a*" = { api = { limit = 5 } }"#,
            r#""tenant:a*" is not a key as tidegate explain prints it; write "tenant:a%2A""#,
        ),
        (r#""" = { api = { limit = 5 } }"#, r#""" is not a key as tidegate explain prints it; write """#),
        (
            r#""ip:2001:db8::1" = { api = { limit = 5 } }"#,
            r#""ip:2001:db8::1" is one address, and a network is counted; write "ip:2001:db8::/64", or "ip:2001:db8::1/128" for the address"#,
        ),
        (
            r#""ip:2001:db8::1/64" = { api = { limit = 5 } }"#,
            r#""ip:2001:db8::1/64" is counted as another; write "ip:2001:db8::/64""#,
        ),
        (
            r#""ip:::ffff:192.0.2.1/128" = { api = { limit = 5 } }"#,
            r#"is not the key of an address; write one such as ip:192.0.2.1 or ip:2001:db8::/64"#,
        ),
        (
            r#""ip:192.0.2.0/24" = { api = { limit = 5 } }"#,
            r#"is not the key of an address; write one such as ip:192.0.2.1 or ip:2001:db8::/64"#,
        ),
        (
            r#""ip:somebody" = { api = { limit = 5 } }"#,
            r#"is not the key of an address; write one such as ip:192.0.2.1 or ip:2001:db8::/64"#,
        ),
        (
            "\"ip:2001:db8::1/128\" = { api = { limit = 5 } }\n\"ip:2001:DB8::1/128\" = { api = { limit = 5 } }",
            "this key is written twice; write it once",
        ),
    ] {
        let error = Rules::parse("rules.toml", &with(overrides)).unwrap_err().to_string();
        let is_read = error.starts_with("rules.toml:") && error.contains(expected);
        assert!(is_read && !error.contains("sk_live"), "{overrides}: {error}");
    }
    for overrides in [
        r#""key:2bb80d537b1da3e38bd30361aa855686" = { api = { limit = 5000 } }"#,
        r#""ip:2001:db8::/64" = { api = { api = 5 }, two = { two-1 = 5, log = 6 } }"#,
        r#""ip:unknown" = { api = { limit = 1 } }"#,
        r#""tenant:a%2A" = { api = { limit = 1 } }"#,
    ] {
        assert!(Rules::parse("rules.toml", &with(overrides)).is_ok(), "{overrides}");
    }
    let leased = |lease: &str, min: u64| {
        let from = format!("{{ application = \"n\", max = 20, min = {min} }}");
        Rules::parse("rules.toml", &quota(&from).replace("quotas", &format!("lease = {lease}\nquotas")))
    };
    let lease = "{ slice = 9, lifetime_ms = 100, grace = 2 }";
    assert!(leased(lease, 2).is_ok());
    let error = leased(lease, 1).unwrap_err().to_string();
    assert!(error.ends_with("a grace of 2 is more than the limit of 1; write at most 1"), "{error}");
    let error = leased(lease, 2).unwrap().with_overrides("o.toml", "overrides.'sub:a'.api.limit = 1").unwrap_err();
    assert!(error.to_string().ends_with("write at least 2"), "{error}");
    let near = "[stores.default]\nnear = { store = \"other\", limit = \"api\" }\n";
    let error = Rules::parse("rules.toml", &[&quota("{ application = \"n\", max = 20 }"), near].concat()).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("what is asked first or tried has one number for all; delete limit_from from the limit \"api\""),
        "{error}"
    );
    // A bucket of so many would be stored in another unit, and begin anew.
    let huge = "limits.api.quotas = [{ algorithm = \"token_bucket\", capacity = 10, refill = 36000, per_ms = 3600000, limit_from = { application = \"n\", max = 1000000000 } }]";
    let error = Rules::parse("rules.toml", huge).unwrap_err().to_string();
    assert!(
        error.ends_with("capacity: 1000000000 is out of range; write a whole number from 1 to 625499948"),
        "{error}"
    );
}

#[test]
fn a_penalty_has_no_limit_from() {
    let text = "limits.api.quotas = [{ algorithm = \"fixed_window\", limit = 1, window_ms = 9 }, { algorithm = \"block\", cap_ms = 9, limit_from = { application = \"n\", max = 9 } }]";
    let error = Rules::parse("rules.toml", text).unwrap_err().to_string();
    assert!(
        error.ends_with("unknown field `limit_from`; write one of \"algorithm\", \"name\", \"by\", \"cap_ms\""),
        "{error}"
    );
}

/// Each quota of joined limits has its own number, and each reading of a path those of its rules.
#[test]
fn quotas_that_decide_together_have_their_own_numbers() {
    let text = r#"
        [limits.a]
        quotas = [{ algorithm = "fixed_window", limit = 10, window_ms = 60_000, limit_from = { application = "a", max = 100 } }]
        [limits.b]
        quotas = [
            { algorithm = "fixed_window", limit = 10, window_ms = 1_000, by = "ip" },
            { algorithm = "fixed_window", limit = 10, window_ms = 60_000, by = "ip", name = "minute", limit_from = { application = "b", max = 100 } },
        ]
        tiers.pro.quotas = [{ algorithm = "fixed_window", limit = 50, window_ms = 60_000, by = "ip", name = "minute" }]
        [[rules]]
        path = "/both"
        limits = ["a", "b"]
        [[rules]]
        path = "/x/{name}"
        limits = ["a"]
        [[rules]]
        path = "/x/y"
        limits = ["b"]
        [overrides]
        "ip:192.0.2.1" = { b = { b-1 = 7 } }
    "#;
    let rules = Rules::parse("rules.toml", text).unwrap();
    let limits = |path: &'static str, tier: &'static str| {
        let request = request(path).limits(&[("a", 20), ("b", 30)]).subject("alice").tier(tier);
        let explained = rules.explain(&request, &ClientIpSource::new(Platform::Direct));
        let limits: Vec<(String, u64)> = explained
            .policy
            .unwrap()
            .quotas()
            .iter()
            .map(|quota| (quota.name().into(), quota.rule().limit()))
            .collect();
        limits
    };
    let named = |all: &[(&str, u64)]| all.iter().map(|(name, limit)| (name.to_string(), *limit)).collect::<Vec<_>>();
    assert_eq!(limits("/both", ""), named(&[("a", 20), ("b-1", 7), ("minute", 30)]));
    assert_eq!(limits("/both", "pro"), named(&[("a", 20), ("minute", 50)]));
    assert_eq!(limits("/x/%79", ""), named(&[("b-1", 7), ("minute", 30), ("a", 20)]));
}
