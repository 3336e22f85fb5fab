//! Gates that read a request or their rules wrongly.

use serde_json::{Value, json};
use tidegate_guest_protocol::{Answer, Gated, Judged, Reply};

/// What is wrong with a gate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrong {
    /// Changes what the gate reads.
    pub(super) reads: fn(&mut Gated),
    /// Changes what it answers.
    pub(super) answers: fn(Reply) -> Reply,
}

/// The name, the title of a bug report, and what is wrong.
pub(super) const ALL: &[(&str, &str, Wrong)] = &[
    (
        "first-rule-wins",
        "the first rule that matches applies, not the most specific",
        reads(|call| {
            // A rule for every path hides all others.
            rules(call).sort_by_key(|rule| rule.get("path").is_some_and(|path| path != "/*"));
            rules(call).truncate(1);
        }),
    ),
    ("ignores-methods", "a rule for POST applies to GET", reads(|call| each(call, "methods"))),
    ("ignores-hosts", "a rule for one host applies to all", reads(|call| each(call, "host"))),
    ("ignores-headers", "a rule that needs a header field applies without it", reads(|call| each(call, "headers"))),
    ("ignores-rule-cost", "every request costs 1, whatever its rule says", reads(|call| each(call, "cost"))),
    (
        "raw-paths",
        "a path in another spelling evades its rule",
        reads(|call| {
            let is_plain = !["%", "//", "/.", "\\"].iter().any(|odd| call.path.contains(odd));
            if !is_plain {
                call.path = "/elsewhere".to_string();
            }
        }),
    ),
    (
        "normal-paths-only",
        "a path is matched in its normal form only, and a router that resolves no dots serves it past its rule",
        reads(|call| {
            let mut segments: Vec<String> = Vec::new();
            for segment in call.path.replace('\\', "/").replace("%2e", ".").split('/') {
                match segment {
                    "" | "." => {}
                    ".." => _ = segments.pop(),
                    other => segments.push(other.to_string()),
                }
            }
            call.path = format!("/{}", segments.join("/"));
        }),
    ),
    (
        "paths-in-ascii-only",
        "a path in raw UTF-8 evades its rule, which is compared with escapes",
        reads(|call| {
            if !call.path.is_ascii() {
                call.path = "/elsewhere".to_string();
            }
        }),
    ),
    (
        "escaped-braces-are-parameters",
        "a rule for `/%7Bx%7D` applies to every path of one segment",
        reads(|call| {
            for path in rules(call).iter_mut().filter_map(|rule| rule.get_mut("path")) {
                *path = path.as_str().unwrap_or_default().replace("%7B", "{").replace("%7D", "}").into();
            }
        }),
    ),
    (
        "case-sensitive-paths",
        "a path in upper case evades its rule on a host that ignores case",
        reads(|call| _ = call.rules.as_object_mut().map(|rules| rules.remove("case_insensitive"))),
    ),
    (
        "one-limit-of-several",
        "only the first limit of a rule applies",
        reads(|call| {
            for rule in rules(call) {
                if let Some(limits) = rule.get_mut("limits").and_then(Value::as_array_mut) {
                    limits.truncate(1);
                }
            }
        }),
    ),
    ("one-tier-for-all", "senders of a tier have the usual limit", reads(|call| call.tier = None)),
    ("ignores-bot-scores", "a rule for bots applies to nobody", reads(|call| call.bot_score = None)),
    (
        "bots-without-a-score",
        "a request without a bot score is taken for a bot's",
        reads(|call| call.bot_score = Some(call.bot_score.unwrap_or(0))),
    ),
    (
        "first-part-only",
        "a quota by a list of dimensions counts by the first of them",
        reads(|call| {
            for quota in quotas(call) {
                if let Some(first) = parts(quota).first().cloned() {
                    quota["by"] = first;
                }
            }
        }),
    ),
    (
        "each-part-alone",
        "a quota by a list of dimensions counts by each of them, so that its limit is shared",
        reads(|call| {
            for limit in call.rules["limits"].as_object_mut().into_iter().flat_map(|limits| limits.values_mut()) {
                let of = |quota: &Value, part: Value| {
                    let mut own = quota.clone();
                    own["by"] = part;
                    own
                };
                let alone = |quota: &Value| -> Vec<Value> {
                    let parts = parts(quota);
                    if parts.is_empty() {
                        vec![quota.clone()]
                    } else {
                        parts.into_iter().map(|part| of(quota, part)).collect()
                    }
                };
                let all = limit["quotas"].as_array().into_iter().flatten().flat_map(alone).collect();
                limit["quotas"] = Value::Array(all);
            }
        }),
    ),
    (
        "header-ja4",
        "a client chooses its fingerprint by a header field",
        reads(|call| {
            let sent = call.sender.headers.iter().find(|(name, _)| name.ends_with("ja4"));
            call.ja4 = call.ja4.take().or_else(|| sent.map(|(_, value)| value.clone()));
        }),
    ),
    (
        "no-challenges",
        "a request that has to pass a challenge passes without it",
        reads(|call| each(call, "challenge")),
    ),
    (
        "any-api-key",
        "every API key is valid, so each guess has a fresh limit",
        reads(|call| {
            let sent = call.sender.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("x-api-key"));
            call.sender.subject = sent.map(|(_, value)| value.clone());
        }),
    ),
    (
        "header-tier",
        "a client chooses its tier by a header field",
        reads(|call| {
            let sent = call.sender.headers.iter().any(|(name, _)| name == "x-tier");
            call.tier = sent.then(|| "pro".to_string());
        }),
    ),
    (
        "header-subject",
        "a client chooses its subject by a header field",
        reads(|call| {
            let sent = call.sender.headers.iter().find(|(name, _)| name == "x-user-id");
            call.sender.subject = sent.map(|(_, value)| value.clone());
        }),
    ),
    (
        "forwarded-address",
        "the client's address is taken from X-Forwarded-For",
        reads(|call| {
            let sent = call.sender.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("x-forwarded-for"));
            if let Some((_, address)) = sent {
                call.sender.platform = "direct".to_string();
                call.sender.peer = Some(address.clone());
            }
        }),
    ),
    ("no-denials-by-list", "senders on the list deny are limited like others", reads(|call| list(call, "deny"))),
    ("no-exemptions", "senders on the list allow are limited like others", reads(|call| list(call, "allow"))),
    (
        "header-limit",
        "a client chooses its limit by a header field",
        reads(|call| {
            let sent = call.sender.headers.iter().find(|(name, _)| name == "rpm");
            let limit = sent.and_then(|(_, value)| value.parse().ok());
            call.limits.extend(limit.map(|limit| ("rpm".to_string(), limit)));
        }),
    ),
    (
        "missing-claim-is-unlimited",
        "a token without the claim that gives the limit has the highest one",
        reads(|call| {
            if let Some(claims) = &mut call.claims {
                claims.entry("rpm").or_insert_with(|| u32::MAX.into());
            }
        }),
    ),
    (
        "unreadable-claim-is-the-default",
        "a claim that is no number is taken for a missing one",
        reads(|call| {
            if let Some(claims) = &mut call.claims {
                claims.retain(|name, value| name != "rpm" || value.is_u64());
            }
        }),
    ),
    (
        "ignores-the-maximum",
        "the claim and the application may give any limit",
        reads(|call| {
            for quota in quotas(call) {
                if let Some(from) = quota.get_mut("limit_from") {
                    from["max"] = 1_000_000.into();
                }
            }
        }),
    ),
    (
        "another-limit-counts-anew",
        "a change of the number that is given resets what was used",
        reads(|call| {
            let claimed = call.claims.as_ref().and_then(|claims| claims.get("rpm")).and_then(Value::as_u64);
            if let Some(number) = claimed.or_else(|| call.limits.get("rpm").copied()) {
                for quota in quotas(call).filter(|quota| quota.get("window_ms").is_some()) {
                    quota["window_ms"] = (60_000 + number % 1_000).into();
                }
            }
        }),
    ),
    (
        "ignores-overrides",
        "single keys have the limit of all",
        reads(|call| _ = call.rules.as_object_mut().map(|rules| rules.remove("overrides"))),
    ),
    (
        "override-of-another",
        "a subject that is written as an address has that address's override",
        reads(|call| {
            if let Some(address) = call.sender.subject.clone().filter(|subject| subject.starts_with("ip:")) {
                let of = call.rules["overrides"][&address].clone();
                call.rules["overrides"][format!("sub:{address}")] = of;
            }
        }),
    ),
    (
        "opens-on-errors",
        "a request that cannot be decided passes",
        Wrong {
            reads: |_| (),
            answers: |reply| match serde_json::from_slice(&reply.body) {
                Ok(Answer::Error(_)) => Reply::new(200, &Answer::Verdict(Judged::plain(true))),
                _ => reply,
            },
        },
    ),
    (
        "denied-with-403",
        "a denial is a 403",
        Wrong {
            reads: |_| (),
            answers: |reply| Reply { status: if reply.status == 429 { 403 } else { reply.status }, ..reply },
        },
    ),
];

