//! Edge Rate Limiting of Fastly, as VCL snippets
//! (<https://www.fastly.com/documentation/reference/vcl/functions/rate-limiting/ratelimit-check-rate/>).
//!
//! **Errs** towards admitting. A rate counter has what came in the last 10 or 60 seconds, of which up to a second is missing:
//! "Time windows are fixed and almost always incomplete" (<https://www.fastly.com/documentation/reference/vcl/declarations/ratecounter>).
//! The rate is computed as if that second were missing. By Fastly's own statement, a counter may be up to 10 % too low
//! (<https://docs.fastly.com/products/edge-rate-limiting>). Counters are kept for each PoP.

use std::fmt::Write as _;

use tidegate_core::gate::{Host, Path};

use super::bound::Counting;
use super::pattern::{OTHER_SPELLING, is_any, whole_regex};
use super::ring::Ring;
use super::select::{Can, Except, Selection};
use super::{File, Periods, Profile};

/// The least limit in requests a second, and "the lowest rate limit supported"
/// (<https://www.fastly.com/documentation/reference/vcl/functions/rate-limiting/ratelimit-check-rate/>).
const RATE_MIN: u64 = 10;

/// The largest limit, from the same page.
const RATE_MAX: u64 = 70_000_000;

/// The windows are from the same page. That of a second is not used: it is incomplete, and how the rate is estimated from it is
/// not documented. The number of rules is not limited.
pub(super) fn profile() -> Profile {
    Profile {
        plan: None,
        periods: Periods::These(&[10, 60]),
        counting: Counting::Window,
        rules_max: usize::MAX,
        is_rule_each: false,
        can: Can { host: true, method: true, header: true, regex: true },
        addresses: true,
        refuses,
    }
}

/// The limit in requests a second. The window may be a second short.
fn rate(ring: &Ring<'_>) -> u64 {
    ring.requests.div_ceil(ring.period_s.saturating_sub(1).max(1))
}

fn refuses(ring: &Ring<'_>, _: &[String]) -> Option<String> {
    for selection in &ring.selections {
        let left_out = selection.except.iter().filter_map(|except| match except {
            Except::Header(name) => Some(*name),
            _ => None,
        });
        if let Some(name) = left_out.chain(selection.headers.iter().copied()).find(|name| !is_variable(name)) {
            return Some(format!("VCL has no variable for the header field {name}"));
        }
    }
    let (rate, period_s) = (rate(ring), ring.period_s);
    let bound = match rate {
        ..RATE_MIN => format!("no less than {RATE_MIN}"),
        RATE_MIN..=RATE_MAX => return None,
        _ => format!("no more than {RATE_MAX}"),
    };
    Some(format!("it would be {rate} requests a second over {period_s} s, and Fastly takes {bound}"))
}

