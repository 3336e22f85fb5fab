//! The client's address from the headers of each platform, genuine and forged.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use tidegate_core::{ClientIp, ClientIpSource, ErrorKind, MissingIp, Platform};

type Headers<'a> = &'a [(&'a str, &'a str)];

const PEER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

fn find(source: &ClientIpSource, headers: Headers<'_>, peer: Option<IpAddr>) -> String {
    match source.find(headers.iter().copied(), peer) {
        Ok(ip) => ip.to_string(),
        Err(reason) => reason.name().to_string(),
    }
}

#[track_caller]
fn check(platform: Platform, cases: &[(Headers<'_>, &str)]) {
    // Only Fastly and Direct read the peer. The others ignore it.
    for (headers, expected) in cases {
        assert_eq!(find(&ClientIpSource::new(platform), headers, Some(PEER.into())), *expected, "{headers:?}");
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
        assert_eq!(find(&source, forged, Some(PEER.into())), "198.51.100.7");
        assert_eq!(find(&source, forged, Some("::ffff:198.51.100.7".parse().expect("an address"))), "198.51.100.7");
        assert_eq!(find(&source, forged, Some("2001:db8::7".parse().expect("an address"))), "2001:db8::/64");
        assert_eq!(find(&source, forged, Some(Ipv4Addr::UNSPECIFIED.into())), "unreadable");
        assert_eq!(find(&source, forged, None), "absent");
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
            // A runtime joined two fields.
            (&[("spin-client-addr", "192.0.2.66:1, 192.0.2.1:49152")], "192.0.2.1"),
            // A forged value does not replace an unreadable last one.
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
        assert_eq!(find(&akamai, headers, None), expected, "{headers:?}");
    }
}

#[test]
fn only_spin_reads_true_client_ip() {
    let headers: Headers<'_> = &[("true-client-ip", "192.0.2.66")];
    for platform in Platform::ALL {
        if platform != Platform::Spin {
            assert_eq!(find(&ClientIpSource::new(platform).trust_true_client_ip(true), headers, None), "absent");
        }
    }
}

#[test]
fn forwarding_headers_are_not_read() {
    let forged: Headers<'_> =
        &[("x-forwarded-for", "192.0.2.66"), ("forwarded", "for=192.0.2.66"), ("x-client-ip", "192.0.2.66")];
    for platform in Platform::ALL {
        assert_eq!(find(&ClientIpSource::new(platform), forged, None), "absent", "{platform}");
    }
}

#[test]
fn a_header_that_is_not_utf8_is_unreadable() {
    let source = ClientIpSource::new(Platform::Netlify);
    let headers = vec![("x-nf-client-connection-ip".to_string(), b"192.0.2.1\xff".to_vec())];
    assert_eq!(source.find(headers, None), Err(MissingIp::Unreadable));
}

#[test]
fn different_notations_of_an_address_are_equal() {
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
        let ip = ClientIp::parse(text).expect(text);
        assert_eq!(ip.to_string(), expected, "{text}");
    }
}

#[test]
fn values_that_are_not_an_address_are_rejected() {
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
        assert_eq!(ClientIp::parse(text), Err(MissingIp::Unreadable), "{text}");
    }
    assert_eq!(ClientIp::parse("  "), Err(MissingIp::Absent));
    assert_eq!(ClientIp::parse("192.0.2.1,"), Err(MissingIp::Ambiguous));
}

