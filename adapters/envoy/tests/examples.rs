//! The configuration examples of envoyproxy/ratelimit, written anew, and what else Envoy may ask, by a client of tonic's over a socket.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::fmt::Write as _;
use std::sync::Arc;

use tidegate_envoy::proto::Code::{Ok as Pass, OverLimit as Over, Unknown};
use tidegate_envoy::proto::{Code, RateLimitResponse};
use tidegate_envoy::{ClientIpSource, Gate, MemoryLimiter, Platform, RateLimitService, Rules};
use tonic::Code as GrpcCode;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};

use support::{ask, burst, call, code, connect, descriptor, request, told};

fn gate(rules: &str) -> Arc<Gate<'static>> {
    let rules = Rules::parse("rules.toml", rules).unwrap();
    let stores = [("main", Box::new(MemoryLimiter::new()) as Box<dyn tidegate_envoy::ErasedLimiter>)];
    Arc::new(Gate::with_stores(rules, stores, ClientIpSource::new(Platform::Direct)).unwrap())
}

async fn serve(service: RateLimitService) -> Channel {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap().with_nodelay(Some(true));
    let address = incoming.local_addr().unwrap();
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    connect(address).await
}

async fn examples() -> Channel {
    serve(RateLimitService::new(gate(include_str!("rules.toml"))).unwrap()).await
}

async fn codes(channel: &Channel, domain: &str, entries: &[(&str, &str)], count: usize) -> Vec<Code> {
    let mut found = Vec::new();
    for _ in 0..count {
        found.push(code(channel, request(domain, &[entries])).await);
    }
    found
}

fn header<'r>(response: &'r RateLimitResponse, name: &str) -> Option<&'r str> {
    response.response_headers_to_add.iter().find(|field| field.key == name).map(|field| &*field.value)
}

#[tokio::test]
async fn each_value_has_its_own_limit() {
    let channel = examples().await;
    assert_eq!(codes(&channel, "mongo_cps", &[("database", "default")], 3).await, [Pass, Pass, Over]);
    let response = ask(&channel, request("mongo_cps", &[&[("database", "users")]])).await.unwrap();
    let limit = response.statuses[0].current_limit.as_ref().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit, &*limit.name), (2, 1, "users"));
    assert_eq!(response.statuses[0].limit_remaining, 1);
    let reset = response.statuses[0].duration_until_reset.unwrap();
    assert!(reset.seconds <= 1 && (reset.seconds, reset.nanos) > (0, 0), "{reset:?}");
    // A value that no rule has is not limited, and shows no limit.
    let other = ask(&channel, request("mongo_cps", &[&[("database", "other")]])).await.unwrap();
    assert_eq!(told(&other), (Pass, vec![Pass], vec![None]));
}

#[tokio::test]
async fn several_descriptors_are_one_decision() {
    let channel = examples().await;
    let marketing: &[_] = &[("message_type", "marketing"), ("to_number", "2061111111")];
    let number: &[_] = &[("to_number", "2061111111")];
    let both = request("messaging", &[marketing, number]);
    for left in [1, 0] {
        let told = told(&ask(&channel, both.clone()).await.unwrap());
        assert_eq!(told, (Pass, vec![Pass, Pass], vec![Some(left), Some(left + 2)]));
    }
    // The first is over its limit, so that the second is not charged either.
    for _ in 0..5 {
        let told = told(&ask(&channel, both.clone()).await.unwrap());
        assert_eq!(told, (Over, vec![Over, Pass], vec![Some(0), Some(2)]));
    }
    assert_eq!(codes(&channel, "messaging", number, 3).await, [Pass, Pass, Over]);
    let told = told(&ask(&channel, both).await.unwrap());
    assert_eq!(told, (Over, vec![Over, Over], vec![Some(0), Some(0)]));
    // Another number has its own counts.
    assert_eq!(codes(&channel, "messaging", &[("to_number", "2062222222")], 1).await, [Pass]);
}

