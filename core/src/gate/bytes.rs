//! Rules as bytes, for programs that carry no reader of rules files.

use std::num::NonZero;
use std::sync::Arc;

use super::OnFailure;
use super::matcher::{Host, Path, Pattern};
use super::responses::Responses;
use crate::internal::PolicyParts;
use crate::leb128;
use crate::lending::Lease;
use crate::quota::PART_MARK;
use crate::sha256::sha256;
use crate::sorted_map::SortedMap;
use crate::{BodyFormat, Error, ExtraFields, Key, Millis, Policy, Quota};
#[cfg(feature = "calendar")]
use crate::{Calendar, Every};

/// The length of the checksum in front of the bytes.
const CHECKSUM_LEN: usize = 8;

/// What can be written as bytes, and read from them.
pub(super) trait Bytes: Sized {
    fn write(&self, to: &mut Writer);

    /// `None` if the bytes are not those of such a value.
    fn read(from: &mut BytesReader<'_>) -> Option<Self>;
}

/// Implements [`Bytes`] for a struct: its fields, one after another.
macro_rules! bytes_of_fields {
    ($type:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::gate::bytes::Bytes for $type {
            fn write(&self, to: &mut $crate::gate::bytes::Writer) {
                let Self { $($field),+ } = self;
                $($field.write(to);)+
            }

            fn read(from: &mut $crate::gate::bytes::BytesReader<'_>) -> Option<Self> {
                $(let $field = $crate::gate::bytes::Bytes::read(from)?;)+
                Some(Self { $($field),+ })
            }
        }
    };
}
pub(super) use bytes_of_fields;

/// Implements [`Bytes`] for an enum without fields: the place of its value.
macro_rules! bytes_of_variants {
    ($type:ident { $($variant:ident),+ $(,)? }) => {
        impl Bytes for $type {
            fn write(&self, to: &mut Writer) {
                [$(Self::$variant),+].iter().position(|known| known == self).unwrap_or_default().write(to);
            }

            fn read(from: &mut BytesReader<'_>) -> Option<Self> {
                [$(Self::$variant),+].get(usize::read(from)?).copied()
            }
        }
    };
}

/// The bytes that were written, and the policies, each of which is written once.
#[derive(Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    policies: Vec<Policy>,
    /// The places of the policies of a name: those of a limit's tiers have one.
    places: SortedMap<Vec<usize>>,
}

/// The bytes that are left to be read, and the policies.
pub(super) struct BytesReader<'a> {
    bytes: &'a [u8],
    policies: Vec<Arc<Policy>>,
    /// The feature without which a value cannot be read.
    lacks: Option<&'static str>,
}

/// The bytes of a value: the checksum, the policies, and then what refers to them.
pub(super) fn to_bytes(value: &impl Bytes) -> Vec<u8> {
    let (mut body, mut policies) = (Writer::default(), Writer::default());
    value.write(&mut body);
    body.policies.iter().map(PolicyParts::of).collect::<Vec<_>>().write(&mut policies);
    let bytes = [policies.bytes, body.bytes].concat();
    [&checksum(&bytes)[..], &bytes].concat()
}

/// The value that has these bytes.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid) if they are damaged, or another version of this library wrote them.
pub(super) fn from_bytes<T: Bytes>(bytes: &[u8]) -> Result<T, Error> {
    let mut from = BytesReader { bytes, policies: Vec::new(), lacks: None };
    read(&mut from).ok_or_else(|| {
        if let Some(feature) = from.lacks {
            return Error::invalid(format!("rules: they need the feature {feature:?} of tidegate-core; enable it"));
        }
        Error::invalid(concat!(
            "rules: these bytes are damaged, or another version than ",
            env!("CARGO_PKG_VERSION"),
            " wrote them; write them again, with the version of tidegate-core that reads them"
        ))
    })
}

