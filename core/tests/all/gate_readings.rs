//! The gate and paths that servers read in several ways: a request has the strictest of all that may apply.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(feature = "toml")]

use std::num::NonZero;
use std::sync::{Arc, Mutex};

use pollster::block_on;
use serde_json::{Value, json};
use tidegate_core::gate::{Gate, Prepared, Request, Rules, Verdict};
use tidegate_core::{
    Capabilities, ClientIpSource, ErasedLimiter, ErrorKind, Limiter, MemoryLimiter, Millis, Platform, Sharded,
    UnixMillis, limiter_fn,
};
use tidegate_testing::{Declaring, NOW, at, failing};

use crate::gate::{outcome, parse, request};

/// Rules with a limit for all paths and one for `/login`, of so many requests a minute. The rules have these lines.
fn site_and_login(limits: [u32; 2], site: &str, login: &str) -> Rules {
    let limit = |name: &str, limit: u32| {
        format!("[limits.{name}]\nquotas = [{{ algorithm = 'fixed_window', limit = {limit}, window_ms = 60_000 }}]\n")
    };
    let rules = format!("[[rules]]\n{site}\n[[rules]]\npath = '/login'\n{login}\n");
    parse(&[&limit("site", limits[0]), &limit("login", limits[1]), &*rules].concat()).unwrap()
}

fn gate(rules: Rules, limiter: impl Limiter + 'static) -> Gate<'static> {
    Gate::new(rules, limiter, ClientIpSource::new(Platform::Direct)).unwrap()
}

#[test]
fn a_request_has_the_limits_of_each_reading_of_its_path() {
    let rules = |on| {
        let limit = |name: &str, limit: u32| {
            format!(
                "[limits.{name}]\nquotas = [{{ algorithm = \"fixed_window\", limit = {limit}, window_ms = 60_000 }}]\n"
            )
        };
        let rule = |path: &str, limit: &str| format!("[[rules]]\npath = \"{path}\"\nlimits = [\"{limit}\"]\n");
        let text = [limit("site", 1000), limit("strict", 5), rule("/*", "site"), rule(on, "strict")];
        Gate::new(parse(&text.concat()).unwrap(), MemoryLimiter::new(), ClientIpSource::new(Platform::Cloudflare))
            .unwrap()
    };
    for (on, path) in [
        ("/files/*", "/files/..//x/y"),
        ("/files/*", "/files/../login"),
        ("/files/*", "/files/..\\login"),
        ("/api/{id}", "/api/."),
        ("/{tenant}/login", "/t\\7/login"),
        ("/{tenant}/login", "/../login"),
        ("/{tenant}/login", "/%2e/login"),
        ("/login", "/l%6Fgin"),
        ("/a/b", "/a//../b"),
    ] {
        let gate = rules(on);
        let passed = (0..20).filter(|_| outcome(&gate, &request("GET", path)) != "429").count();
        assert_eq!(passed, 5, "{on} {path}");
    }
}

/// The names of the rules that apply to a path, in order.
fn applying<'r>(rules: &'r Rules, path: &str) -> Vec<&'r str> {
    let explanation = rules.explain(&request("GET", path), &ClientIpSource::new(Platform::Direct));
    explanation.rule.into_iter().chain(explanation.also).map(|rule| rule.name()).collect()
}

