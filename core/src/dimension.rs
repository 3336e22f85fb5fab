//! Dimensions of a policy, and the keys of a request in them.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;
use core::ops::Range;

use crate::quota::PART_MARK;
use crate::small_vec::SmallVec;
use crate::{Error, Key, Policy, Quota, Rule};

/// The id of a row with a balance alone, without its scope: what the name of its place has, too.
const BALANCE: &str = "ba0";

/// The quotas of a policy that count by the same key; see [`Quota::by`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dimension {
    name: Box<str>,
    first: usize,
    count: usize,
    id: Box<str>,
    /// The first 64 bits of the id's SHA-256.
    #[cfg(feature = "std")]
    digest: u64,
}

impl Dimension {
    pub(crate) fn new(policy: &str, first: usize, quotas: &[Quota]) -> Self {
        let name = quotas[0].dimension();
        let mut scope = String::from(policy);
        if !name.is_empty() {
            let _ = write!(scope, "@{name}");
        }
        Self::of_scope(scope, first, quotas)
    }

    /// The same dimension with other quotas. With a suffix, it has counts of its own.
    #[cfg(feature = "std")]
    pub(crate) fn with(&self, suffix: &str, quotas: &[Quota]) -> Self {
        Self::of_scope([self.scope(), suffix].concat(), self.first, quotas)
    }

    /// What its id begins with: the policy that counts, and the name.
    pub(crate) fn scope(&self) -> &str {
        self.id.split(':').next().unwrap_or_default()
    }

    /// The name of the policy that counts, which may be one of several that were joined.
    #[cfg(feature = "gate")]
    pub(crate) fn policy(&self) -> &str {
        self.scope().split('@').next().unwrap_or_default()
    }

    pub(crate) fn of_scope(scope: String, first: usize, quotas: &[Quota]) -> Self {
        let mut id = scope;
        for (place, quota) in quotas.iter().enumerate() {
            id.push(if place == 0 { ':' } else { '.' });
            // A stored state keeps its meaning only while these stay the same.
            let (rule, code) = (quota.rule(), quota.rule().code());
            let [_, unit, _] = rule.parameters();
            let _ = match rule {
                Rule::CalendarWindow(window) => write!(id, "{code}{}", window.unit()),
                _ => write!(id, "{code}{unit}"),
            };
        }
        Self {
            name: quotas[0].dimension().into(),
            first,
            count: quotas.len(),
            #[cfg(feature = "std")]
            digest: digest(&id),
            id: id.into(),
        }
    }

    /// The name. Empty for the quotas without a dimension.
    #[must_use]
    pub const fn name(&self) -> &str {
        &self.name
    }

    /// The names of the dimensions whose keys make its key: more than one if its quotas count [by all of them](Quota::by_all).
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.name.split(PART_MARK)
    }

    /// Whether one key makes its key.
    #[cfg(feature = "gate")]
    #[inline]
    pub(crate) fn is_of_one(&self) -> bool {
        !self.name.bytes().any(|byte| byte == PART_MARK as u8)
    }

    /// The part of its storage keys that stands for the policy: see [`Policy::id`]. With a balance, each of its
    /// [rows](Policy::rows) has an id.
    #[must_use]
    pub const fn id(&self) -> &str {
        &self.id
    }

    /// The places of its quotas in [`Policy::quotas`].
    #[must_use]
    pub const fn quotas(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// The same dimension as the first of a policy.
    pub(crate) fn first(&self) -> Self {
        Self { first: 0, ..self.clone() }
    }

    /// The same dimension in a policy with `count` more quotas before it.
    pub(crate) fn moved_by(&self, count: usize) -> Self {
        Self { first: self.first + count, ..self.clone() }
    }

    /// Its rows; see [`Policy::rows`].
    fn rows<'a>(&'a self, quotas: &'a [Quota]) -> impl Iterator<Item = Self> + 'a {
        let mut first = self.first;
        quotas[self.quotas()].chunk_by(|one, next| !is_balance(one) && !is_balance(next)).map(move |part| {
            first += part.len();
            Self::of_scope(self.scope().into(), first - part.len(), part)
        })
    }

    /// A digest of the id, to be hashed further.
    #[cfg(feature = "std")]
    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    /// The storage key of a key in this dimension, if it is not counted for each group.
    fn storage_key(&self, key: &Key) -> String {
        ["tg1:", &self.id, ":", key.as_str()].concat()
    }
}