fn read<T: Bytes>(from: &mut BytesReader<'_>) -> Option<T> {
    let (found, bytes) = from.bytes.split_at_checked(CHECKSUM_LEN)?;
    if found != checksum(bytes) {
        return None;
    }
    from.bytes = bytes;
    for parts in Vec::<PolicyParts>::read(from)? {
        from.policies.push(Arc::new(parts.join().ok()?));
    }
    T::read(from).filter(|_| from.bytes.is_empty())
}

/// Also of the version, which decides what the bytes mean.
fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    let hash = sha256(&[env!("CARGO_PKG_VERSION").as_bytes(), bytes].concat());
    std::array::from_fn(|place| hash[place])
}

impl BytesReader<'_> {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }
}

impl Bytes for u8 {
    fn write(&self, to: &mut Writer) {
        to.bytes.push(*self);
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        from.take(1).map(|byte| byte[0])
    }
}

impl Bytes for u64 {
    fn write(&self, to: &mut Writer) {
        leb128::put(&mut to.bytes, *self);
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        leb128::take(&mut from.bytes)
    }
}

impl Bytes for usize {
    fn write(&self, to: &mut Writer) {
        // No machine has more bits.
        (*self as u64).write(to);
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        u64::read(from)?.try_into().ok()
    }
}

impl Bytes for bool {
    fn write(&self, to: &mut Writer) {
        u8::from(*self).write(to);
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        Some(u8::read(from)? == 1)
    }
}

impl Bytes for String {
    fn write(&self, to: &mut Writer) {
        self.len().write(to);
        to.bytes.extend(self.as_bytes());
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        let length = usize::read(from)?;
        str::from_utf8(from.take(length)?).ok().map(Into::into)
    }
}

/// Implements [`Bytes`] for a type as the bytes of another.
macro_rules! bytes_as {
    ($($type:ty as $other:ty: $to:expr, $from:expr;)+) => { $(
        impl Bytes for $type {
            fn write(&self, to: &mut Writer) {
                let other: fn(&$type) -> $other = $to;
                other(self).write(to);
            }

            fn read(from: &mut BytesReader<'_>) -> Option<Self> {
                let this: fn($other) -> Option<$type> = $from;
                this(<$other>::read(from)?)
            }
        }
    )+ };
}

bytes_as! {
    Box<str> as String: |text| (&**text).into(), |text| Some(text.into());
    Arc<str> as String: |text| (&**text).into(), |text| Some(text.into());
    Key as String: |key| key.as_str().into(), |text| Key::from_text(&text);
    Millis as u64: |span| span.get(), |span| Some(Self::new(span));
    NonZero<u8> as u8: |number| number.get(), NonZero::new;
    Policy as Arc<Policy>: |policy| Arc::new(policy.clone()), |policy| Some(Policy::clone(&policy));
}

/// Its place among the policies.
impl Bytes for Arc<Policy> {
    fn write(&self, to: &mut Writer) {
        let places = to.places.get_or_default(self.name());
        let known = places.iter().copied().find(|place| to.policies[*place] == **self);
        let place = known.unwrap_or_else(|| {
            places.push(to.policies.len());
            to.policies.push(Policy::clone(self));
            to.policies.len() - 1
        });
        place.write(to);
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        let place = usize::read(from)?;
        from.policies.get(place).cloned()
    }
}

impl<T: Bytes> Bytes for Option<T> {
    fn write(&self, to: &mut Writer) {
        self.is_some().write(to);
        if let Some(value) = self {
            value.write(to);
        }
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        Some(if bool::read(from)? { Some(T::read(from)?) } else { None })
    }
}

impl<T: Bytes> Bytes for Vec<T> {
    fn write(&self, to: &mut Writer) {
        self.len().write(to);
        self.iter().for_each(|value| value.write(to));
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        // Each takes a byte at least, so no number of them takes more memory than the bytes are long.
        (0..usize::read(from)?).map(|_| T::read(from)).collect()
    }
}