#[test]
fn the_prefix_length_is_bounded() {
    let cases = [
        (48, "2001:db8:1::/48"),
        (56, "2001:db8:1:ff00::/56"),
        (60, "2001:db8:1:fff0::/60"),
        (64, "2001:db8:1:ffff::/64"),
        (127, "2001:db8:1:ffff:ffff:ffff:ffff:fffe/127"),
        (128, "2001:db8:1:ffff:ffff:ffff:ffff:ffff"),
    ];
    for (bits, expected) in cases {
        let source = ClientIpSource::new(Platform::Direct).ipv6_prefix(bits).expect("within bounds");
        let found = |address: &str| find(&source, &[], address.parse().ok());
        assert_eq!(found("2001:db8:1:ffff:ffff:ffff:ffff:ffff"), expected);
        assert_eq!(found("192.0.2.1"), "192.0.2.1");
    }
    for bits in [0, 32, 47, 129, u8::MAX] {
        let error = ClientIpSource::new(Platform::Direct).ipv6_prefix(bits).expect_err("out of bounds");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.to_string(), format!("ipv6_prefix: {bits} is out of range; write 48 to 128"));
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

#[test]
fn embedded_ipv4_addresses_identify_the_client() {
    let cases = [
        // RFC 6052, section 2.4: 192.0.2.33 with the well-known prefix.
        ("64:ff9b::192.0.2.33", "192.0.2.33"),
        ("64:ff9b::c000:221", "192.0.2.33"),
        ("[64:ff9b::c000:221]:443", "192.0.2.33"),
        ("64:ff9b:0:0:0:1:c000:221", "64:ff9b::/64"),
        // RFC 8215: a prefix for local use, whose layout only its operator knows.
        ("64:ff9b:1::c000:221", "64:ff9b:1::/64"),
        // 6to4: any subnet and interface.
        ("2002:c000:221::1", "192.0.2.33"),
        ("2002:c000:221:ffff:1:2:3:4", "192.0.2.33"),
        // RFC 4380, section 4: the example's client, behind its server and behind another.
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "192.0.2.45"),
        ("2001:0:c633:6401:0:0:3fff:fdd2", "192.0.2.45"),
        ("2001:1:4136:e378:8000:63bf:3fff:fdd2", "2001:1:4136:e378::/64"),
    ];
    for (text, expected) in cases {
        let ip = ClientIp::parse(text).expect(text);
        assert_eq!(ip.to_string(), expected, "{text}");
        let peer: IpAddr = text.trim_start_matches('[').split(']').next().unwrap().parse().unwrap();
        assert_eq!(find(&ClientIpSource::new(Platform::Direct), &[], Some(peer)), expected, "{text}");
    }
}

#[test]
fn an_embedded_address_that_is_not_public_is_rejected() {
    for [a, b, c, d] in [
        [0, 0, 0, 0],
        [0, 1, 2, 3],
        [10, 0, 0, 1],
        [100, 64, 0, 1],
        [100, 127, 255, 255],
        [127, 0, 0, 1],
        [169, 254, 0, 1],
        [172, 31, 0, 1],
        [192, 168, 0, 1],
        [224, 0, 0, 1],
        [240, 0, 0, 1],
        [255, 255, 255, 255u8],
    ] {
        let nat64 = format!("64:ff9b::{a}.{b}.{c}.{d}");
        let six_to_four = format!("2002:{a:02x}{b:02x}:{c:02x}{d:02x}::1");
        let teredo = format!("2001:0:c633:6401::{:02x}{:02x}:{:02x}{:02x}", !a, !b, !c, !d);
        for text in [nat64, six_to_four, teredo] {
            assert_eq!(ClientIp::parse(&text), Err(MissingIp::Unreadable), "{text}");
        }
    }
}