const fn reads(change: fn(&mut Gated)) -> Wrong {
    Wrong { reads: change, answers: |reply| reply }
}

fn rules(call: &mut Gated) -> &mut Vec<Value> {
    if !call.rules["rules"].is_array() {
        call.rules["rules"] = json!([]);
    }
    match &mut call.rules["rules"] {
        Value::Array(rules) => rules,
        _ => unreachable!("it was made a list"),
    }
}

/// Removes a field from each rule.
fn each(call: &mut Gated, field: &str) {
    for rule in rules(call).iter_mut().filter_map(Value::as_object_mut) {
        rule.remove(field);
    }
}

/// The quotas of all limits.
fn quotas(call: &mut Gated) -> impl Iterator<Item = &mut Value> {
    let limits = call.rules.get_mut("limits").and_then(Value::as_object_mut).into_iter().flatten();
    limits.flat_map(|(_, limit)| limit.get_mut("quotas").and_then(Value::as_array_mut).into_iter().flatten())
}

/// Removes a list of senders.
/// The dimensions whose keys make the key of a quota, if they are a list.
fn parts(quota: &Value) -> Vec<Value> {
    quota.get("by").and_then(Value::as_array).cloned().unwrap_or_default()
}

fn list(call: &mut Gated, name: &str) {
    if let Some(lists) = call.rules.get_mut("lists").and_then(Value::as_object_mut) {
        lists.remove(name);
    }
}
