//! Addresses from text and to text. The standard library's reader and writer are three times the WebAssembly.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

/// The address that `text` is: four numbers without leading zeros, which some read as octal.
pub(super) fn parse_v4(text: &[u8]) -> Option<Ipv4Addr> {
    let mut parts = text.split(|&byte| byte == b'.');
    let mut octets = [0; 4];
    for octet in &mut octets {
        let part = parts.next()?;
        if part.len() > 1 && part[0] == b'0' {
            return None;
        }
        *octet = u8::try_from(number(part, 10, 3)?).ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}

/// The address that `text` is: groups, of which `::` stands for one zero or more, and the last two may be an IPv4 address.
pub(super) fn parse_v6(text: &[u8]) -> Option<Ipv6Addr> {
    let mut groups = [[0; 2]; 8];
    let mut count = 0;
    let (mut gap, mut rest) = match text {
        [b':', b':', rest @ ..] => (Some(0), rest),
        _ => (None, text),
    };
    while !rest.is_empty() {
        let end = rest.iter().position(|&byte| byte == b':').unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        let mut push = |group| {
            *groups.get_mut(count)? = group;
            count += 1;
            Some(())
        };
        match parse_v4(part) {
            Some(address) if after.is_empty() => {
                let [a, b, c, d] = address.octets();
                push([a, b])?;
                push([c, d])?;
            }
            _ => push(u16::try_from(number(part, 16, 4)?).ok()?.to_be_bytes())?,
        }
        rest = match after {
            [b':', b':', rest @ ..] if gap.is_none() => {
                gap = Some(count);
                rest
            }
            [b':', rest @ ..] if !rest.is_empty() => rest,
            [] => after,
            _ => return None,
        };
    }
    let gap_len = 8 - count;
    match gap {
        Some(start) if gap_len > 0 => {
            // What is after the gap goes to the end, the last first; what it changes places with is zero.
            (start..count).rev().for_each(|place| groups.swap(place, place + gap_len));
        }
        None if gap_len == 0 => {}
        _ => return None,
    }
    <[u8; 16]>::try_from(groups.as_flattened()).ok().map(Ipv6Addr::from)
}

/// A number of one to so many digits.
pub(super) fn number(digits: &[u8], radix: u32, most: usize) -> Option<u32> {
    if digits.is_empty() || digits.len() > most {
        return None;
    }
    digits.iter().try_fold(0, |number, &digit| Some(number * radix + char::from(digit).to_digit(radix)?))
}

pub(super) fn write_v4(address: Ipv4Addr, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let [a, b, c, d] = address.octets();
    write!(f, "{a}.{b}.{c}.{d}")
}

/// As RFC 5952 has it: `::` stands for the longest run of zeros, the first of several, and never for one alone.
pub(super) fn write_v6(address: Ipv6Addr, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let octets = address.octets();
    let (groups, _) = octets.as_chunks();
    let (mut gap, mut start) = (0..0, 0);
    for (place, &group) in groups.iter().enumerate() {
        if group != [0, 0] {
            start = place + 1;
        } else if place - start >= gap.len().max(1) {
            gap = start..place + 1;
        }
    }
    for (place, &group) in groups.iter().enumerate() {
        if place == gap.start && !gap.is_empty() {
            f.write_str("::")?;
        }
        if gap.contains(&place) {
            continue;
        }
        if place > 0 && place != gap.end {
            f.write_str(":")?;
        }
        write!(f, "{:x}", u16::from_be_bytes(group))?;
    }
    Ok(())
}