/// RFC 6052, section 2.4: the text representations of 192.0.2.33.
#[test]
fn operator_prefixes_of_every_length_are_translated() {
    let cases = [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
    ];
    for (prefix, address) in cases {
        let source = ClientIpSource::new(Platform::Direct).nat64_prefixes([prefix]).unwrap();
        let found = |address: &str| find(&source, &[], Some(address.parse().unwrap()));
        assert_eq!(found(address), "192.0.2.33", "{prefix}");
        assert_eq!(found("2001:db9::1"), "2001:db9::/64", "{prefix}");
    }
    // An operator's prefix may translate private addresses.
    let (local, well_known) = ("64:ff9b:1::/96", "64:ff9b::/96");
    let source = ClientIpSource::new(Platform::Direct).nat64_prefixes([local, well_known]).unwrap();
    for (address, expected) in [
        ("64:ff9b:1::10.1.2.3", "10.1.2.3"),
        ("64:ff9b::10.1.2.3", "10.1.2.3"),
        ("64:ff9b:1::127.0.0.1", "unreadable"),
        ("64:ff9b:1::0.0.0.0", "unreadable"),
        ("64:ff9b:1::224.0.0.1", "unreadable"),
    ] {
        assert_eq!(find(&source, &[], Some(address.parse().unwrap())), expected, "{address}");
    }
    for text in
        ["", "2001:db8::", "2001:db8::/33", "2001:db8::/128", "2001:db8::1/96", "2001:db8:0:0:100::/96", "10.0.0.0/96"]
    {
        let error = ClientIpSource::new(Platform::Direct).nat64_prefixes([text]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
        assert!(error.to_string().starts_with("nat64_prefix: "), "{error}");
    }
}

#[cfg(feature = "proxies")]
mod behind_proxies {
    use super::*;

    fn source() -> ClientIpSource {
        ClientIpSource::behind_proxies(["10.0.0.0/8", "2001:db8:aaaa::/48", "198.51.100.1"]).unwrap()
    }

    #[test]
    fn the_client_is_the_last_untrusted_address() {
        let trusted: IpAddr = [10, 0, 0, 1].into();
        let cases: [(IpAddr, Headers<'_>, &str); 22] = [
            (trusted, &[("x-forwarded-for", "192.0.2.1")], "192.0.2.1"),
            (trusted, &[("X-Forwarded-For", "203.0.113.66, 192.0.2.1")], "192.0.2.1"),
            (trusted, &[("x-forwarded-for", "203.0.113.66,192.0.2.1,10.2.0.1, 198.51.100.1")], "192.0.2.1"),
            (trusted, &[("x-forwarded-for", "192.0.2.1:49152")], "192.0.2.1"),
            (trusted, &[("x-forwarded-for", "[2001:db8:1:2::5]:443, [2001:db8:aaaa::1]:80")], "2001:db8:1:2::/64"),
            (trusted, &[("x-forwarded-for", "::ffff:192.0.2.1, ::ffff:10.0.0.9")], "192.0.2.1"),
            ("::ffff:10.0.0.1".parse().unwrap(), &[("x-forwarded-for", "192.0.2.1")], "192.0.2.1"),
            ("2001:db8:aaaa::7".parse().unwrap(), &[("x-forwarded-for", "192.0.2.1")], "192.0.2.1"),
            // Repeated fields are one list.
            (trusted, &[("x-forwarded-for", "203.0.113.66"), ("x-forwarded-for", "192.0.2.1")], "192.0.2.1"),
            (trusted, &[("x-forwarded-for", "192.0.2.1"), ("x-forwarded-for", "10.0.0.2, 10.0.0.3")], "192.0.2.1"),
            // Every entry is a trusted host. The first of them sent the request.
            (trusted, &[("x-forwarded-for", "10.0.0.4, 10.0.0.2")], "10.0.0.4"),
            (trusted, &[("x-forwarded-for", "10.0.0.4"), ("x-forwarded-for", "10.0.0.2")], "10.0.0.4"),
            // An entry that a proxy wrote must be an address.
            (trusted, &[("x-forwarded-for", "192.0.2.1, nobody")], "unreadable"),
            (trusted, &[("x-forwarded-for", "192.0.2.1,")], "unreadable"),
            (trusted, &[("x-forwarded-for", "192.0.2.1, 0.0.0.0")], "unreadable"),
            (trusted, &[("x-forwarded-for", "")], "unreadable"),
            // Its owner chooses what a 6to4 address embeds, so the embedded address is not compared.
            (trusted, &[("x-forwarded-for", "192.0.2.1, 2002:a00:1::1")], "unreadable"),
            (trusted, &[("x-forwarded-for", "192.0.2.1, 2002:c633:6401::1")], "198.51.100.1"),
            (trusted, &[], "absent"),
            (trusted, &[("forwarded", "for=192.0.2.1"), ("x-real-ip", "192.0.2.1")], "absent"),
            // A peer that is not a proxy is the client, whatever it sends.
            (PEER.into(), &[("x-forwarded-for", "192.0.2.1")], "198.51.100.7"),
            ("2002:a00:1::1".parse().unwrap(), &[("x-forwarded-for", "192.0.2.1")], "unreadable"),
        ];
        for (peer, headers, expected) in cases {
            assert_eq!(find(&source(), headers, Some(peer)), expected, "{peer} {headers:?}");
        }
        assert_eq!(find(&source(), &[("x-forwarded-for", "192.0.2.1")], None), "absent");
        assert_eq!(source().fields(), ["x-forwarded-for"]);
        assert!(source().reads_peer());
    }

    #[test]
    fn hostile_lists_are_bounded_and_change_no_client() {
        let trusted = Some([10, 0, 0, 1].into());
        let find = |list: &str| super::find(&source(), &[("x-forwarded-for", list)], trusted);
        for entry in ["10.0.0.9", "203.0.113.66", "", ":::", "[::1", "2001:db8:aaaa::1", "\0", "unknown"] {
            let hostile = vec![entry; 10_000].join(",");
            assert_eq!(find(&format!("{hostile}, 192.0.2.1")), "192.0.2.1", "{entry:?}");
            assert_eq!(find(&format!("{hostile}, 192.0.2.1, 10.0.0.2")), "192.0.2.1", "{entry:?}");
        }
        assert_eq!(find(&vec!["10.0.0.9"; 32].join(",")), "10.0.0.9");
        assert_eq!(find(&vec!["10.0.0.9"; 33].join(",")), "ambiguous");
        assert_eq!(find(&vec!["10.0.0.9"; 10_000].join(",")), "ambiguous");
        let fields = vec![("x-forwarded-for", "203.0.113.66"); 10_000];
        let fields = [&fields[..], &[("x-forwarded-for", "192.0.2.1")]].concat();
        assert_eq!(super::find(&source(), &fields, trusted), "192.0.2.1");
    }

    #[test]
    fn texts_that_are_not_a_network_are_rejected() {
        for text in ["", "10.0.0.0/33", "10.0.0", "proxy.example", "0.0.0.0/0", "::/0", "10.0.0.0/8 "] {
            let error = ClientIpSource::behind_proxies([text]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().starts_with("trusted_proxies: "), "{error}");
        }
        let nobody = ClientIpSource::behind_proxies::<&str>([]).unwrap();
        assert_eq!(super::find(&nobody, &[("x-forwarded-for", "192.0.2.1")], Some(PEER.into())), "198.51.100.7");
    }

    proptest! {
        #[test]
        fn entries_that_a_client_prepends_change_nothing(
            forged in proptest::collection::vec("[ -~]{0,60}", 0..4),
            joined in any::<bool>(),
        ) {
            let mut headers: Vec<_> = forged.iter().map(|value| ("x-forwarded-for", value.clone())).collect();
            match headers.last_mut() {
                Some(last) if joined => last.1.push_str(", 192.0.2.1"),
                _ => headers.push(("x-forwarded-for", "192.0.2.1".to_string())),
            }
            let found = source().find(headers, Some([10, 0, 0, 1].into()));
            prop_assert_eq!(found.map(|ip| ip.to_string()), Ok("192.0.2.1".to_string()));
        }
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(value in proptest::collection::vec(any::<u8>(), 0..60), text in "[0-9a-f:.\\[\\]%, ]{0,48}") {
        let _ = ClientIp::parse(value);
        let _ = ClientIp::parse(text);
    }

    #[test]
    fn every_address_parses_from_every_notation(address in any::<IpAddr>(), port in any::<u16>(), zone in "[a-z0-9._-]{1,8}") {
        let whole = |platform| ClientIpSource::new(platform).ipv6_prefix(128).unwrap();
        let (read, direct) = (whole(Platform::Netlify), whole(Platform::Direct));
        prop_assume!(!address.to_canonical().is_unspecified());
        let client = direct.find([("", "")], Some(address));
        let is_plain = client.is_ok_and(|client| client.address() == address.to_canonical());
        prop_assume!(is_plain, "it embeds another address");
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
        for text in notations {
            let ip = read.find([("x-nf-client-connection-ip", format!(" {text}\t"))], None);
            prop_assert_eq!(ip.map(|ip| ip.address()), Ok(address.to_canonical()), "{}", text);
            prop_assert_eq!(ip, client, "{}", text);
        }
    }

    #[test]
    fn an_ipv4_address_is_what_the_standard_parser_takes_for_one(
        text in prop_oneof!["[0-9.]{0,16}", "(0{0,2}[0-9]{1,4}\\.){3}[0-9]{0,4}\\.?", "([12]?[0-9]{1,2}\\.){2,4}[12]?[0-9]{1,2}"]
    ) {
        let expected = text.parse::<Ipv4Addr>().ok().filter(|address| !address.is_unspecified());
        prop_assert_eq!(ClientIp::parse(&text).ok().map(|ip| ip.address()), expected.map(IpAddr::V4), "{}", text);
    }

    #[test]
    fn two_addresses_are_one_client_only_if_they_share_the_prefix(one in any::<u128>(), flipped in 0_u32..128, bits in 48_u8..=128) {
        // Outside the ranges that embed IPv4 addresses.
        let one = one | 1 << 127;
        prop_assume!(flipped != 127);
        let source = ClientIpSource::new(Platform::Direct).ipv6_prefix(bits).expect("within bounds");
        let fold = |address| source.find([("", "")], Some(Ipv6Addr::from_bits(address).into()));
        let within = flipped < 128 - u32::from(bits);
        prop_assert_eq!(fold(one) == fold(one ^ 1 << flipped), within);
    }

    #[test]
    fn a_forged_header_does_not_change_the_client(forged in "[ -~]{0,40}", place in 0_usize..3) {
        let names = ["x-forwarded-for", "x-client-ip", "forwarded"];
        let headers = [(names[place], forged.as_str()), ("cf-connecting-ip", "192.0.2.1")];
        prop_assert_eq!(find(&ClientIpSource::new(Platform::Cloudflare), &headers, None), "192.0.2.1");
        let headers = [("spin-client-addr", forged.as_str()), ("spin-client-addr", "192.0.2.1:49152")];
        prop_assert_eq!(find(&ClientIpSource::new(Platform::Spin), &headers, None), "192.0.2.1");
        // If the platform overwrites the field, a second value makes the address missing.
        let headers = [("x-nf-client-connection-ip", forged.as_str()), ("x-nf-client-connection-ip", "192.0.2.1")];
        prop_assert_eq!(find(&ClientIpSource::new(Platform::Netlify), &headers, None), "ambiguous");
    }
}