#[test]
fn a_path_outside_ascii_has_its_rule_however_a_client_writes_it() {
    let rules = parse(
        "[[rules]]\nname = 'cafe'\npath = '/caf\u{e9}'\n[[rules]]\nname = 'below'\npath = '/\u{fc}/{id}'\n[[rules]]\nname = 'smile'\n\
         path = '/\u{1f600}/*'\n[[rules]]\nname = 'quote'\npath = '/a\"b'\n[[rules]]\nname = 'space'\npath = '/a b'\n[[rules]]\n\
         name = 'brace'\npath = '/%7Bx%7D'\n[[rules]]\nname = 'pipe'\npath = '/a|b^%5B'",
    )
    .unwrap();
    for (name, path) in [
        ("cafe", "/caf\u{e9}"),
        ("cafe", "/caf%C3%A9"),
        ("cafe", "/caf%c3%A9/"),
        ("cafe", "/%63af\u{e9}"),
        ("cafe", "//caf\u{e9}?x=y"),
        ("below", "/\u{fc}/7"),
        ("below", "/%C3%BC/\u{e9}"),
        ("below", "/x/../\u{fc}\\\u{1f600}"),
        ("smile", "/\u{1f600}"),
        ("smile", "/%F0%9F%98%80/\u{1f600}"),
        ("quote", "/a\"b"),
        ("quote", "/a%22b"),
        ("space", "/a b"),
        ("space", "/a%20b"),
        ("brace", "/{x}"),
        ("brace", "/%7bx%7D"),
        ("pipe", "/a|b^["),
        ("pipe", "/a%7Cb%5e%5B"),
    ] {
        assert_eq!(applying(&rules, path), [name], "{path}");
    }
    // Unicode has two forms of this letter. No router takes one for the other, so neither do rules. Bytes that are not UTF-8 are no letter.
    for path in ["/cafe\u{301}", "/caf%E9", "/caf%C3", "/login", "/x", "/a+b", "/%C0%AFcaf%C3%A9"] {
        assert!(applying(&rules, path).is_empty(), "{path}");
    }
}

/// Routers take an empty segment for none, for a parameter, or for a segment that no parameter takes.
#[test]
fn a_request_has_the_rules_of_each_router_for_its_empty_segments() {
    let table: Value = serde_json::from_str(include_str!("../data/readings.json")).unwrap();
    for part in table.as_array().unwrap() {
        let rule = |(name, path): (&String, &Value)| json!({ "name": name, "path": path });
        let rules: Vec<Value> = part["rules"].as_object().unwrap().iter().map(rule).collect();
        let rules = Rules::parse("rules.json", &json!({ "rules": rules }).to_string()).unwrap();
        for (path, expected) in part["paths"].as_object().unwrap() {
            assert_eq!(json!(applying(&rules, path)), *expected, "{path}");
        }
    }
}

/// A router that decodes no path compares it with the texts of its routes, which are those of the rules.
#[test]
fn a_path_that_is_not_as_the_rule_is_written_has_the_less_specific_rule_too() {
    let rules = |path: &str| {
        let text = format!("[[rules]]\nname = 'any'\npath = '/{{x}}'\n[[rules]]\nname = 'own'\npath = '{path}'");
        parse(&text).unwrap()
    };
    for (rule, path, expected) in [
        ("/caf\u{e9}", "/caf\u{e9}", ["own"].as_slice()),
        ("/caf\u{e9}", "/caf%C3%A9", &["own", "any"]),
        ("/caf\u{e9}", "/caf%c3%a9", &["own", "any"]),
        ("/caf%C3%A9", "/caf%C3%A9", &["own"]),
        ("/caf%C3%A9", "/caf\u{e9}", &["own", "any"]),
        ("/caf%C3%A9", "/caf%c3%a9", &["own", "any"]),
        ("/%6cogin", "/login", &["own", "any"]),
        ("/%6cogin", "/%6cogin", &["own", "any"]),
        ("/login", "/%6cogin", &["own", "any"]),
        ("/login", "/login", &["own"]),
        ("/a\"", "/a\"", &["own"]),
        ("/a\"", "/a%22", &["own", "any"]),
    ] {
        assert_eq!(applying(&rules(rule), path), expected, "{rule} {path}");
    }
}