#[tokio::test]
async fn descriptors_that_no_step_decides_together_are_charged_all_or_none() {
    let channel = examples().await;
    // One rule, by two keys; then one key twice.
    let (one, other): (&[_], &[_]) = (&[("to_number", "1")], &[("to_number", "2")]);
    assert_eq!(codes(&channel, "messaging", other, 4).await, [Pass; 4]);
    for _ in 0..6 {
        let answer = ask(&channel, request("messaging", &[one, other])).await.unwrap();
        assert_eq!((told(&answer).0, told(&answer).1), (Over, vec![Pass, Over]));
    }
    // The charges of the first were returned.
    let twice = request("messaging", &[one, one]);
    assert_eq!(told(&ask(&channel, twice.clone()).await.unwrap()), (Pass, vec![Pass; 2], vec![Some(3), Some(2)]));
    assert_eq!(code(&channel, twice.clone()).await, Pass);
    assert_eq!(code(&channel, twice).await, Over);
    // What comes after a denial is not asked.
    let three = ask(&channel, request("messaging", &[other, one, one])).await.unwrap();
    assert_eq!(told(&three).1, [Over, Unknown, Unknown]);
}

#[tokio::test]
async fn a_value_precedes_any_value_and_a_listed_address_never_passes() {
    let channel = examples().await;
    let address = |address| [("remote_address", address)];
    assert_eq!(codes(&channel, "edge_proxy_per_ip", &address("50.0.0.1"), 3).await, [Pass, Pass, Over]);
    assert_eq!(codes(&channel, "edge_proxy_per_ip", &address("50.0.0.2"), 4).await, [Pass, Pass, Pass, Over]);
    assert_eq!(codes(&channel, "edge_proxy_per_ip", &address("50.0.0.5"), 1).await, [Over]);
    assert_eq!(codes(&channel, "edge_proxy_per_ip", &address("203.0.113.77"), 1).await, [Over]);
    // By the network of an IPv6 address, as everywhere in Tidegate.
    assert_eq!(codes(&channel, "edge_proxy_per_ip", &address("2001:db8::1"), 1).await, [Pass]);
    assert_eq!(codes(&channel, "edge_proxy_per_ip", &address("2001:db8::2"), 2).await, [Pass, Over]);
    // What is no address has the key of all such.
    assert_eq!(codes(&channel, "edge_proxy_per_ip", &address("x"), 2).await, [Pass, Pass]);
    assert_eq!(codes(&channel, "edge_proxy_per_ip", &address("y"), 1).await, [Over]);
    // A listed address refuses the request, whatever else is in it.
    let both = request("edge_proxy_per_ip", &[&address("50.0.0.9"), &address("50.0.0.5")]);
    assert_eq!(told(&ask(&channel, both).await.unwrap()), (Over, vec![Unknown, Over], vec![None, None]));
}

#[tokio::test]
async fn a_descriptor_has_the_rules_of_its_depth() {
    let channel = examples().await;
    assert_eq!(codes(&channel, "example4", &[("key", "value"), ("subkey", "subvalue")], 3).await, [Pass; 3]);
    assert_eq!(codes(&channel, "example4", &[("key", "value")], 2).await, [Pass, Over]);
}

#[tokio::test]
async fn an_unlimited_descriptor_has_as_many_as_possible_left() {
    let channel = examples().await;
    let response = ask(&channel, request("internal", &[&[("ldap", "x")]])).await.unwrap();
    assert_eq!((told(&response).0, response.statuses[0].limit_remaining), (Pass, u32::MAX));
    assert_eq!(codes(&channel, "internal", &[("azure", "x")], 2).await, [Pass, Over]);
    let both = ask(&channel, request("internal", &[&[("ldap", "x")], &[("azure", "y")]])).await.unwrap();
    assert_eq!(told(&both).1, [Pass, Over]);
}

