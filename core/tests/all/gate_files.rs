//! The gate's files: what they may say, their errors and their warnings.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(feature = "toml")]

use tidegate_core::gate::{Gate, Listed, Request, Rule, Rules};
use tidegate_core::{ClientIpSource, ErrorKind, MemoryLimiter, Platform};
use tidegate_testing::NOW;

use crate::gate::{RULES, outcome, parse, request};

#[test]
fn errors_name_the_file_the_line_the_value_and_the_fix() {
    let quota = r#"{ algorithm = "fixed_window", limit = 1, window_ms = 1000 }"#;
    let cases = [
        (
            "[[rules]]\nlimits = [\n  'a',\n  'b',\n]\n[limits.a]\nquotas = [QUOTA]",
            r#"4:3: "b" is not a limit; write one of "a""#,
        ),
        ("[[rules]]\npath = 'api'", r#"2:8: "api": is not a path; begin it with a slash, as in /api/*"#),
        ("[[rules]]\nmethods = ['get']", r#"2:12: "get": is not a method; write one in upper case, such as POST"#),
        (
            "[[rules]]\nhost = 'a:80'",
            r#"2:8: "a:80": is not a host; write one without a port, such as api.example.com"#,
        ),
        ("[[rules]]\nhost = '.example.com'", "is not a host"),
        ("[[rules]]\nhost = 'example.com.'", "is not a host"),
        ("[[rules]]\nhost = '*.'", "is not a host"),
        ("[[rules]]\nhost = '[::1]:80'", "is not a host"),
        ("[[rules]]\nhost = '[example]'", "is not a host"),
        ("[[rules]]\nhost = '[2001:db8::7]'", ""),
        ("[[rules]]\nhost = '*.my-app_2.example'", ""),
        ("[[rules]]\nmethods = ['']", "is not a method"),
        ("[[rules]]\nmethods = ['A B']", "is not a method"),
        ("[[rules]]\nmethods = ['M-SEARCH']", ""),
        ("[[rules]]\nchallenge = 'http://example.com/'", "is not an address"),
        ("[limits.a]\nquotas = [{ algorithm = 'fixed_window', limit = 0, window_ms = 1 }]", "limit: 0 is out of range"),
        ("[limits.a]\nquotas = []", "1:1: quotas: 0 is out of range; write 1 to 8 quotas"),
        ("[[rules]]\n[[rules]]\ncolour = 'red'", "3:10: unknown field `colour`; write one of \"name\", \"host\""),
        ("[[rules]]\nname = 'x'\n[[rules]]\nname = 'x'", r#"4:8: "x" is the name of rules[0] too; write another"#),
        ("[lists]\ndeny = ['10.0.0.1', 'ip:10.0.0.1']", r#"2:21: "ip:10.0.0.1" is neither a network nor a key"#),
        ("[lists]\nallow = ['10.0.0.0/33']", r#"2:10: "10.0.0.0/33" is neither a network nor a key"#),
        (
            "[limits.a]\nquotas = [{ algorithm = 'fixed_window', limit = 1, window_ms = 1000, by = 'ipp' }]",
            "2:75: \"ipp\" is not a dimension; did you mean \"ip\"? Write one of \"sender\", \"ip\", \"ja4\", \"global\", or declare it as \
             one that the application gives: dimensions = [\"ipp\"]",
        ),
        (
            "dimensions = ['tenant']\n[limits.a]\ngroup_by = 'tennant'\nquotas = [QUOTA]",
            "3:12: \"tennant\" is not a dimension; did you mean \"tenant\"? Write one of \"sender\", \"ip\", \"ja4\", \"global\", \"tenant\"",
        ),
        ("dimensions = ['ja4']", "1:15: the gate itself finds the key of \"ja4\"; delete it here"),
        (
            "[limits.a]\nquotas = [{ algorithm = 'fixed_window', limit = 1, window_ms = 1000, by = [] }]",
            "2:75: an empty list; write one such as [\"ip\", \"ja4\"]",
        ),
        (
            "[limits.a]\nquotas = [{ algorithm = 'fixed_window', limit = 1, window_ms = 1000, by = ['ip', 'ip'] }]",
            "2:82: \"ip\" is written twice; write it once",
        ),
        (
            "[limits.a]\nquotas = [{ algorithm = 'fixed_window', limit = 1, window_ms = 1000, by = ['ip', 'ja3'] }]",
            "2:82: \"ja3\" is not a dimension; did you mean \"ja4\"? Write one of \"sender\", \"ip\", \"ja4\", \"global\"",
        ),
        (
            "[limits.a]\nquotas = [{ algorithm = 'fixed_window', limit = 1, window_ms = 1000, by = 'ip+ja4' }]",
            "2:75: \"ip+ja4\" is not a dimension; write one of \"sender\", \"ip\", \"ja4\", \"global\"",
        ),
        (
            "[limits.a]\nquotas = [{ algorithm = 'fixed_window', limit = 1, window_ms = 1000, by = ['ip', 5] }]",
            "2:82: expected a text, found a number",
        ),
        (
            "dimensions = ['organisation', 'virtual-environment']\n[limits.a]\nquotas = [{ algorithm = 'fixed_window', \
             limit = 1, window_ms = 1000, by = ['organisation', 'virtual-environment', 'ip'] }]",
            "3:75: by: the names have 35 characters when they are joined by +; shorten them to 32",
        ),
        (
            "[limits.a]\nquotas = [{ algorithm = 'fixed_window', limit = 1, window_ms = 1000, by = ['ip', 'ja4'] }]\n\
             overrides = { 'ip:192.0.2.1%7Cja4:x' = { a = { limit = 2 } } }",
            "unknown field `overrides`",
        ),
        (
            "[overrides.'ip:192.0.2.1:80%7Cja4:x']\na = { limit = 2 }\n[limits.a]\nquotas = [QUOTA]",
            "\"ip:192.0.2.1:80\" is not the key of an address",
        ),
        (
            "[overrides.'ja4:x%7Cip:2001:db8::5']\na = { limit = 2 }\n[limits.a]\nquotas = [QUOTA]",
            "\"ip:2001:db8::5\" is one address, and a network is counted",
        ),
        (
            "[overrides.'ja4:x%7Cip:::ffff:192.0.2.1']\na = { limit = 2 }\n[limits.a]\nquotas = [QUOTA]",
            "\"ip:::ffff:192.0.2.1\" is counted as another; write \"ip:192.0.2.1\"",
        ),
        (
            "[overrides.'ip:192.0.2.1%7Ckey:secret']\na = { limit = 2 }\n[limits.a]\nquotas = [QUOTA]",
            "this is not the hash of an API key",
        ),
        ("", "1:1: missing field `rules`"),
        ("[limits.a]\nquotas = [QUOTA]", "1:1: missing field `rules`"),
        ("rules = []", ""),
        ("rules = []\n[overrides.'ip:192.0.2.1%7Cja4:x']\na = { limit = 2 }\n[limits.a]\nquotas = [QUOTA]", ""),
        ("[lists]\nallow = ['ip:192.0.2.1%7Cja4:x']", "is neither a network nor a key"),
        ("dimensions = ['ip']", "1:15: the gate itself finds the key of \"ip\"; delete it here"),
        ("dimensions = ['a', 'a']", "1:20: \"a\" is written twice; write it once"),
        ("[[rules]]\ncost = '5'", "2:8: expected a whole number, found a text"),
        ("[[rules]]\nlimits = 5", "2:10: expected a list, found a number"),
        (
            "[limits.a]\nquotas = [{ algorithm = 'gcra' }]",
            r#"2:25: "gcra" is not an algorithm; write one of "fixed_window""#,
        ),
        ("[limits.a]\nquotas = [{ algorithm = 'blocks', cap_ms = 1 }]", r#"did you mean "block"?"#),
        ("[limits.a]\nquotas = [{ algorithm = 'block' }]", "missing field `cap_ms`"),
        (
            "[limits.a]\nquotas = [{ algorithm = 'block', cap_ms = 1, name = 5 }]",
            "2:53: expected a text, found a number",
        ),
        (
            "[limits.a]\nquotas = [{ algorithm = 'block', cap_ms = 1, base_ms = 1 }]",
            r#"unknown field `base_ms`; write one of "algorithm", "name", "by", "cap_ms""#,
        ),
        ("[limits.a]\nquotas = [{ algorithm = 'block', cap_ms = 0 }]", "cap_ms: 0 is out of range"),
        (
            "[limits.a]\nquotas = [QUOTA, { algorithm = 'penalty', base_ms = 0, factor = 1, cap_ms = 1 }]",
            "or a block in place",
        ),
        ("[limits.a]\nquotas = [{ algorithm = 'fixed_window', limit = 1 }]", "2:11: missing field `window_ms`"),
        ("[[rules]]\ncost = -1", "-1 is negative; write a whole number from 0"),
        ("[api_keys]\nheader = 'x-api-key'\ntiers = { secret = 'pro' }", "3:20: this is not the hash of an API key"),
        ("[limits.a]\nquotas = [QUOTA]\ntiers.pro = {}", "3:13: write either quotas or unlimited = true"),
        (
            "[api_keys]\nheader = 'x-api-key'\ntiers = { 2BB80D537B1DA3E38BD30361AA855686 = 'pro' }",
            "32 hexadecimal digits in lower case",
        ),
        ("[api_keys]\nheader = 'x-api-key'\nwithout_tier = ['secret']", "3:17: this is not the hash of an API key"),
        (
            "[api_keys]\nheader = 'x-api-key'\nwithout_tier = ['2bb80d537b1da3e38bd30361aa855686', '2bb80d537b1da3e38bd30361aa855686']",
            "3:53: this key is written twice; write it once",
        ),
        (
            "[api_keys]\nheader = 'x-api-key'\nwithout_tier = ['2bb80d537b1da3e38bd30361aa855686']\ntiers = { 2bb80d537b1da3e38bd30361aa855686 = '' }",
            "3:17: this key is written twice; write it once",
        ),
        (
            "[api_keys]\nwithout_tier = ['2bb80d537b1da3e38bd30361aa855686']",
            "1:1: no header; write header = \"x-api-key\"",
        ),
        ("case_insensitive = 'true'", "1:20: expected true or false, found a text"),
        ("[[rules]]\nlimits = true", "2:10: expected a list, found true or false"),
        ("[[rules]]\nlimits = false", "2:10: expected a list, found true or false"),
        ("rules = [", "1:10: "),
    ];
    for (text, expected) in cases {
        let error = parse(&text.replace("QUOTA", quota)).map(|_| ());
        match error {
            Err(error) => {
                let message = error.to_string();
                assert!(!expected.is_empty(), "{text}\n{message}");
                assert!(message.contains(expected), "{text}\n{message}\n{expected}");
                assert_eq!(message.matches("rules.toml:").count(), 1, "one position: {message}");
            }
            Ok(()) => assert!(expected.is_empty(), "{text}"),
        }
    }
}

#[test]
fn json_has_positions_too() {
    let error = Rules::parse("rules.json", "{ \"rules\": [\n  { \"limits\": [\"a\"] } ] }").unwrap_err();
    assert_eq!(error.to_string(), r#"rules.json:2:16: "a" is not a limit; the file has none"#);
    let twice = r#"{ "limits": { "a": { "quotas": [] }, "a": { "quotas": [] } } }"#;
    assert!(
        Rules::parse("rules.json", twice).unwrap_err().to_string().contains(r#""a" is written twice; write it once"#)
    );
    assert!(
        Rules::parse("rules.yaml", "").unwrap_err().to_string().contains("end the file's name with .toml or .json")
    );
}

#[test]
fn warnings_name_what_is_probably_a_mistake() {
    let text = r#"
[limits.unused]
quotas = [{ algorithm = "fixed_window", limit = 1, window_ms = 1000 }]
[[rules]]
path = "/a"
[[rules]]
path = "/a/"
methods = ["GET"]
[[rules]]
name = "hidden"
path = "/%61"
[[rules]]
name = "both"
path = "/a"
methods = ["POST", "GET"]
"#;
    let expected = [
        "rules.toml:9:1: no request reaches hidden, because /a matches all of them first; delete it or move it up",
        "rules.toml:12:1: GET /a and both match some of the same requests, and GET /a applies because it comes first",
        "rules.toml:2:1: no rule has the limit \"unused\"; add it to one or delete it",
    ];
    assert_eq!(parse(text).unwrap().warnings(), expected);
    assert!(parse(RULES).unwrap().warnings().is_empty());
    // Without a balance, nothing is for want of credits.
    let paid = |quota, yes| {
        format!("limits.a.quotas = [{quota}]\nrules = [{{ limits = ['a'] }}]\nresponses.payment_required = {yes}")
    };
    let window = "{ algorithm = 'fixed_window', limit = 5, window_ms = 1_000 }";
    let missing = "rules.toml:3:30: no limit has a balance, so no denial is a 402; add a quota with algorithm = \"balance\" or delete it";
    assert_eq!(parse(&paid(window, true)).unwrap().warnings(), [missing]);
    assert!(parse(&paid(window, false)).unwrap().warnings().is_empty());
    assert!(parse(&paid("{ algorithm = 'balance' }", true)).unwrap().warnings().is_empty());
}

#[test]
fn a_dimension_without_a_quota_is_a_warning() {
    let used = "limits.a.quotas = [{ algorithm = 'fixed_window', limit = 1, window_ms = 1, by = 'user' }]\nrules = [{ limits = ['a'] }]";
    let warnings = parse(&format!("dimensions = ['tenant', 'user']\n{used}")).unwrap().warnings().to_vec();
    assert_eq!(warnings, ["rules.toml:1:15: no limit counts by \"tenant\"; delete it or write by = \"tenant\" in one"]);
}

#[test]
fn a_rule_without_a_name_is_called_by_its_methods_and_its_path() {
    let parameter = parse("[[rules]]\npath = '/v1/search/{q}'\n[[rules]]\npath = '/v1/search/{other}'").unwrap();
    let names: Vec<_> = parameter.rules().iter().map(|rule| rule.name()).collect();
    assert_eq!(names, ["/v1/search/{q}", "/v1/search/{other}"]);
    assert_eq!(parameter.rules()[0].pattern().to_string(), "any method, /v1/search/{q}");
    assert_eq!(parameter.warnings().len(), 1, "both match the same requests");
    let text = "[[rules]]\n[[rules]]\npath = '/login'\nmethods = ['POST', 'PUT']\n[[rules]]\npath = '/login'\nmethods = ['POST', 'PUT']\n\
        headers = ['x-a']\n[[rules]]\nhost = 'api.example.com'\npath = '/v1/*'\n";
    let rules = parse(text).unwrap();
    let names: Vec<&str> = rules.rules().iter().map(Rule::name).collect();
    assert_eq!(names, ["/*", "POST or PUT /login", "POST or PUT /login (2)", "api.example.com/v1/*"]);
}

#[test]
fn what_is_as_long_as_it_may_be_is_read() {
    let path = |segments: usize| format!("[[rules]]\npath = '{}'", "/a".repeat(segments));
    assert!(parse(&path(32)).is_ok());
    assert!(parse(&path(33)).unwrap_err().to_string().contains("more than 32 segments"));
    let challenge = |len: usize| format!("[[rules]]\nchallenge = '/{}'", "a".repeat(len - 1));
    assert!(parse(&challenge(512)).is_ok());
    assert!(parse(&challenge(513)).unwrap_err().to_string().contains("is not an address"));
    let method = |len: usize| format!("[[rules]]\nmethods = ['{}']", "A".repeat(len));
    assert!(parse(&method(64)).is_ok());
    assert!(parse(&method(65)).unwrap_err().to_string().contains("is not a method"));
}

/// What closes a list or a table ends its depth.
#[test]
fn a_file_may_have_any_number_of_lists_beside_each_other() {
    let rules: Vec<String> = (0..1_000).map(|nth| format!(r#"{{ "path": "/{nth}", "methods": ["GET"] }}"#)).collect();
    let rules = Rules::parse("rules.json", &format!(r#"{{ "rules": [{}] }}"#, rules.join(","))).unwrap();
    assert_eq!(rules.rules().len(), 1_000);
}

#[test]
fn each_algorithm_of_a_file_has_its_name_and_numbers() {
    let numbers = "limit = 6, window_ms = 1_000";
    let bucket = "capacity = 6, refill = 2, per_ms = 1_000";
    for (algorithm, numbers, explained) in [
        ("fixed_window", numbers, "fixed_window of 6 in 1 s"),
        ("sliding_window", numbers, "sliding_window of 6 in 1 s"),
        ("sliding_log", numbers, "sliding_log of 6 in 1 s"),
        ("token_bucket", bucket, "token_bucket of 6, 2 in 1 s"),
        ("leaky_bucket", bucket, "leaky_bucket of 6, 2 in 1 s"),
        ("concurrency", "limit = 6, lifetime_ms = 1_500", "concurrency of 6, each for at most 1500 ms"),
        (
            "penalty",
            "base_ms = 1_000, factor = 2, cap_ms = 6_000",
            "penalty of 1 s, times 2 for each further violation, up to 6 s",
        ),
    ] {
        let first = "{ algorithm = 'fixed_window', limit = 9, window_ms = 60_000 }";
        let quotas = format!("[{first}, {{ algorithm = '{algorithm}', {numbers} }}]");
        let rules = parse(&format!("limits.api.quotas = {quotas}\nrules = [{{ limits = ['api'] }}]")).unwrap();
        assert_eq!(rules.rules()[0].policies().next().unwrap().quotas()[1].rule().name(), algorithm);
        let told = rules.explain(&request("GET", "/"), &ClientIpSource::new(Platform::Direct)).to_string();
        assert!(told.contains(explained), "{told}");
    }
}

#[test]
fn escapes_of_json_are_those_of_its_standard() {
    let name = |text: &str| {
        let rules = Rules::parse("rules.json", &format!(r#"{{ "rules": [{{ "path": "/{text}" }}] }}"#));
        rules.map(|rules| rules.rules()[0].pattern().to_string())
    };
    for (text, path) in [
        (r"\u0041", "/A"),
        (r"\u006a\u006A", "/jj"),
        (r"\uD83D\uDE00", "/%F0%9F%98%80"),
        (r"\uDBFF\uDFFF", "/%F4%8F%BF%BF"),
        (r"\uD7FF", "/%ED%9F%BF"),
        (r"a\/b", "/a/b"),
    ] {
        assert_eq!(name(text).unwrap(), format!("any method, {path}"), "{text}");
    }
    for text in [r"\uD800", r"\uD800\u0041", r"\uD83D\uE000", r"\uDE00", r"\u00g0", r"\x41"] {
        assert_eq!(name(text).unwrap_err().kind(), ErrorKind::Invalid, "{text}");
    }
}

#[test]
fn every_api_key_of_a_file_has_its_tier() {
    // The hashes of "secret", "first" and "second", not in their order.
    let text = RULES.replace(
        r#"tiers = { 2bb80d537b1da3e38bd30361aa855686 = "pro" }"#,
        r#"tiers = { a7937b64b8caa58f03721bb6bacf5c78 = "pro", 2bb80d537b1da3e38bd30361aa855686 = "pro", 16367aacb67a4a017c8da8ab95682ccb = "staff" }"#,
    );
    let gate = Gate::new(parse(&text).unwrap(), MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
    for (key, expected) in
        [("secret", "19 of 20"), ("first", "19 of 20"), ("second", "unlimited"), ("third", "9 of 10")]
    {
        let headers = [("x-api-key", key)];
        let request = Request::new("GET", "/api/x", &headers, NOW).peer("192.0.2.1".parse().ok());
        assert_eq!(outcome(&gate, &request), expected, "{key}");
    }
    assert_eq!(parse(&text).unwrap().fields(), ["x-api-key"]);
}

#[test]
fn an_api_key_needs_no_tier() {
    let text = RULES.replace(
        r#"tiers = { 2bb80d537b1da3e38bd30361aa855686 = "pro" }"#,
        r#"without_tier = ["a7937b64b8caa58f03721bb6bacf5c78", "16367aacb67a4a017c8da8ab95682ccb"]"#,
    );
    let rules = parse(&text).unwrap();
    assert!(rules.warnings().is_empty());
    let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
    // Each has a count of its own, unlike a guess.
    for (key, expected) in [("first", "9 of 10"), ("second", "9 of 10"), ("guess", "9 of 10"), ("secret", "8 of 10")] {
        let headers = [("x-api-key", key)];
        let request = Request::new("GET", "/api/x", &headers, NOW).peer("192.0.2.1".parse().ok());
        assert_eq!(outcome(&gate, &request), expected, "{key}");
    }
    let named = "rules = []\n[api_keys]\nheader = 'x-api-key'\ntiers = { 2bb80d537b1da3e38bd30361aa855686 = '' }";
    let warning = "rules.toml:4:46: no limit has the tier \"\", so this key has the usual limits; write the tier of a limit, \
                   or the key in without_tier";
    assert_eq!(parse(named).unwrap().warnings(), [warning]);
}

#[test]
fn the_fields_that_rules_read_are_told_once() {
    let text = "api_keys.header = 'X-Key'\n[[rules]]\nheaders = ['x-a', 'x-key']\n[[rules]]\nheaders = ['X-A', 'x-b']";
    let mut fields = parse(text).unwrap().fields().into_iter().map(String::from).collect::<Vec<_>>();
    fields.sort();
    assert_eq!(fields, ["x-a", "x-b", "x-key"]);
}

#[test]
fn a_host_is_compared_without_its_port_its_case_and_the_dot_of_the_root() {
    for (field, host) in [
        ("API.Example.COM:8443", "api.example.com"),
        ("api.example.com.", "api.example.com"),
        ("api.example.com.:443", "api.example.com"),
        ("[2001:DB8::7]:80", "[2001:db8::7]"),
        ("[2001:db8::7]", "[2001:db8::7]"),
        ("::", "::"),
        ("a:b", "a:b"),
        ("", ""),
    ] {
        let headers = [("host", field)];
        assert_eq!(Request::new("GET", "/", &headers, NOW).host(), host, "{field}");
    }
    assert_eq!(Request::new("GET", "/", &vec![("Host", "a")], NOW).host(), "a");
}

#[test]
fn a_rule_for_get_is_one_for_head() {
    let text =
        "[[rules]]\nname = 'read'\nmethods = ['GET']\nheaders = ['x-a']\n[[rules]]\nname = 'write'\nmethods = ['POST']";
    let rules = parse(text).unwrap();
    let name = |method, headers: &[(&str, &str)]| {
        rules.find(&Request::new(method, "/", &headers, NOW)).map(|rule| rule.name().to_string())
    };
    assert_eq!(["GET", "HEAD"].map(|method| name(method, &[("X-A", "")])), [Some("read".into()), Some("read".into())]);
    assert_eq!(
        ["POST", "PUT", "GET", "HEAD"].map(|method| name(method, &[])),
        [Some("write".into()), None, None, None]
    );
}

/// What is on a list is not asked for more.
#[test]
fn an_explanation_says_which_list_the_sender_is_on() {
    let explained = |peer: &str| {
        let request = request("GET", "/api/x").peer(peer.parse().ok());
        let rules = parse(RULES).unwrap();
        let explanation = rules.explain(&request, &ClientIpSource::new(Platform::Direct));
        (explanation.listed, explanation.policy.is_some(), explanation.is_refused)
    };
    assert_eq!(explained("198.51.100.9"), (Some(Listed::Allowed), false, false));
    assert_eq!(explained("203.0.113.7"), (Some(Listed::Denied), false, false));
    assert_eq!(explained("192.0.2.1"), (None, true, false));
    let text = |request: &Request<'_>| {
        parse(RULES).unwrap().explain(request, &ClientIpSource::new(Platform::Direct)).to_string()
    };
    let embedded = text(&request("GET", "/").peer("64:ff9b::203.0.113.7".parse().ok()));
    assert!(
        embedded.ends_with("sender   64:ff9b::cb00:7107\nlist     deny has 203.0.113.7: refused with a 403\n"),
        "{embedded}"
    );
    let by_subject = text(&request("GET", "/").subject("ops").api_key("secret"));
    assert!(by_subject.ends_with("list     allow has sub:ops: not limited\n"), "{by_subject}");
}

#[test]
fn an_explanation_says_how_the_sender_is_known() {
    let rules = parse(RULES).unwrap();
    let explained = |request: &Request<'_>| rules.explain(request, &ClientIpSource::new(Platform::Direct)).to_string();
    let of_api_key = explained(&request("GET", "/").api_key("secret"));
    assert!(of_api_key.contains(", of a valid API key"), "{of_api_key}");
    let of_subject = explained(&request("GET", "/").subject("alice"));
    assert!(of_subject.contains("sub:alice, verified by the application"), "{of_subject}");
}
