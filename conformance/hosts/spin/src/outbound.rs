//! Which servers `allowed_outbound_hosts` lets an app connect to.

/// Whether one of the `allowed` patterns, `redis://<host>:<port>`, matches an address. Host and port may be `*`. Spin
/// supports more patterns, which this function rejects.
pub(crate) fn is_allowed(allowed: &[String], address: &str) -> bool {
    let Some(asked) = parts(address) else { return false };
    let matches = |pattern: &str, part: &str| pattern == "*" || pattern == part;
    allowed
        .iter()
        .filter_map(|pattern| parts(pattern))
        .any(|(scheme, host, port)| matches(scheme, asked.0) && matches(host, asked.1) && matches(port, asked.2))
}

/// Scheme, host and port.
fn parts(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, authority)| authority);
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "6379"));
    Some((scheme, host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_manifest_lists_is_allowed() {
        let allowed = ["redis://127.0.0.1:*".to_string(), "redis://cache.example:6379".to_string()];
        for yes in
            ["redis://127.0.0.1:1", "redis://u:p@127.0.0.1:2/3", "redis://cache.example", "redis://cache.example/1"]
        {
            assert!(is_allowed(&allowed, yes), "{yes}");
        }
        for no in
            ["", "127.0.0.1:1", "rediss://127.0.0.1:1", "redis://127.0.0.2:1", "redis://cache.example:1", "redis://"]
        {
            assert!(!is_allowed(&allowed, no), "{no}");
        }
        assert!(!is_allowed(&[], "redis://127.0.0.1:1"));
    }
}