pub(super) fn write(rings: &[Ring<'_>], allowed: &[String]) -> (Vec<File>, Vec<&'static str>) {
    let mut init = String::from("# tidegate-init.vcl: a snippet of the type init, written by `tidegate export`.\n");
    let mut recv = String::from("# tidegate-recv.vcl: a snippet of the type recv, written by `tidegate export`.\n");
    if !allowed.is_empty() {
        init.push_str("\nacl tidegate_allow {\n");
        for network in allowed {
            if let Some((address, bits)) = network.split_once('/') {
                _ = writeln!(init, "  \"{address}\"/{bits};");
            }
        }
        init.push_str("}\n");
    }
    recv.push_str("declare local var.tidegate_host STRING;\n");
    recv.push_str("set var.tidegate_host = std.tolower(regsub(req.http.host, {\"\\.?(:[0-9]+)?$\"}, \"\"));\n");
    // Not in the shield, where the address is that of another PoP, and not again after a restart.
    let mut once = String::from("fastly.ff.visits_this_service == 0 && req.restarts == 0");
    if !allowed.is_empty() {
        once.push_str(" && !(client.ip ~ tidegate_allow)");
    }
    _ = writeln!(recv, "if ({once}) {{");
    for ring in rings {
        let name = ring.id.replace('-', "_");
        _ = write!(init, "\nratecounter {name}_count {{}}\npenaltybox {name}_box {{}}\n");
        let any: Vec<String> = ring.selections.iter().map(|selection| format!("({})", conditions(selection))).collect();
        let (rate, period_s, about) = (rate(ring), ring.period_s, &ring.about);
        _ = write!(
            recv,
            "  # {about}\n  if ({}) {{\n    if (ratelimit.check_rate(client.ip, {name}_count, 1, {period_s}, {rate}, \
             {name}_box, 1m)) {{\n      error 429 \"Too Many Requests\";\n    }}\n  }}\n",
            any.join("\n    || ")
        );
    }
    recv.push_str("}\n");
    let general = vec![
        "Fastly counts in each PoP, so a sender that reaches several is allowed as much in each.",
        "By Fastly's own statement, a counter may be up to 10 % too low.",
        "Fastly's limits are whole requests a second, rounded up, for a window that may be a second short.",
        "Once an address exceeds a rule, Fastly denies all its requests of that rule for a minute.",
        "Unless a rule is for one path or for all, Fastly does not count paths in another spelling, such as //a or /%61.",
    ];
    let file = |name: &str, content| File { name: name.into(), content };
    (vec![file("tidegate-init.vcl", init), file("tidegate-recv.vcl", recv)], general)
}

fn conditions(selection: &Selection<'_>) -> String {
    let mut all = Vec::new();
    all.extend(host(selection.host));
    if !is_any(selection.path) {
        all.push(path(selection.path));
    }
    if !selection.methods.is_empty() {
        all.push(methods(&selection.methods));
    }
    all.extend(selection.headers.iter().map(|name| header(name)));
    if selection.mistakes_spellings() {
        all.push(format!("req.url.path !~ {}", pattern(OTHER_SPELLING)));
    }
    let left_out = selection.left_out(host, path, methods, header);
    all.extend(left_out.map(|condition| format!("!({condition})")));
    if all.is_empty() { "true".into() } else { all.join(" && ") }
}

fn host(host: &Host) -> Option<String> {
    match host {
        Host::Any => None,
        Host::Exact(host) => Some(format!("var.tidegate_host == {}", string(host))),
        Host::Below(domain) => Some(format!("std.suffixof(var.tidegate_host, {})", string(&format!(".{domain}")))),
    }
}

fn path(path: &Path) -> String {
    format!("req.url.path ~ {}", pattern(&whole_regex(path)))
}

fn methods(methods: &[&str]) -> String {
    let each: Vec<String> = methods.iter().map(|method| format!("req.method == {}", string(method))).collect();
    if each.len() == 1 { each.concat() } else { format!("({})", each.join(" || ")) }
}

/// True if the field is present: <https://www.fastly.com/documentation/reference/vcl/functions/miscellaneous/if>.
fn header(name: &str) -> String {
    format!("req.http.{name}")
}

fn is_variable(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// A string, of which all but the plainest characters are escaped:
/// <https://www.fastly.com/documentation/reference/vcl/types/string/>.
fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' | b':' | b'[' | b']' => {
                out.push(char::from(byte));
            }
            _ => _ = write!(out, "%{byte:02X}"),
        }
    }
    out + "\""
}

/// A regular expression as a long string, which has no escapes. It ends with the first quote.
fn pattern(regex: &str) -> String {
    format!("{{\"{}\"}}", regex.replace('"', r"\x22"))
}

#[cfg(test)]
mod tests {
    use super::{pattern, string};

    #[test]
    fn literals_end_where_they_should() {
        assert_eq!(string("a\"b%\n\u{e9}!"), "\"a%22b%25%0A%C3%A9%21\"");
        assert_eq!(pattern(r#"^/a"}b\.c%2F$"#), r#"{"^/a\x22}b\.c%2F$"}"#);
    }
}