#[tokio::test]
async fn a_limit_that_is_tried_denies_nothing_and_is_counted() {
    let gate = gate(include_str!("rules.toml"));
    let channel = serve(RateLimitService::new(Arc::clone(&gate)).unwrap()).await;
    let user = |user| [("service", "auth-service"), ("user", user)];
    assert_eq!(codes(&channel, "example6", &user("user-a"), 5).await, [Pass; 5]);
    assert_eq!(gate.shadows()[0].2.only_proposal_denies, 4);
    assert_eq!(codes(&channel, "example6", &user("user-b"), 3).await, [Pass, Pass, Over]);
    // Also beside another descriptor.
    code(&channel, request("example6", &[&user("user-c"), &user("user-a")])).await;
    assert_eq!(gate.shadows()[0].2.only_proposal_denies, 5);
}

#[tokio::test]
async fn in_shadow_all_pass_and_are_counted() {
    let service = RateLimitService::new(gate(include_str!("rules.toml"))).unwrap().shadow(true);
    let channel = serve(service).await;
    for left in [Some(1), Some(0), Some(0)] {
        let response = ask(&channel, request("mongo_cps", &[&[("database", "default")]])).await.unwrap();
        assert_eq!(told(&response), (Pass, vec![Pass], vec![left]));
        assert_eq!(header(&response, "retry-after"), None);
        assert!(response.raw_body.is_empty());
    }
}

#[tokio::test]
async fn an_unknown_domain_is_not_limited() {
    let channel = examples().await;
    let answer = ask(&channel, request("mongo", &[&[("database", "users")], &[("x", "y")]])).await.unwrap();
    assert_eq!(told(&answer), (Pass, vec![Pass, Pass], vec![None, None]));
    assert!(answer.response_headers_to_add.is_empty());
}

#[tokio::test]
async fn a_response_has_the_fields_and_the_body_for_the_client() {
    let channel = examples().await;
    let asked = request("example4", &[&[("key", "value")]]);
    let passed = ask(&channel, asked.clone()).await.unwrap();
    assert_eq!(header(&passed, "ratelimit-policy"), Some("\"depth\";q=1;w=86400"));
    assert_eq!((header(&passed, "x-ratelimit-remaining"), header(&passed, "retry-after")), (Some("0"), None));
    assert!(passed.raw_body.is_empty());
    let denied = ask(&channel, asked).await.unwrap();
    assert_eq!(header(&denied, "retry-after"), Some("86400"));
    assert_eq!(header(&denied, "content-type"), Some("application/json"));
    assert!(denied.raw_body.starts_with(b"{\"error\":\"rate_limited\",\"policy\":\"depth\""), "{denied:?}");
}

#[tokio::test]
async fn hits_are_the_cost() {
    let channel = examples().await;
    let asked = |tenant: &str, hits: u32, own: Option<u64>| {
        let mut asked = request("hits", &[&[("tenant", tenant)]]);
        (asked.hits_addend, asked.descriptors[0].hits_addend) = (hits, own);
        asked
    };
    for (hits, own, expected) in [
        (0, None, (Pass, 9)),
        (4, None, (Pass, 5)),
        (4, Some(2), (Pass, 3)),
        (0, Some(0), (Pass, 3)),
        (4, None, (Over, 3)),
        (u32::MAX, None, (Over, 3)),
        (0, Some(u64::MAX), (Over, 3)),
        (0, Some(1 << 51), (Over, 3)),
        (3, None, (Pass, 0)),
    ] {
        let response = ask(&channel, asked("a", hits, own)).await.unwrap();
        let (code, codes, left) = told(&response);
        assert_eq!((code, &*codes), (expected.0, &[expected.0][..]), "{hits} {own:?}");
        // A cost that no state can have is an error of the limiter, which refuses the request.
        if own != Some(u64::MAX) {
            assert_eq!(left, [Some(expected.1)], "{hits} {own:?}");
        }
    }
    // Different costs are charged all or none, too.
    let mut both = request("hits", &[&[("tenant", "b")], &[("tenant", "c")]]);
    (both.descriptors[0].hits_addend, both.descriptors[1].hits_addend) = (Some(7), Some(11));
    assert_eq!(told(&ask(&channel, both.clone()).await.unwrap()).1, [Pass, Over]);
    both.descriptors[1].hits_addend = Some(10);
    assert_eq!(told(&ask(&channel, both).await.unwrap()), (Pass, vec![Pass; 2], vec![Some(3), Some(0)]));
}

