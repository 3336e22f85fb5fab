//! The names of what is stored.

use std::fmt::Write as _;

use tidegate_core::internal::sha256;
use tidegate_core::{Error, Keys, Policy};

/// The names of what is stored for one request.
pub(crate) struct Names {
    /// The part in braces, which puts all into one cluster slot.
    tag: String,
    /// The key of each dimension's state.
    pub(crate) rows: Vec<String>,
}

/// The keys of the states: the core's storage keys, whose common start is in braces.
pub(crate) fn state_keys(policy: &Policy, keys: Keys<'_>) -> Result<Names, Error> {
    let names = keys.storage_keys(policy)?;
    let place = names.place();
    let braced = |row: &String| match place {
        Some(place) => format!("{{{place}}}{}", row.strip_prefix(place).unwrap_or(row)),
        None => format!("{{{row}}}"),
    };
    let tag = place.unwrap_or(&names.rows()[0]);
    Ok(Names { tag: format!("{{{tag}}}"), rows: names.rows().iter().map(braced).collect() })
}

/// The key of a token's first answer. Its length is bounded, whatever the token's length. It depends on the keys of all rows.
pub(crate) fn once_key(names: &Names, token: &str) -> String {
    let hash = match &names.rows[..] {
        [row] if *row == names.tag => sha256(token.as_bytes()),
        rows => sha256(format!("{}\n{token}", rows.join("\n")).as_bytes()),
    };
    let mut name = String::with_capacity(names.tag.len() + 38);
    name.push_str(&names.tag);
    name.push_str(":once:");
    for byte in &hash[..16] {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// The key of what was granted under a token. A check's token with the same text is another one.
pub(crate) fn grant_key(names: &Names, token: &str) -> String {
    once_key(names, token).replacen("}:once:", "}:grant:", 1)
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Key, Millis, Policy, Quota};

    use super::{grant_key, once_key, state_keys};

    /// A renamed row would be a new limit, and a renamed token a second charge.
    #[test]
    fn names_never_change() -> Result<(), tidegate_core::Error> {
        let quota = || Quota::fixed_window(5, Millis::from_secs(60));
        let (user, tenant, other) = (Key::new("sub:alice"), Key::new("tenant:7"), Key::new("tenant:8"));
        let single = Policy::new("api", [quota()?])?;
        let names = state_keys(&single, (&user).into())?;
        assert_eq!(names.rows, ["{tg1:api:fw60000:sub:alice}"]);
        assert_eq!(once_key(&names, "request-1"), "{tg1:api:fw60000:sub:alice}:once:19f1064b619d49d35392eac7261cd726");

        assert_eq!(
            grant_key(&names, "request-1"),
            "{tg1:api:fw60000:sub:alice}:grant:19f1064b619d49d35392eac7261cd726"
        );

        let several = Policy::new("api", [quota()?.by("user")?, quota()?.by("tenant")?])?;
        let of = |tenant| state_keys(&several, (&[("user", &user), ("tenant", tenant)]).into());
        let names = of(&tenant)?;
        assert_eq!(names.rows, ["{tg1:api@user:fw60000:sub:alice}", "{tg1:api@tenant:fw60000:tenant:7}"]);
        assert_eq!(
            once_key(&names, "request-1"),
            "{tg1:api@user:fw60000:sub:alice}:once:bcf16eaa09b826a69fec8a11a880c1ec"
        );
        // A token is one of all rows.
        assert_ne!(once_key(&names, "request-1"), once_key(&of(&other)?, "request-1"));
        Ok(())
    }
}