/// The rows of a policy of these quotas and dimensions.
pub(crate) fn rows(dimensions: &[Dimension], quotas: &[Quota]) -> Box<[Dimension]> {
    match quotas.iter().any(is_balance) {
        true => dimensions.iter().flat_map(|dimension| dimension.rows(quotas)).collect(),
        false => dimensions.into(),
    }
}

pub(crate) fn is_balance(quota: &Quota) -> bool {
    matches!(quota.rule(), Rule::Balance(_))
}

#[cfg(feature = "std")]
fn digest(id: &str) -> u64 {
    let hash = crate::sha256::sha256(id.as_bytes());
    u64::from_le_bytes(core::array::from_fn(|place| hash[place]))
}

/// The keys of a request: one for each dimension of its policy. A `&Key` is the key of a policy's only dimension, and a slice of
/// names and keys has one for each. Names that the policy does not have are ignored.
///
/// ```
/// use tidegate_core::{Check, Key, Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let (second, now) = (Millis::from_secs(1), UnixMillis::new(0));
/// let (alice, acme) = (Key::new("user:alice"), Key::new("tenant:acme"));
/// let one = Policy::new("api", [Quota::token_bucket(10, 10, second)?])?;
/// let check = Check::new(&one, &alice, now);
/// let two = Policy::new("api", [
///     Quota::token_bucket(10, 10, second)?.by("user")?,
///     Quota::token_bucket(1_000, 1_000, second)?.by("tenant")?,
/// ])?;
/// let keys = [("user", &alice), ("tenant", &acme)];
/// let check = Check::new(&two, &keys, now);
/// assert!(check.keys.storage_keys(&two).is_ok());
/// let without_a_tenant = Check::new(&two, &alice, now);
/// assert!(without_a_tenant.keys.storage_keys(&two).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a>(Given<'a>);