#[tokio::test]
async fn a_limit_in_the_request_is_ignored() {
    let channel = examples().await;
    let mut asked = request("example4", &[&[("key", "value")]]);
    asked.descriptors[0].limit = Some(());
    assert_eq!(code(&channel, asked.clone()).await, Pass);
    assert_eq!(code(&channel, asked).await, Over);
}

#[tokio::test]
async fn five_hundred_at_once_pass_as_often_as_the_limit() {
    let channel = examples().await;
    assert_eq!(burst(&channel, &request("burst", &[&[("tenant", "a")]]), 500).await, 137);
    // Of two descriptors whose keys differ, too: what one of them cannot have, the other gets back.
    let both = request("burst", &[&[("tenant", "b")], &[("tenant", "a")]]);
    assert_eq!(burst(&channel, &both, 50).await, 0);
    assert_eq!(burst(&channel, &request("burst", &[&[("tenant", "b")]]), 500).await, 137);
}

#[tokio::test]
async fn any_value_is_a_key_and_nothing_else() {
    let channel = examples().await;
    let long = "/..%".repeat(15_000);
    let odd =
        ["", ".", "..", "/", "\\", "a/b", "a%2Fb", "%2e", "%2E%2E", ";", ".;", "?", "#", "*", "{key}", "é", "e\u{301}"];
    let values = odd.iter().copied().chain([" ", "\0", "\n", "//", "/../", "\u{10FFFF}", "key", &long]);
    for value in values {
        assert_eq!(codes(&channel, "odd", &[("key", value)], 2).await, [Pass, Over], "{value:.20?}");
    }
    // No value has had the limit of the others.
    assert_eq!(codes(&channel, "odd", &[("k", "v"), ("..", "key")], 3).await, [Pass, Pass, Over]);
}

/// The rules of the page, and the file that its first command names, as they are printed.
#[tokio::test]
async fn what_the_page_prints_limits_descriptors() {
    let page = include_str!("../README.md");
    let printed = page.split("```toml\n").nth(1).and_then(|block| block.split("```").next()).unwrap();
    let channel = serve(RateLimitService::new(gate(printed)).unwrap()).await;
    let entries = [("message_type", "marketing"), ("to_number", "555")];
    assert_eq!(codes(&channel, "messaging", &entries, 6).await, [Pass, Pass, Pass, Pass, Pass, Over]);
    assert!(page.contains("--rules adapters/envoy/examples/rules.toml"));
    let channel = serve(RateLimitService::new(gate(include_str!("../examples/rules.toml"))).unwrap()).await;
    let (upload, address) = ([("route", "upload"), ("tenant", "a")], [("remote_address", "192.0.2.1")]);
    // The clock is real: a second more is a fifth of the bucket, or another window.
    assert!((100..=120).contains(&burst(&channel, &request("edge", &[&upload]), 150).await));
    assert!((10..=20).contains(&burst(&channel, &request("edge", &[&address]), 25).await));
}

