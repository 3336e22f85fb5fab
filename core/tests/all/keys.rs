//! Keys: any bytes become a short, safe text, and different bytes become different keys.

use proptest::prelude::*;
use tidegate_core::{ClientIp, Identity, Key, Millis, Policy, Quota};

fn ip(text: &str) -> ClientIp {
    ClientIp::parse(text).expect("an address")
}

/// The original bytes, if the key is short enough to hold them all.
fn decode(key: &str) -> Option<Vec<u8>> {
    if key.contains('~') {
        return None;
    }
    let (mut out, mut rest) = (Vec::new(), key.as_bytes());
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte == b'%' {
            let digits = std::str::from_utf8(&rest[..2]).expect("two hex digits");
            out.push(u8::from_str_radix(digits, 16).expect("two hex digits"));
            rest = &rest[2..];
        } else {
            out.push(byte);
        }
    }
    Some(out)
}

#[track_caller]
fn assert_safe(key: &str) {
    assert!(key.len() <= Key::LEN_MAX, "{} bytes: {key}", key.len());
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@=+-%~".contains(&byte);
    assert!(key.bytes().all(safe), "{key}");
    // In a path, no segment is empty or a dot segment: URLs and file systems would drop it. A key without a slash is
    // not a path.
    if let Some((first, rest)) = key.split_once('/') {
        assert!(!first.is_empty() && rest.split('/').all(|part| !matches!(part, "" | "." | "..")), "{key}");
    }
}

#[test]
fn ordinary_text_is_unchanged() {
    for text in [
        "ip:192.0.2.1",
        "ip:2001:db8:1:2::/64",
        "sub:alice@example.com",
        "tenant:42",
        "a/b/c",
        "A-Z_0.9+==",
        "",
        &"x".repeat(Key::LEN_MAX),
    ] {
        assert_eq!(Key::new(text).as_str(), text);
    }
}

#[test]
fn an_encoded_key_may_be_as_long_as_any_other() {
    let encoded = |length: usize| Key::new(format!("*{}", "x".repeat(length)));
    let longest = Key::LEN_MAX - "%2A".len();
    assert_eq!(encoded(longest).as_str(), format!("%2A{}", "x".repeat(longest)));
    assert!(encoded(longest + 1).as_str().contains('~'));
}

#[test]
fn special_characters_are_encoded() {
    let cases = [
        ("a*b?c", "a%2Ab%3Fc"),
        ("[a-z]^\\", "%5Ba-z%5D%5E%5C"),
        ("{tag}", "%7Btag%7D"),
        ("a b\r\n\0", "a%20b%0D%0A%00"),
        ("100%", "100%25"),
        ("%2A", "%252A"),
        ("~", "%7E"),
        ("é", "%C3%A9"),
        ("a|b;c#d\"e'f", "a%7Cb%3Bc%23d%22e%27f"),
        ("/a//b/", "%2Fa%2F%2Fb%2F"),
        ("a/../b/./c", "a%2F..%2Fb%2F.%2Fc"),
    ];
    for (text, key) in cases {
        assert_eq!(Key::new(text).as_str(), key);
        assert_safe(key);
    }
    assert_eq!(Key::new([0xff, 0xfe]).as_str(), "%FF%FE");
}

#[test]
fn a_long_key_keeps_a_readable_prefix_and_a_hash_of_the_whole() {
    let long = "x".repeat(Key::LEN_MAX + 1);
    let key = Key::new(&long);
    assert_eq!(
        key.as_str(),
        format!("{}~{}", "x".repeat(63), "0ec9eb33e74510bcdd1f2ea55206e82f21649c5c2becbf2b433eb475b34c01bd")
    );
    assert_safe(key.as_str());
    assert_ne!(key, Key::new(format!("{long}x")));
    assert_ne!(key, Key::new(format!("y{}", &long[1..])));
    // A key's own text is a different input.
    assert_ne!(key, Key::new(key.as_str()));
    assert!(Key::subject(&long).as_str().starts_with("sub:"));
}

#[test]
fn the_prefix_of_a_long_key_never_splits_an_encoded_byte() {
    for plain in 60..=66 {
        let key = Key::new(format!("{}{}", "x".repeat(plain), "é".repeat(100)));
        let start = key.as_str().split('~').next().expect("a start");
        let encoded = start.trim_start_matches('x');
        assert_eq!(encoded.len() % 3, 0, "{start}");
        assert!((61..=63).contains(&start.len()), "{start}");
        assert_safe(key.as_str());
    }
}

#[test]
fn ten_kilobytes_of_hostile_bytes_become_a_safe_key() {
    let hostile: Vec<u8> = b"\0*?[]\\{} \r\n\xff\xc3\xa9~%".iter().copied().cycle().take(10_000).collect();
    let key = Key::new(&hostile);
    assert_safe(key.as_str());
    assert_ne!(key, Key::new(&hostile[1..]));
}