/// A client sends a field twice, or an absolute URL beside one, and the server takes the other.
#[test]
fn a_request_has_the_rules_of_each_host_that_a_server_may_take_it_for() {
    let rules = parse(
        "[[rules]]\nname = 'own'\nhost = 'api.example.com'\n[[rules]]\nname = 'below'\nhost = '*.example.com'\n[[rules]]\nname = 'site'",
    )
    .unwrap();
    let names = |url: Option<&str>, fields: &[&str]| -> Vec<String> {
        let headers: Vec<_> = fields.iter().map(|host| ("host", *host)).collect();
        let mut request = Request::new("GET", "/", &headers, NOW);
        if let Some(host) = url {
            request = request.with_host(host);
        }
        let told = rules.explain(&request, &ClientIpSource::new(Platform::Direct));
        told.rule.into_iter().chain(told.also).map(|rule| rule.name().to_string()).collect()
    };
    assert_eq!(names(None, &["API.example.com.:80"]), ["own"]);
    assert_eq!(names(None, &["other", "api.example.com"]), ["site", "own"]);
    assert_eq!(names(None, &["api.example.com", "x", "b.example.com"]), ["own", "below"]);
    assert_eq!(names(None, &["api.example.com, other"]), ["own", "site"]);
    assert_eq!(names(Some("other:80"), &["api.example.com"]), ["site", "own"]);
    assert_eq!(names(Some("api.example.com"), &["api.example.com"]), ["own"]);
    assert_eq!(names(None, &[]), ["site"]);
}

#[test]
fn a_rule_of_escaped_braces_is_no_parameter() {
    let rules =
        parse("[[rules]]\npath = '/%7Bx%7D'\n[[rules]]\npath = '/%7bx%7d/{id}'\n[[rules]]\npath = '/%2A'").unwrap();
    let names: Vec<_> = rules.rules().iter().map(|rule| rule.name()).collect();
    assert_eq!(names, ["/%7Bx%7D", "/%7Bx%7D/{id}", "/%2A"]);
    assert!(rules.warnings().is_empty());
    assert!(applying(&rules, "/login").is_empty());
    assert_eq!(applying(&rules, "/*"), ["/%2A"]);
    assert_eq!(applying(&rules, "/%2a"), ["/%2A"]);
    let error = parse("[[rules]]\npath = '/a{x'").unwrap_err().to_string();
    assert!(error.contains("write {name} for a whole segment, and %7B or %7D for a brace"), "{error}");
}

#[test]
fn with_case_insensitive_rules_letters_of_all_scripts_do_not_differ() {
    let rules = parse("case_insensitive = true\n[[rules]]\nname = 'own'\npath = '/CAF\u{c9}/\u{39f}\u{3a3}'").unwrap();
    for path in
        ["/caf\u{e9}/\u{3bf}\u{3c2}", "/CAF\u{c9}/\u{39f}\u{3a3}", "/Caf%c3%89/%CE%BF%cf%82", "/caf%C3%A9/%ce%9f%ce%a3"]
    {
        assert_eq!(applying(&rules, path), ["own"], "{path}");
    }
    assert!(applying(&rules, "/cafe/\u{3bf}\u{3c2}").is_empty());
}

#[test]
fn with_case_insensitive_rules_upper_upper_and_lower_case_do_not_differ() {
    let rules = |line: &str| parse(&format!("{line}\n[[rules]]\nname = 'login'\npath = '/Log%49n/\u{e9}/*'")).unwrap();
    let name = |rules: &Rules, path: &str| rules.find(&request("POST", path)).map(|rule| rule.name().to_string());
    let (strict, loose) = (rules(""), rules("case_insensitive = true"));
    for (path, strictly) in [("/LogIn/%C3%A9/x", true), ("/LOGIN/%c3%a9", false), ("/login/%C3%A9/", false)] {
        assert_eq!(name(&loose, path).as_deref(), Some("login"), "{path}");
        assert_eq!(name(&strict, path).is_some(), strictly, "{path}");
    }
}