/// Values and what a rule's path has for them, as the page says. Each has a rule of its own here.
#[tokio::test]
async fn no_value_reaches_the_rule_of_another() {
    let values = [
        ("", "%FF"),
        (".", ".%FF"),
        ("..", "..%FF"),
        (";", ";"),
        (".;", ".;"),
        ("..;", "..;"),
        ("\u{ff}", "\u{ff}"),
        ("%FF", "%25FF"),
        (".%FF", ".%25FF"),
        ("%", "%25"),
        ("%2e", "%252e"),
        ("/", "%2F"),
        ("//", "%2F%2F"),
        ("%2F", "%252F"),
        ("a/b", "a%2Fb"),
        ("\\", "%5C"),
        ("%5C", "%255C"),
        ("?", "%3F"),
        ("#", "%23"),
        ("a", "a"),
        ("A", "A"),
        ("%41", "%2541"),
        ("\u{e9}", "\u{e9}"),
        ("%C3%A9", "%25C3%25A9"),
        (" ", " "),
        ("%20", "%2520"),
        ("+", "+"),
        ("{key}", "%7Bkey%7D"),
        ("*", "%2A"),
        ("\"", "%22"),
        ("\0", "%00"),
        ("%00", "%2500"),
        ("...", "..."),
    ];
    let mut rules = String::from("dimensions = [\"key\"]\n");
    for (nth, (_, written)) in values.iter().enumerate() {
        let path = format!("/odd/key/{written}");
        let _ = write!(
            rules,
            "[limits.l{nth}]\nquotas = [{{ algorithm = \"sliding_log\", limit = 9, window_ms = 1000, by = \"global\" }}]\n"
        );
        let _ = write!(rules, "[[rules]]\npath = {path:?}\nlimits = [\"l{nth}\"]\n");
    }
    let channel = serve(RateLimitService::new(gate(&rules)).unwrap()).await;
    for (nth, (value, _)) in values.iter().enumerate() {
        let response = ask(&channel, request("odd", &[&[("key", value)]])).await.unwrap();
        let name = response.statuses[0].current_limit.as_ref().map(|limit| limit.name.as_str());
        assert_eq!(name, Some(&*format!("l{nth}")), "{value:?}");
    }
}

#[tokio::test]
async fn an_invalid_request_is_a_stated_error() {
    let channel = examples().await;
    let one = descriptor(&[("a", "b")]);
    let mut many = descriptor(&[]);
    many.entries = vec![one.entries[0].clone(); 10_000];
    let mut negative = request("d", &[&[("a", "b")], &[("a", "b")]]);
    negative.descriptors[1].is_negative_hits = true;
    let mut crowd = request("d", &[]);
    crowd.descriptors = vec![one.clone(); 65];
    let mut long = request("d", &[&[("a", "b")]]);
    long.descriptors.push(many);
    for (asked, message) in [
        (request("", &[&[("a", "b")]]), "domain: empty; set `domain` of the filter in Envoy"),
        (request("d", &[]), "descriptors: there are 0; send 1 to 64"),
        (crowd, "descriptors: there are 65; send 1 to 64"),
        (request("d", &[&[("a", "b")], &[]]), "descriptors[1].entries: there are 0; send 1 to 64"),
        (long, "descriptors[1].entries: there are 10000; send 1 to 64"),
        (negative, "descriptors[1].is_negative_hits: nothing is given back; leave it out"),
    ] {
        let error = ask(&channel, asked).await.unwrap_err();
        assert_eq!((error.code(), error.message()), (GrpcCode::InvalidArgument, message));
    }
    // Another message, another method, and a message that is too large.
    let mut response = RateLimitResponse { overall_code: 7, raw_body: vec![0xFF; 9], ..RateLimitResponse::default() };
    let error = call(&channel, support::METHOD, response.clone()).await.unwrap_err();
    assert_eq!(error.code(), GrpcCode::Internal, "{error:?}");
    let other = "/envoy.service.ratelimit.v3.RateLimitService/Other";
    assert_eq!(call(&channel, other, response.clone()).await.unwrap_err().code(), GrpcCode::Unimplemented);
    response.raw_body = vec![0; 5 << 20];
    assert_eq!(call(&channel, support::METHOD, response).await.unwrap_err().code(), GrpcCode::OutOfRange);
    assert_eq!(code(&channel, request("d", &[&[("a", "b")]])).await, Pass);
}

