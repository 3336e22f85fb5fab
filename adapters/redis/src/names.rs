//! The names of what is stored.

use std::fmt::Write as _;

use tidegate_core::internal::sha256;
use tidegate_core::{Error, Keys, Policy};

/// The keys of the states, one for each row: the core's storage keys, whose common start is in braces. It puts all of a place into one
/// cluster slot.
pub(crate) fn state_keys(policy: &Policy, keys: Keys<'_>) -> Result<Vec<String>, Error> {
    let braced = |row: &String| {
        let (place, rest) = row.split_at(row.find('|').unwrap_or(row.len()));
        format!("{{{place}}}{rest}")
    };
    Ok(keys.storage_keys(policy)?.rows().iter().map(braced).collect())
}

/// The key of a token's first answer. Its length is bounded, whatever the token's length. It depends on the keys of all rows.
pub(crate) fn once_key(rows: &[String], token: &str) -> String {
    token_key(rows, ":once:", token)
}

/// The key of what was granted under a token. A check's token with the same text is another one. It depends on the key of the balance's
/// row alone: the other quotas may change before the grant is repeated.
pub(crate) fn grant_key(row: &String, token: &str) -> String {
    token_key(std::slice::from_ref(row), ":grant:", token)
}

fn token_key(rows: &[String], kind: &str, token: &str) -> String {
    let tag = &rows[0][..rows[0].find('}').map_or(0, |end| end + 1)];
    let hash = match rows {
        [row] if row == tag => sha256(token.as_bytes()),
        rows => sha256(format!("{}\n{token}", rows.join("\n")).as_bytes()),
    };
    let mut name = String::with_capacity(tag.len() + kind.len() + 32);
    name.push_str(tag);
    name.push_str(kind);
    for byte in &hash[..16] {
        let _ = write!(name, "{byte:02x}");
    }
    name
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
        assert_eq!(names, ["{tg1:api:fw60000:sub:alice}"]);
        assert_eq!(once_key(&names, "request-1"), "{tg1:api:fw60000:sub:alice}:once:19f1064b619d49d35392eac7261cd726");

        assert_eq!(
            grant_key(&names[0], "request-1"),
            "{tg1:api:fw60000:sub:alice}:grant:19f1064b619d49d35392eac7261cd726"
        );

        let several = Policy::new("api", [quota()?.by("user")?, quota()?.by("tenant")?])?;
        let of = |tenant| state_keys(&several, (&[("user", &user), ("tenant", tenant)]).into());
        let names = of(&tenant)?;
        assert_eq!(names, ["{tg1:api@user:fw60000:sub:alice}", "{tg1:api@tenant:fw60000:tenant:7}"]);
        assert_eq!(
            once_key(&names, "request-1"),
            "{tg1:api@user:fw60000:sub:alice}:once:bcf16eaa09b826a69fec8a11a880c1ec"
        );
        // A token is one of all rows.
        assert_ne!(once_key(&names, "request-1"), once_key(&of(&other)?, "request-1"));
        Ok(())
    }

    /// What is bought is found, and not granted again, whatever is beside it.
    #[test]
    fn the_names_of_a_balance_depend_on_nothing_beside_it() -> Result<(), tidegate_core::Error> {
        let (user, tenant) = (Key::new("user:1"), Key::new("tenant:7"));
        let keys = [("user", &user), ("tenant", &tenant)];
        let own = || Quota::balance(100)?.covers_excess();
        let minute = Millis::from_secs(60);
        for (quota, id) in
            [(Quota::fixed_window(5, minute)?, "fw60000"), (Quota::token_bucket(5, 1, Millis::new(1_000))?, "tb1000")]
        {
            let one = Policy::new("api", [quota.clone(), own()?])?;
            let names = state_keys(&one, (&user).into())?;
            assert_eq!(names, [&format!("{{tg1:api:ba0:user:1}}|api:{id}"), "{tg1:api:ba0:user:1}"]);
            let granted = "{tg1:api:ba0:user:1}:grant:0bafe22156d2698c143b86040446d366";
            assert_eq!(grant_key(&names[1], "order-1"), granted);

            let of_user = own()?.by("user")?;
            let several = Policy::new("api", [quota.clone().by("tenant")?, quota.by("user")?, of_user])?;
            let balance = "{tg1:api@user:ba0:user:1}";
            let beside = format!("{balance}|api@user:{id}");
            let of_tenant = format!("{{tg1:api@tenant:{id}:tenant:7}}");
            assert_eq!(state_keys(&several, (&keys).into())?, [&of_tenant, &beside, balance]);
            let by_user = state_keys(&several.clone().group_by("user")?, (&keys).into())?;
            let of_tenant = format!("{balance}|api@tenant:{id}:tenant:7");
            assert_eq!(by_user, [&of_tenant, &beside, balance]);
            let by_tenant = state_keys(&several.group_by("tenant")?, (&keys).into())?;
            let place = "{tg1:api@tenant:ba0:tenant:7}|";
            let rows = [
                format!("{place}api@tenant:{id}"),
                format!("{place}api@user:{id}:user:1"),
                format!("{place}api@user:ba0:user:1"),
            ];
            assert_eq!(by_tenant, rows);
        }
        Ok(())
    }
}