#[derive(Clone, Copy, Debug)]
enum Given<'a> {
    Sole(&'a Key),
    Named(&'a [(&'a str, &'a Key)]),
    #[cfg(feature = "gate")]
    Own(&'a [(Box<str>, Key)]),
}

/// The keys of a request for one policy, which a gate has found.
#[cfg(feature = "gate")]
#[derive(Clone, Debug)]
pub(crate) enum OwnKeys {
    /// Of a policy's only dimension.
    One(Key),
    /// Of each dimension.
    Many(Box<[(Box<str>, Key)]>),
}

#[cfg(feature = "gate")]
impl OwnKeys {
    /// The key that `find` returns for each dimension, or its first error.
    #[inline]
    pub(crate) fn new(policy: &Policy, find: impl Fn(&Dimension) -> Result<Key, Error>) -> Result<Self, Error> {
        match policy.dimensions() {
            [dimension] => find(dimension).map(Self::One),
            _ => Self::of_several(policy, &find),
        }
    }

    fn of_several(policy: &Policy, find: &dyn Fn(&Dimension) -> Result<Key, Error>) -> Result<Self, Error> {
        let mut keys: Vec<(Box<str>, Key)> = Vec::with_capacity(policy.dimensions().len());
        for dimension in policy.dimensions() {
            // Dimensions of several policies that were joined may have one name.
            if !keys.iter().any(|(name, _)| **name == *dimension.name()) {
                keys.push((dimension.name().into(), find(dimension)?));
            }
        }
        Ok(Self::Many(keys.into()))
    }

    /// The keys of those dimensions for which `find` returns one.
    pub(crate) fn known(policy: &Policy, find: &dyn Fn(&Dimension) -> Option<Key>) -> Option<Self> {
        if let [dimension] = policy.dimensions() {
            return find(dimension).map(Self::One);
        }
        let named = |dimension: &Dimension| Some((dimension.name().into(), find(dimension)?));
        Some(Self::Many(policy.dimensions().iter().filter_map(named).collect()))
    }

    /// The keys of two policies. `None` if they have different keys in one dimension.
    pub(crate) fn and(&self, policy: &Policy, other: &Self, others: &Policy) -> Option<Self> {
        let mut keys: Vec<(Box<str>, Key)> = Vec::new();
        for (found, policy) in [(self, policy), (other, others)] {
            for dimension in policy.dimensions() {
                let key = if let Self::One(key) = found { key } else { found.as_keys().of(dimension).ok()? };
                match keys.iter().find(|(name, _)| **name == *dimension.name()) {
                    Some((_, known)) if known != key => return None,
                    Some(_) => {}
                    None => keys.push((dimension.name().into(), key.clone())),
                }
            }
        }
        Some(Self::Many(keys.into()))
    }

    /// The key that a quota of the policy counts by.
    pub(crate) fn of_quota(&self, policy: &Policy, quota: &Quota) -> Option<&Key> {
        match self {
            Self::One(key) => Some(key),
            Self::Many(_) => {
                let dimension = policy.dimensions().iter().find(|dimension| dimension.name() == quota.dimension());
                self.as_keys().of(dimension?).ok()
            }
        }
    }

    pub(crate) fn any(&self, is: impl Fn(&Key) -> bool) -> bool {
        match self {
            Self::One(key) => is(key),
            Self::Many(keys) => keys.iter().any(|(_, key)| is(key)),
        }
    }

    pub(crate) const fn as_keys(&self) -> Keys<'_> {
        Keys(match self {
            Self::One(key) => Given::Sole(key),
            Self::Many(keys) => Given::Own(keys),
        })
    }
}

impl<'a> From<&'a Key> for Keys<'a> {
    fn from(key: &'a Key) -> Self {
        Self(Given::Sole(key))
    }
}

impl<'a> From<&'a [(&'a str, &'a Key)]> for Keys<'a> {
    fn from(keys: &'a [(&'a str, &'a Key)]) -> Self {
        Self(Given::Named(keys))
    }
}

impl<'a, const N: usize> From<&'a [(&'a str, &'a Key); N]> for Keys<'a> {
    fn from(keys: &'a [(&'a str, &'a Key); N]) -> Self {
        Self(Given::Named(keys))
    }
}

/// The names of what a store keeps for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageKeys {
    group: Option<String>,
    rows: SmallVec<String>,
}

impl StorageKeys {
    /// The name that all rows begin with, if they can be kept in one place: the storage key of the
    /// [group](Policy::group_by), or of the only dimension. With a balance, it does not depend on the other quotas.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        match (&self.group, self.rows()) {
            (Some(group), _) => Some(group),
            (None, [row]) => Some(row),
            _ => None,
        }
    }

    /// The name of each row, in the order of [`Policy::rows`]. What precedes the first `|` is the name of the place that the row has
    /// to be kept in.
    #[must_use]
    pub fn rows(&self) -> &[String] {
        &self.rows
    }
}

