//! The client's address, from each platform's headers, genuine and forged.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use tidegate_core::{ClientIp, ClientIpSource, ErrorKind, Ipv6Prefix, MissingIp, Platform};

type Headers<'a> = &'a [(&'a str, &'a str)];

const PEER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

fn find(source: ClientIpSource, headers: Headers<'_>, peer: Option<IpAddr>) -> String {
    match source.find(headers.iter().copied(), peer) {
        Ok(ip) => ip.to_string(),
        Err(reason) => reason.name().to_string(),
    }
}

#[track_caller]
fn check(platform: Platform, cases: &[(Headers<'_>, &str)]) {
    // Only Fastly and Direct read the peer; for the others it must make no difference.
    for (headers, expected) in cases {
        assert_eq!(find(ClientIpSource::new(platform), headers, Some(PEER.into())), *expected, "{headers:?}");
    }
}

#[test]
fn cloudflare() {
    check(
        Platform::Cloudflare,
        &[
            (&[("cf-connecting-ip", "192.0.2.1")], "192.0.2.1"),
            (&[("CF-Connecting-IP", "2001:db8:1:2:3::4")], "2001:db8:1:2::/64"),
            (&[("x-forwarded-for", "192.0.2.66"), ("cf-connecting-ip", "192.0.2.1")], "192.0.2.1"),
            (&[("true-client-ip", "192.0.2.66"), ("x-real-ip", "192.0.2.66")], "absent"),
            (&[("cf-connecting-ip", "192.0.2.66"), ("cf-connecting-ip", "192.0.2.1")], "ambiguous"),
            (&[("cf-connecting-ip", "192.0.2.66, 192.0.2.1")], "ambiguous"),
            (&[("cf-connecting-ip", "nobody")], "unreadable"),
            (&[("cf-connecting-ip", "")], "absent"),
            (&[("cf-connecting-ip", "2a06:98c0:3600::103")], "shared"),
            (&[("cf-connecting-ip", "2a06:98c0:3600:0:0::103")], "shared"),
            (&[("cf-connecting-ip", "2a06:98c0:3600::104")], "2a06:98c0:3600::/64"),
            (&[], "absent"),
        ],
    );
}

#[test]
fn vercel() {
    check(
        Platform::Vercel,
        &[
            (&[("x-vercel-forwarded-for", "192.0.2.1")], "192.0.2.1"),
            (&[("x-real-ip", "192.0.2.1")], "192.0.2.1"),
            (&[("x-real-ip", "192.0.2.2"), ("x-vercel-forwarded-for", "192.0.2.1")], "192.0.2.1"),
            (&[("x-vercel-forwarded-for", ""), ("x-real-ip", "192.0.2.1")], "192.0.2.1"),
            (&[("x-vercel-forwarded-for", "192.0.2.66, 192.0.2.1"), ("x-real-ip", "192.0.2.66")], "ambiguous"),
            (&[("x-vercel-forwarded-for", "nobody"), ("x-real-ip", "192.0.2.66")], "unreadable"),
            (&[("x-real-ip", "192.0.2.66"), ("x-real-ip", "192.0.2.1")], "ambiguous"),
            (&[("x-forwarded-for", "192.0.2.66"), ("forwarded", "for=192.0.2.66")], "absent"),
        ],
    );
}

#[test]
fn netlify() {
    check(
        Platform::Netlify,
        &[
            (&[("x-nf-client-connection-ip", "192.0.2.1")], "192.0.2.1"),
            (&[("X-Nf-Client-Connection-Ip", "::ffff:192.0.2.1")], "192.0.2.1"),
            (&[("x-nf-client-connection-ip", "192.0.2.66"), ("x-nf-client-connection-ip", "192.0.2.1")], "ambiguous"),
            (&[("x-forwarded-for", "192.0.2.66"), ("client-ip", "192.0.2.66")], "absent"),
        ],
    );
}

#[test]
fn fastly_and_direct_read_no_header() {
    let forged: Headers<'_> = &[
        ("fastly-client-ip", "192.0.2.66"),
        ("x-forwarded-for", "192.0.2.66"),
        ("x-real-ip", "192.0.2.66"),
        ("cf-connecting-ip", "192.0.2.66"),
    ];
    for platform in [Platform::Fastly, Platform::Direct] {
        let source = ClientIpSource::new(platform);
        assert_eq!(find(source, forged, Some(PEER.into())), "198.51.100.7");
        assert_eq!(find(source, forged, Some("::ffff:198.51.100.7".parse().expect("an address"))), "198.51.100.7");
        assert_eq!(find(source, forged, Some("2001:db8::7".parse().expect("an address"))), "2001:db8::/64");
        assert_eq!(find(source, forged, Some(Ipv4Addr::UNSPECIFIED.into())), "unreadable");
        assert_eq!(find(source, forged, None), "absent");
    }
}

#[test]
fn spin() {
    check(
        Platform::Spin,
        &[
            (&[("spin-client-addr", "192.0.2.1:49152")], "192.0.2.1"),
            (&[("spin-client-addr", "[2001:db8:1:2::3]:49152")], "2001:db8:1:2::/64"),
            (&[("spin-client-addr", "192.0.2.66:1"), ("Spin-Client-Addr", "192.0.2.1:49152")], "192.0.2.1"),
            // Joined by a runtime.
            (&[("spin-client-addr", "192.0.2.66:1, 192.0.2.1:49152")], "192.0.2.1"),
            // A readable forgery does not stand in for an unreadable last one.
            (&[("spin-client-addr", "192.0.2.66:1"), ("spin-client-addr", "nobody")], "unreadable"),
            (&[("spin-client-addr", "192.0.2.66:1"), ("spin-client-addr", "")], "absent"),
            (&[("true-client-ip", "192.0.2.66")], "absent"),
            (&[("true-client-ip", "192.0.2.66"), ("spin-client-addr", "192.0.2.1:49152")], "192.0.2.1"),
        ],
    );
    let akamai = ClientIpSource::new(Platform::Spin).trust_true_client_ip(true);
    let cases: [(Headers<'_>, &str); 3] = [
        (&[("spin-client-addr", "192.0.2.1:49152"), ("true-client-ip", "203.0.113.9")], "203.0.113.9"),
        (&[("spin-client-addr", "192.0.2.1:49152")], "absent"),
        (&[("true-client-ip", "192.0.2.66"), ("true-client-ip", "203.0.113.9")], "ambiguous"),
    ];
    for (headers, expected) in cases {
        assert_eq!(find(akamai, headers, None), expected, "{headers:?}");
    }
}

#[test]
fn true_client_ip_is_for_spin_alone() {
    let headers: Headers<'_> = &[("true-client-ip", "192.0.2.66")];
    for platform in Platform::ALL {
        if platform != Platform::Spin {
            assert_eq!(find(ClientIpSource::new(platform).trust_true_client_ip(true), headers, None), "absent");
        }
    }
}

#[test]
fn a_raw_forwarding_header_is_never_read() {
    let forged: Headers<'_> =
        &[("x-forwarded-for", "192.0.2.66"), ("forwarded", "for=192.0.2.66"), ("x-client-ip", "192.0.2.66")];
    for platform in Platform::ALL {
        assert_eq!(find(ClientIpSource::new(platform), forged, None), "absent", "{platform}");
    }
}

#[test]
fn headers_need_not_be_text() {
    let source = ClientIpSource::new(Platform::Netlify);
    let headers = vec![("x-nf-client-connection-ip".to_string(), b"192.0.2.1\xff".to_vec())];
    assert_eq!(source.find(headers, None), Err(MissingIp::Unreadable));
}

#[test]
fn one_address_has_many_notations() {
    let cases = [
        ("192.0.2.1", "192.0.2.1"),
        (" \t192.0.2.1 ", "192.0.2.1"),
        ("192.0.2.1:443", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:c000:0201", "192.0.2.1"),
        ("0:0:0:0:0:FFFF:C000:201", "192.0.2.1"),
        ("[::ffff:192.0.2.1]:443", "192.0.2.1"),
        ("::fffe:192.0.2.1", "::/64"),
        ("2001:DB8:0001:0002:0:0:0:1", "2001:db8:1:2::/64"),
        ("[2001:db8::1]", "2001:db8::/64"),
        ("[2001:db8::1]:65535", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("[fe80::1%25en0]:443", "fe80::/64"),
    ];
    for (text, expected) in cases {
        let ip = ClientIp::parse(text, Ipv6Prefix::default()).expect(text);
        assert_eq!(ip.to_string(), expected, "{text}");
    }
}

#[test]
fn what_is_no_address_is_missing() {
    let unreadable = [
        "192.0.2.01",
        "192.000.2.1",
        "0300.0.2.1",
        "0xc0.0.2.1",
        "3221225985",
        "192.0.2",
        "192.0.2.256",
        "192.0.2.1.",
        "192.0.2.1:",
        "192.0.2.1:+80",
        "192.0.2.1:-1",
        "192.0.2.1:65536",
        "192.0.2.1:000443",
        "192.0.2.1:80:80",
        "192.0.2.1/24",
        "192.0.2.1%eth0",
        "[192.0.2.1]",
        "[2001:db8::1",
        "2001:db8::1]",
        "[2001:db8::1]443",
        "[2001:db8::1]:",
        "[[2001:db8::1]]",
        "2001:db8::1%",
        "fe80::1%eth 0",
        "2001:db8:0:0:0:0:0:1:443",
        "2001:db8::1::2",
        ":::",
        "unknown",
        "_hidden",
        "\"192.0.2.1\"",
        "192.0.2.1 192.0.2.2",
        "192.0.2.1\0",
        "0.0.0.0",
        "::",
        "::ffff:0.0.0.0",
        "[::]:443",
    ];
    for text in unreadable {
        assert_eq!(ClientIp::parse(text, Ipv6Prefix::default()), Err(MissingIp::Unreadable), "{text}");
    }
    assert_eq!(ClientIp::parse("  ", Ipv6Prefix::default()), Err(MissingIp::Absent));
    assert_eq!(ClientIp::parse("192.0.2.1,", Ipv6Prefix::default()), Err(MissingIp::Ambiguous));
}

#[test]
fn the_prefix_is_settable_within_bounds() {
    let cases = [
        (48, "2001:db8:1::/48"),
        (56, "2001:db8:1:ff00::/56"),
        (60, "2001:db8:1:fff0::/60"),
        (64, "2001:db8:1:ffff::/64"),
        (127, "2001:db8:1:ffff:ffff:ffff:ffff:fffe/127"),
        (128, "2001:db8:1:ffff:ffff:ffff:ffff:ffff"),
    ];
    for (bits, expected) in cases {
        let prefix = Ipv6Prefix::new(bits).expect("within bounds");
        let ip = ClientIp::parse("2001:db8:1:ffff:ffff:ffff:ffff:ffff", prefix).expect("an address");
        assert_eq!(ip.to_string(), expected);
        assert_eq!(ClientIp::parse("192.0.2.1", prefix).expect("an address").to_string(), "192.0.2.1");
    }
    for bits in [0, 32, 47, 129, u8::MAX] {
        assert_eq!(Ipv6Prefix::new(bits).expect_err("out of bounds").kind(), ErrorKind::Invalid);
    }
}

#[test]
fn platforms_have_names() {
    for platform in Platform::ALL {
        assert_eq!(platform.name().parse::<Platform>().expect("a platform"), platform);
        assert_eq!(platform.to_string(), platform.name());
    }
    let error = "Cloudflare".parse::<Platform>().expect_err("names are in lower case");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    insta::assert_snapshot!(
        error,
        @r#"platform: "Cloudflare" is not known; write cloudflare, vercel, netlify, fastly, spin or direct"#
    );
}

proptest! {
    #[test]
    fn parsing_never_panics(value in proptest::collection::vec(any::<u8>(), 0..60), text in "[0-9a-f:.\\[\\]%, ]{0,48}") {
        let _ = ClientIp::parse(value, Ipv6Prefix::default());
        let _ = ClientIp::parse(text, Ipv6Prefix::default());
    }

    #[test]
    fn every_address_comes_back_from_every_notation(address in any::<IpAddr>(), port in any::<u16>(), zone in "[a-z0-9._-]{1,8}") {
        prop_assume!(!address.to_canonical().is_unspecified());
        let notations = match address {
            IpAddr::V4(v4) => vec![
                format!("{v4}"),
                format!("{v4}:{port}"),
                format!("::ffff:{v4}"),
                format!("[::ffff:{v4}]:{port}"),
                format!("{}", Ipv6Addr::from_bits(0xffff_0000_0000 | u128::from(v4.to_bits()))),
            ],
            IpAddr::V6(v6) => vec![
                format!("{v6}"),
                format!("[{v6}]"),
                format!("[{v6}]:{port}"),
                format!("{v6}%{zone}"),
                format!("[{v6}%{zone}]:{port}"),
            ],
        };
        let whole = Ipv6Prefix::new(128).expect("within bounds");
        for text in notations {
            let ip = ClientIp::parse(format!(" {text}\t"), whole);
            prop_assert_eq!(ip.map(|ip| ip.address()), Ok(address.to_canonical()), "{}", text);
            prop_assert_eq!(ip, Ok(ClientIp::new(address, whole)), "{}", text);
        }
    }

    #[test]
    fn addresses_share_a_client_exactly_if_they_share_the_prefix(one in any::<u128>(), flipped in 0_u32..128, bits in 48_u8..=128) {
        // Out of the range of mapped addresses, and not unspecified.
        let one = one | 1 << 127;
        prop_assume!(flipped != 127);
        let prefix = Ipv6Prefix::new(bits).expect("within bounds");
        let fold = |address| ClientIp::new(Ipv6Addr::from_bits(address), prefix);
        let within = flipped < 128 - u32::from(bits);
        prop_assert_eq!(fold(one) == fold(one ^ 1 << flipped), within);
    }

    #[test]
    fn a_forged_header_moves_nobody(forged in "[ -~]{0,40}", place in 0_usize..3) {
        let names = ["x-forwarded-for", "x-client-ip", "forwarded"];
        let headers = [(names[place], forged.as_str()), ("cf-connecting-ip", "192.0.2.1")];
        prop_assert_eq!(find(ClientIpSource::new(Platform::Cloudflare), &headers, None), "192.0.2.1");
        let headers = [("spin-client-addr", forged.as_str()), ("spin-client-addr", "192.0.2.1:49152")];
        prop_assert_eq!(find(ClientIpSource::new(Platform::Spin), &headers, None), "192.0.2.1");
        // Where the platform overwrites, a second value can only make the address missing, never another.
        let headers = [("x-nf-client-connection-ip", forged.as_str()), ("x-nf-client-connection-ip", "192.0.2.1")];
        prop_assert_eq!(find(ClientIpSource::new(Platform::Netlify), &headers, None), "ambiguous");
    }
}