impl<T: Bytes> Bytes for Box<[T]> {
    fn write(&self, to: &mut Writer) {
        self.len().write(to);
        self.iter().for_each(|value| value.write(to));
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        Vec::read(from).map(Into::into)
    }
}

impl<T: Bytes + Copy + Default, const N: usize> Bytes for [T; N] {
    fn write(&self, to: &mut Writer) {
        self.iter().for_each(|value| value.write(to));
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::read(from)?;
        }
        Some(values)
    }
}

impl<A: Bytes, B: Bytes> Bytes for (A, B) {
    fn write(&self, to: &mut Writer) {
        self.0.write(to);
        self.1.write(to);
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        Some((A::read(from)?, B::read(from)?))
    }
}

impl Bytes for Quota {
    fn write(&self, to: &mut Writer) {
        String::from(self.name()).write(to);
        String::from(self.dimension()).write(to);
        self.rule().number().write(to);
        self.rule().parameters().write(to);
        self.warns_at().collect::<Vec<u8>>().write(to);
        #[cfg(feature = "calendar")]
        self.calendar().cloned().write(to);
        #[cfg(not(feature = "calendar"))]
        false.write(to);
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        let (name, dimension) = (String::read(from)?, String::read(from)?);
        let (number, parameters, warn_at) = (u8::read(from)?, <[u64; 3]>::read(from)?, Vec::<u8>::read(from)?);
        let mut quota = Self::from_parameters(number, parameters).ok()?;
        // The name that a policy gives may be longer than one that a caller gives.
        quota.name_it(name);
        #[cfg(feature = "calendar")]
        if let Some(calendar) = Option::<Calendar>::read(from)? {
            quota = quota.following(calendar);
        }
        #[cfg(not(feature = "calendar"))]
        if bool::read(from)? {
            from.lacks = Some("calendar");
            return None;
        }
        if !warn_at.is_empty() {
            let percents: Vec<u64> = warn_at.into_iter().map(u64::from).collect();
            quota = quota.warn_at(percents).ok()?;
        }
        if dimension.is_empty() { Some(quota) } else { quota.by_all(dimension.split(PART_MARK)).ok() }
    }
}

/// Its unit's name, its zone's and its anchor.
#[cfg(feature = "calendar")]
impl Bytes for Calendar {
    fn write(&self, to: &mut Writer) {
        for text in [self.every().name(), self.zone_name(), &self.anchor_text()] {
            String::from(text).write(to);
        }
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        let (every, zone, anchor) = (String::read(from)?, String::read(from)?, String::read(from)?);
        Self::new(Every::of_name(&every).ok()?).zone(&zone).ok()?.anchor(&anchor).ok()
    }
}

impl Bytes for Host {
    fn write(&self, to: &mut Writer) {
        let (kind, text) = match self {
            Self::Any => (0, ""),
            Self::Exact(host) => (1, &**host),
            Self::Below(domain) => (2, &**domain),
        };
        u8::write(&kind, to);
        String::from(text).write(to);
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        Some(match (u8::read(from)?, Bytes::read(from)?) {
            (0, _) => Self::Any,
            (1, host) => Self::Exact(host),
            (2, domain) => Self::Below(domain),
            _ => return None,
        })
    }
}

bytes_of_fields!(PolicyParts { name, quotas, scopes, group, place_by_key, charge_denied });
bytes_of_fields!(Path { segments, is_prefix, written });
bytes_of_fields!(Pattern { host, path, methods, headers, score_below });
bytes_of_fields!(Responses { format, spread, extra, payment_required });
bytes_of_fields!(ExtraFields { draft_6, retry_after_ms });
bytes_of_fields!(Lease { slice, lifetime, deadline, in_background, grace });
bytes_of_variants!(OnFailure { Open, Closed });
bytes_of_variants!(BodyFormat { Json, Problem });