#[test]
fn a_preflight_is_exempt_by_an_option_and_only_from_rules_that_are_not_for_options() {
    let rules = |line: &str| {
        let own = "[[rules]]\nname = 'own'\npath = '/own'\nmethods = ['OPTIONS']";
        parse(&format!("{line}\n[[rules]]\nname = 'all'\n{own}")).unwrap()
    };
    let (usual, exempting) = (rules(""), rules("exempt_preflights = true"));
    assert_eq!((usual.fields().len(), exempting.fields()), (0, vec!["origin", "access-control-request-method"]));
    let preflight = [("origin", "https://example.com"), ("access-control-request-method", "POST")];
    let name = |rules: &Rules, method: &str, path: &str, headers: &[(&str, &str)]| {
        rules.find(&Request::new(method, path, &headers, NOW)).map(|rule| rule.name().to_string())
    };
    for (method, path, headers, expected) in [
        ("OPTIONS", "/login", &preflight[..], None),
        ("OPTIONS", "/own", &preflight[..], Some("own")),
        ("OPTIONS", "/login", &preflight[..1], Some("all")),
        ("OPTIONS", "/login", &preflight[1..], Some("all")),
        ("POST", "/login", &preflight[..], Some("all")),
    ] {
        assert_eq!(name(&exempting, method, path, headers).as_deref(), expected, "{method} {path} {headers:?}");
        let usually = if path == "/own" { "own" } else { "all" };
        assert_eq!(name(&usual, method, path, headers).as_deref(), Some(usually), "{method} {path}");
    }
}

#[test]
fn readings_that_one_store_cannot_decide_together_are_decided_one_after_another() {
    let gate = |limits| {
        let rules = site_and_login(limits, "limits = ['site']", "limits = ['login']");
        gate(rules, Declaring(Capabilities::EXACT.max_quotas(1), MemoryLimiter::new()))
    };
    let few = gate([4, 3]);
    let outcomes: Vec<_> = (0..4).map(|_| outcome(&few, &request("POST", "//login/"))).collect();
    assert_eq!(outcomes, ["2 of 3", "1 of 3", "0 of 3", "429"]);
    // The rule with the fewest remaining is told, whichever was asked first.
    assert_eq!(outcome(&few, &request("GET", "/")), "0 of 4");
    // With a token, what was charged before a denial is returned.
    let other = |token| request("POST", "//login/").subject("alice").token(token);
    let one = gate([1, 9]);
    assert_eq!(["a", "b", "c"].map(|token| outcome(&one, &other(token))), ["0 of 1", "429", "429"]);
    assert_eq!(outcome(&one, &request("POST", "/login").subject("alice")), "7 of 9");
}

#[test]
fn the_terms_are_the_strictest_of_all_rules_that_apply() {
    let (site, both) = ("limits = ['site']", "limits = ['login', 'site']");
    let strict = "cost = 5\nsettle_within_ms = 3_000";
    let loose = "cost = 2\non_failure = 'open'\nsettle_within_ms = 1_000";
    for (site, login, left) in [
        (format!("{site}\n{loose}"), format!("{both}\n{strict}"), "93 of 100"),
        (format!("{site}\n{strict}"), format!("{both}\n{loose}"), "90 of 100"),
    ] {
        let rules = || site_and_login([100, 50], &site, &login);
        let counted = gate(rules(), MemoryLimiter::new());
        assert_eq!(outcome(&counted, &request("POST", "//login")), "45 of 50");
        // Both rules have the limit of all paths, which is charged once.
        assert_eq!(outcome(&counted, &request("GET", "/")), left);
        let Verdict::Pass(pass) = block_on(counted.check(&request("POST", "//login").token("one"))) else { panic!() };
        let settled = block_on(counted.settle(pass.hold().unwrap(), 0, at(2_999))).unwrap();
        assert_eq!(settled.binding().remaining(), Some(45));

        let failing = gate(rules(), failing(ErrorKind::Unavailable));
        assert_eq!(outcome(&failing, &request("POST", "//login")), "503");
    }
}

#[test]
fn readings_whose_rules_have_other_stores_are_charged_in_each() {
    let of = |name| (name, Box::new(MemoryLimiter::new()) as Box<dyn ErasedLimiter>);
    let rules = site_and_login([100, 50], "limits = ['site']", "limits = ['login']\nstore = 'second'");
    let source = ClientIpSource::new(Platform::Direct);
    let gate = Gate::with_stores(rules, [of("first"), of("second")], source).unwrap();
    assert_eq!(outcome(&gate, &request("POST", "//login")), "49 of 50");
    assert_eq!(outcome(&gate, &request("GET", "/")), "98 of 100");
    assert_eq!(outcome(&gate, &request("POST", "/login")), "48 of 50");

    // What is charged in both is settled in both.
    let Verdict::Pass(pass) = block_on(gate.check(&request("POST", "//login").token("one"))) else { panic!() };
    let hold = pass.hold().unwrap();
    block_on(gate.settle(hold, 0, NOW)).unwrap();
    assert_eq!(outcome(&gate, &request("GET", "/")), "97 of 100");
    assert_eq!(outcome(&gate, &request("POST", "/login")), "47 of 50");
}