impl<'a> Keys<'a> {
    /// The key of a policy's only dimension.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the policy has several dimensions, or this has no key for the only one.
    #[inline]
    pub fn single(&self, policy: &Policy) -> Result<&'a Key, Error> {
        if let Given::Sole(key) = self.0
            && let [_] = policy.dimensions()
        {
            return Ok(key);
        }
        self.of_only(policy.dimensions())
    }

    #[inline(never)]
    fn of_only(&self, dimensions: &[Dimension]) -> Result<&'a Key, Error> {
        if let [dimension] = dimensions { self.of(dimension) } else { Err(several()) }
    }

    /// The key of a dimension.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if there is none, or more than one.
    pub fn of(self, dimension: &Dimension) -> Result<&'a Key, Error> {
        self.named(dimension.name())
    }

    /// The key of a [row](Policy::rows).
    pub(crate) fn of_row(self, policy: &Policy, row: &Dimension) -> Result<&'a Key, Error> {
        if let [_] = policy.dimensions() { self.single(policy) } else { self.of(row) }
    }

    /// The key of the dimension with this name.
    pub(crate) fn named(self, dimension: &str) -> Result<&'a Key, Error> {
        let keys = match self.0 {
            Given::Sole(_) => return Err(missing(dimension)),
            Given::Named(keys) => keys,
            #[cfg(feature = "gate")]
            Given::Own(keys) => {
                let found = keys.iter().find(|(name, _)| **name == *dimension);
                return found.map(|(_, key)| key).ok_or_else(|| missing(dimension));
            }
        };
        let mut found = keys.iter().filter(|(name, _)| *name == dimension).map(|(_, key)| *key);
        let key = found.next().ok_or_else(|| missing(dimension))?;
        // A caller may give the key of each dimension, and those of joined policies may have one name.
        if found.any(|other| other != key) {
            return Err(Error::invalid(format!("keys: \"{dimension}\" has two keys; give one")));
        }
        Ok(key)
    }

    /// The names of what a store keeps for these keys.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if a dimension has no key, or more than one.
    pub fn storage_keys(self, policy: &Policy) -> Result<StorageKeys, Error> {
        if policy.is_placed_by_key() {
            return self.placed_by_key(policy);
        }
        if let ([row], Ok(key)) = (policy.rows(), self.single(policy)) {
            return Ok(StorageKeys { group: None, rows: SmallVec::one(row.storage_key(key)) });
        }
        let group = match (policy.group(), policy.dimensions()) {
            (Some(group), _) => Some((group, self.of(group)?)),
            (None, [dimension]) => Some((dimension, self.single(policy)?)),
            _ => None,
        };
        let group = group.map(|(group, key)| {
            (group, if policy.has_balance() { balance_place(group, key) } else { group.storage_key(key) })
        });
        let mut rows = Vec::with_capacity(policy.rows().len());
        for row in policy.rows() {
            let key = self.of_row(policy, row)?;
            let is_balance = policy.is_balance_row(row);
            rows.push(match &group {
                Some((group, place)) if group.name() == row.name() && policy.has_balance() => match is_balance {
                    true => place.clone(),
                    false => [place, "|", row.id()].concat(),
                },
                Some((group, place)) if group.name() == row.name() => place.clone(),
                Some((_, place)) => [place, "|", row.id(), ":", key.as_str()].concat(),
                // Those of a dimension are in one place, alone and in a policy of several.
                None if policy.is_beside_balance(row) => [&balance_place(row, key), "|", row.id()].concat(),
                None => row.storage_key(key),
            });
        }
        Ok(StorageKeys { group: group.map(|(_, place)| place), rows: rows.into_iter().collect() })
    }

    /// The same for a [`Policy::place_by_key`], whose dimensions have one key.
    fn placed_by_key(self, policy: &Policy) -> Result<StorageKeys, Error> {
        let first = &policy.dimensions()[0];
        let key = if let [_] = policy.dimensions() { self.single(policy)? } else { self.of(first)? }.as_str();
        let place = ["tg1:@", first.name(), ":", key].concat();
        let name = |row: &Dimension| [&place, "|", row.id()].concat();
        let rows = policy.rows().iter().map(name).collect();
        Ok(StorageKeys { group: Some(place), rows })
    }
}

/// Where the rows of a key are that is counted with a balance: the name of the balance's row, if it counts by this key.
fn balance_place(dimension: &Dimension, key: &Key) -> String {
    ["tg1:", dimension.scope(), ":", BALANCE, ":", key.as_str()].concat()
}

fn missing(dimension: &str) -> Error {
    Error::invalid(format!("keys: the dimension \"{dimension}\" has no key; give one for each dimension"))
}

fn several() -> Error {
    Error::invalid("keys: the policy has several dimensions; give a key for each, with its name")
}