#[test]
fn wrong_rules_are_an_error_with_the_nearest_right_name() {
    let limit = |by: &str| {
        format!(
            "[limits.api]\nquotas = [{{ algorithm = \"fixed_window\", limit = 1, window_ms = 1_000, by = {by} }}]\n"
        )
    };
    let rule = |line: &str| format!("[[rules]]\nname = \"r\"\nlimits = [\"api\"]\n{line}\n");
    let path = "path = \"/edge/remote_address/{remote_address}/tenant/{tenant}\"";
    for (by, line, message) in [
        (
            "\"remote_adress\"",
            path,
            "by: \"remote_adress\" is no key of the path; did you mean \"remote_address\"? Write one of \"global\", \"remote_address\", \"tenant\"",
        ),
        (
            "[\"tenant\", \"database\"]",
            path,
            "by: \"database\" is no key of the path; write one of \"global\", \"remote_address\", \"tenant\"",
        ),
        ("\"tenant\"", "", "by: \"tenant\" is no key of the path; write one of \"global\""),
        (
            "\"ip\"",
            "path = \"/edge/tenant/{tenant}\"",
            "by: sender and ip are the remote_address, which is no key of the path; write one of \"global\", \"tenant\"",
        ),
        (
            "\"sender\"",
            "path = \"/edge/*\"",
            "by: sender and ip are the remote_address, which is no key of the path; write one of \"global\"",
        ),
        (
            "\"tenant\"",
            "path = \"/edge/tenant/{a}/tenant/{b}\"",
            "by: the path has \"tenant\" twice; give one another descriptor_key in Envoy",
        ),
        (
            "\"global\"",
            "path = \"/edge/tenant\"",
            "path: no descriptor has it; write /DOMAIN/KEY/VALUE, such as /edge/remote_address/{remote_address}, or a star at its end",
        ),
        (
            "\"global\"",
            "path = \"/edge\"",
            "path: no descriptor has it; write /DOMAIN/KEY/VALUE, such as /edge/remote_address/{remote_address}, or a star at its end",
        ),
        (
            "\"global\"",
            "methods = [\"GET\"]",
            "Envoy sends a domain and descriptors; write a path and limits, and nothing else to match",
        ),
        (
            "\"global\"",
            "host = \"example.com\"",
            "Envoy sends a domain and descriptors; write a path and limits, and nothing else to match",
        ),
        (
            "\"global\"",
            "headers = [\"x-a\"]",
            "Envoy sends a domain and descriptors; write a path and limits, and nothing else to match",
        ),
    ] {
        let dimensions = "dimensions = [\"remote_adress\", \"remote_address\", \"tenant\", \"database\"]\n";
        let gate = gate(&[dimensions, &limit(by), &rule(line)].concat());
        let error = RateLimitService::new(gate).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some(&*format!("rule \"r\": {message}")), "{by} {line}");
    }
    for algorithm in [
        "algorithm = \"leaky_bucket\", capacity = 1, refill = 1, per_ms = 1_000",
        "algorithm = \"concurrency\", limit = 1, lifetime_ms = 1_000",
    ] {
        let limit = format!("[limits.api]\nquotas = [{{ {algorithm}, by = \"global\" }}]\n");
        let error = RateLimitService::new(gate(&[&*limit, &rule("path = \"/edge/*\"")].concat())).err().unwrap();
        let message = "rule \"r\": Envoy neither waits nor says when a request ends; write token_bucket";
        assert_eq!(error.to_string(), message);
    }
}

#[tokio::test]
async fn a_reload_keeps_the_counts_and_wrong_rules_change_nothing() {
    let service = RateLimitService::new(gate(include_str!("rules.toml"))).unwrap();
    let channel = serve(service.clone()).await;
    let database = [("database", "default")];
    assert_eq!(codes(&channel, "mongo_cps", &database, 3).await, [Pass, Pass, Over]);
    let text = include_str!("rules.toml").replace("limit = 2, window_ms = 60_000", "limit = 3, window_ms = 60_000");
    service.reload(Rules::parse("rules.toml", &text).unwrap()).unwrap();
    assert_eq!(codes(&channel, "mongo_cps", &database, 2).await, [Pass, Over]);
    let wrong = text.replace("by = \"user\"", "by = \"tenant\"");
    assert!(service.reload(Rules::parse("rules.toml", &wrong).unwrap()).is_err());
    assert_eq!(codes(&channel, "example6", &[("service", "s"), ("user", "user-b")], 3).await, [Pass, Pass, Over]);
}