#[test]
fn a_text_that_is_not_a_key_is_none() {
    let hash = "0".repeat(64);
    let hashed =
        [format!("a|~{hash}"), format!("a~{hash}0"), format!("a~{}", hash.replace('0', "A")), format!("a~{hash}~")];
    let others = ["sub:auth0|x", "a%2a", "%41", "a%2A/b", "a%", "a%2", "%é", "~", "a~0", "é", "/"].map(String::from);
    for text in
        hashed.into_iter().chain(others).chain(["x".repeat(Key::LEN_MAX + 1), format!("{}~{hash}", "x".repeat(64))])
    {
        assert_eq!(Key::from_text(&text), None, "{text}");
    }
    assert!(Key::from_text(&format!("{}/~{hash}", "x".repeat(62))).is_some());
}

#[test]
fn storage_keys_start_with_a_version_and_the_policy() {
    let windows = (1..=8).map(|window| Quota::fixed_window(1, Millis::new((1 << 50) + window)).expect("a quota"));
    let policy = Policy::new(&"p".repeat(32), windows).expect("a policy");
    let longest = Key::new("x".repeat(1_000)).storage_key(&policy);
    assert!(longest.starts_with("tg1:pppp"));
    assert!(longest.len() <= 320, "{}", longest.len());

    let quota = |limit, window| Policy::new("api", [Quota::fixed_window(limit, Millis::new(window)).expect("a quota")]);
    let stored = |limit, window| Key::new("a").storage_key(&quota(limit, window).expect("a policy"));
    assert_eq!(stored(1, 1_000), "tg1:api:fw1000:a");
    assert_eq!(stored(1, 1_000), stored(2, 1_000));
    assert_ne!(stored(1, 1_000), stored(1, 2_000));
}

#[test]
fn the_most_trusted_identity_wins() {
    let client_ip = Some(ip("2001:db8:1:2::5"));
    let cases = [
        (Some("alice"), Some("secret"), client_ip, "sub:alice"),
        (None, Some("secret"), client_ip, "key:2bb80d537b1da3e38bd30361aa855686"),
        (Some(""), Some(""), client_ip, "ip:2001:db8:1:2::/64"),
        (Some(""), Some(""), None, "ip:unknown"),
        (None, None, None, "ip:unknown"),
    ];
    for (subject, api_key, client_ip, text) in cases {
        let key = Identity { subject, api_key, client_ip }.resolve();
        assert_eq!(key.as_str(), text);
        assert_eq!(key, Key::new(text), "the key's text maps to itself");
    }
}

#[test]
fn one_kind_of_identity_cannot_impersonate_another() {
    // An issuer may let users choose their subject.
    assert_eq!(Key::subject("ip:192.0.2.1").as_str(), "sub:ip:192.0.2.1");
    assert_ne!(Key::subject("unknown"), Key::missing_ip());
    assert_ne!(Key::new("ip:unknowns"), Key::missing_ip());
    assert_ne!(Key::ip(&ip("0.0.0.1")), Key::missing_ip());
}

#[test]
fn secrets_are_not_in_debug_output() {
    let identity = Identity { api_key: Some("hunter2"), ..Identity::default() };
    assert!(!format!("{identity:?} {:?}", identity.resolve()).contains("hunter2"));
}

/// Bytes as clients send them: any bytes, text, and text that looks like a key.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        "[a-z:/.%~*]{0,12}".prop_map(String::into_bytes),
        "(%[0-9A-F]{2}|[a-z/~.]){0,70}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn any_bytes_become_a_safe_key(bytes in bytes()) {
        assert_safe(Key::new(&bytes).as_str());
        assert_safe(Key::subject(&bytes).as_str());
        assert_safe(Key::api_key(&bytes).as_str());
    }

    #[test]
    fn a_short_key_decodes_to_its_bytes(bytes in bytes()) {
        let key = Key::new(&bytes);
        match decode(key.as_str()) {
            Some(decoded) => prop_assert_eq!(decoded, bytes),
            None => prop_assert!(key.as_str().len() > 64 && bytes.len() > Key::LEN_MAX / 3),
        }
    }

    #[test]
    fn no_two_inputs_share_a_key(one in bytes(), other in bytes()) {
        prop_assert_eq!(one == other, Key::new(&one) == Key::new(&other));
        prop_assert_eq!(one == other, Key::subject(&one) == Key::subject(&other));
    }

    #[test]
    fn a_text_is_its_own_key_only_if_nothing_was_encoded(bytes in bytes()) {
        let key = Key::new(&bytes);
        prop_assert_eq!(key.as_str().as_bytes() == bytes, Key::new(key.as_str()) == key);
    }

    #[test]
    fn a_key_round_trips_through_its_text(bytes in bytes()) {
        let key = Key::new(&bytes);
        prop_assert_eq!(Key::from_text(key.as_str()), Some(key));
    }

    #[test]
    fn from_text_preserves_the_text(text in "(sub:|ip:)?[a-c0-9A-F%/~é*:]{0,12}(~[0-9a-f]{63,65})?") {
        prop_assert!(Key::from_text(&text).is_none_or(|key| key.as_str() == text));
    }

    #[test]
    fn a_subject_is_the_key_of_its_prefixed_text(bytes in bytes()) {
        prop_assert_eq!(Key::subject(&bytes), Key::new([b"sub:".as_slice(), &bytes].concat()));
        prop_assert!(Key::subject(&bytes).as_str().starts_with("sub:"));
    }
}