/// A store that takes a minute by the test's clock, and notes when it is asked.
fn slow(asked: &Arc<Mutex<Vec<UnixMillis>>>) -> impl Limiter + use<> {
    let (memory, asked) = (MemoryLimiter::new(), Arc::clone(asked));
    limiter_fn(memory.capabilities(), move |operation| {
        asked.lock().unwrap().push(operation.now());
        block_on(memory.apply(operation))
    })
}

#[test]
fn a_store_that_is_asked_later_decides_at_a_later_time() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let minutes = |passed: usize| NOW + Millis::from_secs(60 * passed as u64);
    let clock = || minutes(asked.lock().unwrap().len());
    let slow = |name| (name, Box::new(slow(&asked)) as Box<dyn ErasedLimiter>);
    let rules = site_and_login([1, 9], "limits = ['site']\nstore = 'second'", "limits = ['login']");
    let gate =
        Gate::with_stores(rules, [slow("first"), slow("second")], ClientIpSource::new(Platform::Direct)).unwrap();
    let request = request("POST", "//login").token("one").cost(2);
    let took = || std::mem::take(&mut *asked.lock().unwrap());

    // The second store denies, and the first gives back what it has charged.
    let in_turn: Vec<_> = (0..3).map(minutes).collect();
    assert!(matches!(block_on(gate.check(&request.clone().clock(&clock))), Verdict::Refuse(_)));
    assert_eq!(took(), in_turn);
    let Prepared::Pending(pending) = gate.prepare(&request) else { panic!() };
    assert!(matches!(block_on(gate.decide_at(&pending, &clock)), Verdict::Refuse(_)));
    assert_eq!(took(), in_turn);
    // Without a clock, all is at the time of the request.
    assert!(matches!(block_on(gate.check(&request)), Verdict::Refuse(_)));
    assert_eq!(took(), [NOW; 3]);
}

/// What a rule says of a charge holds for a request to which it applies, whichever rule is first.
#[test]
fn an_estimate_of_one_rule_is_one_of_all_that_apply() {
    for (site, login, estimates) in [
        ("limits = ['site']", "limits = ['login']", false),
        ("limits = ['site']", "limits = ['login']\nestimate = 3", true),
        ("limits = ['site']\nestimate = 3", "limits = ['login']", true),
    ] {
        let gate = gate(site_and_login([10, 10], site, login), MemoryLimiter::new());
        for path in ["/x/../login", "/l%6Fgin"] {
            let Prepared::Pending(pending) = gate.prepare(&request("GET", path)) else { panic!() };
            assert_eq!((pending.estimates(), pending.is_alone()), (estimates, true), "{site} {login} {path}");
        }
    }
}

/// A store that does not tell what is left tells less than one that does.
#[test]
fn of_two_decisions_the_one_that_tells_what_is_left_is_told() {
    for (site, login, told) in [("silent", "main", 5), ("main", "silent", 10)] {
        let [site, login] =
            [("site", site), ("login", login)].map(|(limit, store)| format!("limits = ['{limit}']\nstore = '{store}'"));
        let rules = site_and_login([10, 5], &site, &login);
        let telling: Box<dyn ErasedLimiter> = Box::new(MemoryLimiter::new());
        let silent: Box<dyn ErasedLimiter> = Box::new(Sharded::new(MemoryLimiter::new(), NonZero::new(2).unwrap()));
        let stores = [("main", telling), ("silent", silent)];
        let gate = Gate::with_stores(rules, stores, ClientIpSource::new(Platform::Direct)).unwrap();
        let Verdict::Pass(pass) = block_on(gate.check(&request("GET", "/x/../login"))) else { panic!() };
        assert_eq!(pass.decision().unwrap().binding().limit(), told);
    }
}
