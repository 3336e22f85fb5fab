//! Limiters that count correctly but answer wrongly.

use tidegate_guest_protocol::{Answer, Counted, Decided, Outcome, Reply};

/// How a mutant changes a reply.
type Change = fn(&mut Reply);

/// The name, the title of a bug report, and the change to a reply.
pub(super) const ALL: &[(&str, &str, Change)] = &[
    ("fractional-retry-after", "Retry-After has a fraction, which HTTP does not allow", fractional),
    ("floored-retry-after", "Retry-After is rounded down: clients come back too early", floored),
    ("retry-after-in-ms", "Retry-After is in milliseconds", in_ms),
    ("no-retry-after", "a 429 without Retry-After", |reply| remove(reply, "retry-after")),
    ("remaining-field-one-more", "X-RateLimit-Remaining is one too many", remaining_one_more),
    ("reset-field-relative", "X-RateLimit-Reset is relative to now, not to the epoch", reset_relative),
    ("error-as-429", "an unavailable store is answered with 429 (firecrawl 3728)", error_as_429),
    ("error-as-admission", "an error of any kind lets the request through", error_as_admission),
    ("denial-as-200", "a denial is answered with 200", |reply| reply.status = 200),
    ("denial-as-503", "a denial is answered with 503", |reply| {
        if reply.status == 429 {
            reply.status = 503;
        }
    }),
];

fn wait_ms(reply: &Reply) -> Option<u64> {
    match Answer::from_body(&reply.body) {
        Ok(Answer::Decision(decision)) => decision.retry_after_ms,
        _ => None,
    }
}

fn set(reply: &mut Reply, name: &str, change: impl Fn(&str) -> String) {
    for (_, value) in reply.headers.iter_mut().filter(|(sent, _)| sent == name) {
        *value = change(value);
    }
}

fn remove(reply: &mut Reply, name: &str) {
    reply.headers.retain(|(sent, _)| sent != name);
}

fn fractional(reply: &mut Reply) {
    let wait_ms = wait_ms(reply).unwrap_or(0);
    set(reply, "retry-after", |_| format!("{}.{:03}", wait_ms / 1_000, wait_ms % 1_000));
}

fn floored(reply: &mut Reply) {
    let wait_ms = wait_ms(reply).unwrap_or(0);
    set(reply, "retry-after", |_| (wait_ms / 1_000).to_string());
}

fn in_ms(reply: &mut Reply) {
    let wait_ms = wait_ms(reply).unwrap_or(0);
    set(reply, "retry-after", |_| wait_ms.to_string());
}

fn remaining_one_more(reply: &mut Reply) {
    set(reply, "x-ratelimit-remaining", |value| value.parse::<u64>().map_or(0, |value| value + 1).to_string());
}

fn reset_relative(reply: &mut Reply) {
    set(reply, "x-ratelimit-reset", |value| value.parse::<u64>().map_or(0, |value| value % 86_400).to_string());
}

/// Fails open on every error.
fn error_as_admission(reply: &mut Reply) {
    if let Ok(Answer::Error(_)) = Answer::from_body(&reply.body) {
        let quotas = vec![Counted { limit: 1, remaining: None, reset_after_ms: None }];
        let (status, retry_after_ms, delay_ms, from_balance, replayed) = (Outcome::Allowed, None, 0, 0, false);
        let admitted = Decided { status, binding: 0, quotas, retry_after_ms, delay_ms, from_balance, replayed };
        *reply = Reply::new(200, &Answer::Decision(admitted));
    }
}

fn error_as_429(reply: &mut Reply) {
    if reply.status == 503 {
        reply.status = 429;
    }
}
