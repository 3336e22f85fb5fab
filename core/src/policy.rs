//! Policies, validated at construction.

#[cfg(feature = "std")]
mod current;
#[cfg(any(feature = "gate", feature = "serde"))]
pub(crate) mod fields;
#[cfg(feature = "std")]
mod parts;
#[cfg(feature = "serde")]
mod serde;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::dimension::{Dimension, is_balance, rows};
use crate::headers::policy_field;
use crate::quota::{Quota, Rule, checked_name};
use crate::quoted_text::Quoted;
#[cfg(feature = "std")]
use crate::{Decision, Origin};
use crate::{Error, Millis, UnixMillis};

#[cfg(feature = "std")]
pub(crate) use self::current::CurrentPolicies;
#[cfg(feature = "std")]
pub use self::parts::PolicyParts;

/// One to eight quotas that are decided together, all or nothing. If one of them denies, none is charged.
///
/// ```
/// use tidegate_core::{Millis, Policy, Quota};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let policy = Policy::new("api", [
///     Quota::token_bucket(20, 10, Millis::from_secs(1))?.named("burst")?,
///     Quota::fixed_window(10_000, Millis::from_secs(86_400))?.named("daily")?,
/// ])?;
/// assert_eq!(policy.id(), "api:tb1000.fw86400000");
/// # Ok(())
/// # }
/// ```
///
/// # Dimensions
/// Quotas may count by different keys: see [`Quota::by`]. They are still decided in one step, in one round trip.
///
/// A store that has to keep all that it decides on in one place, such as a Durable Object or a slot of a Redis cluster,
/// needs to know which place: [`Policy::group_by`] names the dimension whose key selects it. The keys of the other dimensions
/// are then counted for each group. Without a group, a policy of several dimensions needs a store that has everything in one
/// place.
///
/// ```
/// use tidegate_core::{Check, Key, LimiterExt, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// # pollster::block_on(async {
/// let policy = Policy::new("api", [
///     Quota::token_bucket(10, 10, Millis::from_secs(1))?.by("user")?,
///     Quota::fixed_window(1_000, Millis::from_secs(60))?.by("tenant")?,
/// ])?.group_by("tenant")?;
/// let (limiter, now) = (MemoryLimiter::new(), UnixMillis::new(0));
/// let (alice, bob, acme) = (Key::new("user:alice"), Key::new("user:bob"), Key::new("tenant:acme"));
/// let by_alice = [("user", &alice), ("tenant", &acme)];
/// assert!(limiter.check(Check::new(&policy, &by_alice, now).cost(10)).await?.is_allowed());
/// // The denial of one user does not charge the tenant.
/// let denied = limiter.check(Check::new(&policy, &by_alice, now)).await?;
/// assert_eq!(policy.quotas()[denied.binding_index()].dimension(), "user");
/// let by_bob = limiter.check(Check::new(&policy, &[("user", &bob), ("tenant", &acme)], now)).await?;
/// assert_eq!(by_bob.quotas()[1].remaining(), Some(1_000 - 11));
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    name: Box<str>,
    quotas: Box<[Quota]>,
    dimensions: Box<[Dimension]>,
    rows: Box<[Dimension]>,
    /// The dimension whose key selects where the others are counted.
    group: Option<usize>,
    /// Whether all is stored at a place that the key alone selects.
    place_by_key: bool,
    charge_denied: bool,
    has_slots: bool,
    /// Until when its calendar windows are known.
    known_until: UnixMillis,
    /// The place of the balance.
    balance: Option<usize>,
    id: Box<str>,
    /// The value of the field `ratelimit-policy`.
    field: Box<str>,
    /// The longest time that any charge has an effect.
    #[cfg(feature = "std")]
    retention: Millis,
}

impl Policy {
    /// The largest number of quotas in a policy.
    pub const MAX_QUOTAS: usize = 8;

    /// Creates a policy. An unnamed quota gets the policy's name, followed by its position if there are several quotas.
    ///
    /// Quotas of one dimension are put side by side, in the order of each dimension's first quota. A concurrency limit that
    /// returns the cost comes first, a balance comes after the others of its dimension, right after what it covers, and a penalty is the
    /// last of its dimension, because they depend on the others.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for no quota or more than eight, two quotas of one name, a policy name that
    /// is not 1 to 32 of the characters `a-z A-Z 0-9 - _ .`, a penalty without another quota of its dimension, two penalties
    /// of one dimension, two concurrency limits that return the cost, and one of them in a policy of several dimensions, two balances, a
    /// balance beside a concurrency limit that returns the cost, and a balance that covers but does not come right after a
    /// fixed window, a token bucket or a calendar window of its dimension.
    pub fn new(name: &str, quotas: impl IntoIterator<Item = Quota>) -> Result<Self, Error> {
        Self::of(name, quotas.into_iter().collect())
    }

    fn of(name: &str, mut quotas: Vec<Quota>) -> Result<Self, Error> {
        let policy_name = checked_name("name", name)?;
        let count = quotas.len();
        if count == 0 || count > Self::MAX_QUOTAS {
            return Err(Error::invalid(format!(
                "quotas: {count} is out of range; write 1 to {} quotas",
                Self::MAX_QUOTAS
            )));
        }
        for place in 0..count {
            if quotas[place].is_unnamed() {
                let name = if count == 1 { name.to_string() } else { format!("{name}-{}", place + 1) };
                quotas[place].name_it(name);
            }
            if let Some(first) = quotas[..place].iter().position(|quota| quota.name() == quotas[place].name()) {
                return Err(Error::invalid(format!(
                    "quotas[{place}].name: \"{}\" is the name of quotas[{first}] already; write another",
                    quotas[place].name()
                )));
            }
            fits_beside(&quotas, place)?;
            balance_fits_beside(&quotas, place)?;
        }
        let mut in_order = Vec::with_capacity(count);
        for quota in quotas {
            place(&mut in_order, quota);
        }
        let (mut dimensions, mut id) = (Vec::new(), String::new());
        let mut first = 0;
        for quotas in in_order.chunk_by(|a, b| a.dimension() == b.dimension()) {
            let dimension = Dimension::new(name, first, quotas);
            if first > 0 {
                id.push('+');
            }
            id.push_str(dimension.id());
            first += quotas.len();
            dimensions.push(dimension);
        }
        Ok(Self::derived(policy_name, id.into(), dimensions.into(), in_order.into()))
    }

    /// A policy with what follows from its quotas.
    fn derived(name: Box<str>, id: Box<str>, dimensions: Box<[Dimension]>, quotas: Box<[Quota]>) -> Self {
        Self {
            #[cfg(feature = "std")]
            retention: quotas.iter().map(|quota| quota.rule().retention()).max().unwrap_or_default(),
            rows: rows(&dimensions, &quotas),
            has_slots: quotas.iter().any(|quota| matches!(quota.rule(), Rule::Concurrency(_))),
            known_until: known_until(&quotas),
            balance: quotas.iter().position(is_balance),
            field: policy_field(&quotas),
            group: None,
            place_by_key: false,
            charge_denied: false,
            name,
            id,
            dimensions,
            quotas,
        }
    }

    /// This policy with another id, and with other dimensions and quotas.
    fn with(&self, id: Box<str>, dimensions: Box<[Dimension]>, quotas: Box<[Quota]>) -> Self {
        let Self { group, place_by_key, charge_denied, .. } = *self;
        Self { group, place_by_key, charge_denied, ..Self::derived(self.name.clone(), id, dimensions, quotas) }
    }

    /// Joins policies into one that decides all their quotas in one step, all or nothing. Each keeps its own counts: a request
    /// of the joined policy and one of `policies` use the same ones.
    ///
    /// The name is their names, joined by `+`. The dimensions are all of theirs, so stores treat the result as a policy of
    /// several dimensions. Quotas of different policies that count by the same key take it under the same name.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for no policy or one that occurs twice, more than eight quotas, two quotas of one
    /// name, policies of which only some charge denials, one with a [group](Self::group_by), a concurrency limit that returns
    /// the cost, and two balances.
    ///
    /// ```
    /// use tidegate_core::{Check, Key, LimiterExt, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// # pollster::block_on(async {
    /// let login = Policy::new("login", [Quota::fixed_window(5, Millis::from_secs(60))?.by("ip")?])?;
    /// let site = Policy::new("site", [Quota::fixed_window(100, Millis::from_secs(60))?.by("ip")?])?;
    /// let both = Policy::join([&login, &site])?;
    /// let (limiter, key, now) = (MemoryLimiter::new(), Key::new("ip:192.0.2.1"), UnixMillis::new(0));
    /// let keys = [("ip", &key)];
    /// limiter.check(Check::new(&both, &keys, now)).await?;
    /// assert_eq!(limiter.check(Check::new(&site, &keys, now)).await?.binding().remaining(), Some(98));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn join<'a>(policies: impl IntoIterator<Item = &'a Self>) -> Result<Self, Error> {
        let mut policies = policies.into_iter();
        let mut joined = policies.next().ok_or_else(|| Error::invalid("policies: none; write at least one"))?.clone();
        for policy in policies {
            joined = joined.and(policy)?;
        }
        Ok(joined)
    }

    fn and(self, other: &Self) -> Result<Self, Error> {
        let names = format!("\"{}\" and \"{}\"", self.name, other.name);
        let count = self.quotas.len() + other.quotas.len();
        if count > Self::MAX_QUOTAS {
            return Err(Error::invalid(format!(
                "policies: {names} have {count} quotas; at most {} decide together",
                Self::MAX_QUOTAS
            )));
        }
        if self.charge_denied != other.charge_denied {
            return Err(Error::invalid(format!(
                "policies: only one of {names} charges denials; write charge_denied for both or neither"
            )));
        }
        if self.group.is_some() || other.group.is_some() {
            return Err(Error::invalid(format!("policies: one of {names} has a group; leave out group_by")));
        }
        let first = self.quotas.len();
        let mut quotas = self.quotas.into_vec();
        for quota in &other.quotas {
            if quotas.iter().any(|known| known.name() == quota.name()) {
                return Err(Error::invalid(format!(
                    "policies: two quotas are named \"{}\"; write different names",
                    quota.name()
                )));
            }
            quotas.push(quota.clone());
        }
        if quotas.iter().any(returns_cost) {
            return Err(Error::invalid("policies: returns_cost needs a policy of its own; leave it out"));
        }
        if quotas.iter().filter(|quota| is_balance(quota)).count() > 1 {
            return Err(Error::invalid(format!(
                "policies: {names} have a balance each, and one balance pays for a request; leave one out"
            )));
        }
        let mut dimensions = self.dimensions.into_vec();
        dimensions.extend(other.dimensions.iter().map(|dimension| dimension.moved_by(first)));
        let name = [&self.name, "+", &other.name].concat();
        let id = [&self.id, "+", &other.id].concat();
        Ok(Self {
            place_by_key: self.place_by_key && other.place_by_key,
            charge_denied: self.charge_denied,
            ..Self::derived(name.into(), id.into(), dimensions.into(), quotas.into())
        })
    }

    /// Sets whether denied requests are charged, so that a client that keeps retrying stays denied. Off by default.
    ///
    /// A denied request is then charged like an admitted one, up to each quota's limit. A request that is
    /// [`NeverAdmissible`](crate::Status::NeverAdmissible) is never charged.
    #[must_use]
    pub fn charge_denied(mut self, yes: bool) -> Self {
        self.charge_denied = yes;
        self
    }

    /// Names the dimension whose key selects where all others are counted; see [Dimensions](Self#dimensions).
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if no quota counts by this dimension.
    pub fn group_by(mut self, dimension: &str) -> Result<Self, Error> {
        let found = self.dimensions.iter().position(|known| known.name() == dimension);
        self.group = Some(found.ok_or_else(|| {
            Error::invalid(format!("group_by: no quota counts by {}; write the dimension of one", Quoted(dimension)))
        })?);
        Ok(self)
    }

    /// The same policy with counts of its own, whose names have a suffix.
    #[cfg(feature = "std")]
    pub(crate) fn with_own_counts(&self, suffix: &str) -> Self {
        let of = |dimension: &Dimension| dimension.with(suffix, &self.quotas[dimension.quotas()]);
        let id = [&self.id, suffix].concat();
        self.with(id.into(), self.dimensions.iter().map(of).collect(), self.quotas.clone())
    }

    /// The same policy with `part / of` of each limit and rate, rounded down, but limits of at least `least`. `None` if a limit
    /// of it would be zero.
    #[cfg(feature = "std")]
    pub(crate) fn share(&self, part: u64, of: u64, least: u64) -> Option<Self> {
        let mut quotas = Vec::with_capacity(self.quotas.len());
        for quota in &self.quotas {
            quotas.push(quota.share(part, of, least)?);
        }
        let of = |dimension: &Dimension| dimension.with("", &quotas[dimension.quotas()]);
        let dimensions = self.dimensions.iter().map(of).collect();
        Some(self.with(self.id.clone(), dimensions, quotas.into()))
    }

    /// The same policy with other limits of some quotas, by their places, and the same stored state.
    #[cfg(feature = "gate")]
    pub(crate) fn numbered(&self, limits: &[(usize, u64)]) -> Result<Self, Error> {
        let mut quotas = self.quotas.clone();
        for (place, limit) in limits {
            quotas[*place] = quotas[*place].numbered(*limit)?;
        }
        Ok(self.with(self.id.clone(), self.dimensions.clone(), quotas))
    }

    /// The same policy with the calendar windows of an instant. While the windows last that it has, it is returned as it is, which takes no
    /// allocation. So call it before each check, as a gate does; see [`Quota::calendar_window`].
    ///
    /// A policy without a calendar is always returned as it is. So is one at an instant beyond the year 9998.
    ///
    /// ```
    /// use tidegate_core::{Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("api", [Quota::fixed_window(5, Millis::from_secs(1))?])?;
    /// assert_eq!(*policy.at(UnixMillis::new(1_800_000_000_000)), policy);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn at(&self, now: UnixMillis) -> Cow<'_, Self> {
        #[cfg(feature = "calendar")]
        if self.has_calendars() {
            let mut changed = None;
            for (place, quota) in self.quotas.iter().enumerate() {
                if let Some(found) = quota.at(now) {
                    changed.get_or_insert_with(|| self.quotas.clone())[place] = found;
                }
            }
            if let Some(quotas) = changed {
                return Cow::Owned(self.with(self.id.clone(), self.dimensions.clone(), quotas));
            }
        }
        let _ = now;
        Cow::Borrowed(self)
    }

    /// Whether a quota follows a calendar.
    #[cfg(feature = "std")]
    pub(crate) fn has_calendars(&self) -> bool {
        self.known_until < UnixMillis::MAX
    }

    /// Checks that it knows the calendar windows of an instant.
    #[inline]
    pub(crate) fn covers(&self, now: UnixMillis) -> Result<(), Error> {
        if now < self.known_until || !self.quotas.iter().any(|quota| matches!(quota.rule(), Rule::CalendarWindow(_))) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "policy {}: now, {now}, lies beyond its calendar windows, which end at {}; check by Policy::at(now)",
            Quoted(&self.name),
            self.known_until
        )))
    }

    /// Stores what is counted at a place that the key alone selects, with the counts of other policies of the same key. So
    /// a store that decides on one place at a time, such as a Durable Object, can decide on a [joined](Self::join) policy.
    ///
    /// The counts of a policy with this setting are not those of the same policy without it.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the quotas count by the keys of several dimensions.
    pub fn place_by_key(mut self) -> Result<Self, Error> {
        if self.dimensions.iter().any(|other| other.name() != self.dimensions[0].name()) {
            let message = "place_by_key: the quotas count by several keys; write group_by";
            return Err(Error::invalid(message));
        }
        self.place_by_key = true;
        Ok(self)
    }

    /// Whether a request of this cost fits into the unused quotas.
    #[cfg(feature = "std")]
    pub(crate) fn can_hold(&self, cost: u64) -> bool {
        self.quotas.iter().enumerate().all(|(place, quota)| match quota.rule() {
            // One request takes one slot, whatever it costs.
            Rule::Concurrency(_) | Rule::Penalty(_) => true,
            // What it covers has its limit, too.
            Rule::Balance(rule) if rule.covers() => true,
            rule => match self.quotas.get(place + 1).map(Quota::rule) {
                Some(Rule::Balance(balance)) if balance.covers() => cost <= rule.most() + balance.max(),
                _ => cost <= rule.limit(),
            },
        })
    }

    /// The highest part of a limit that a key of this decision has reached, of those at which its quotas [warn](Quota::warn_at), in percent.
    /// 100 for a denial. `None` below all of them, and if the counts are not the store's: those of a fallback are of a share.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn level(&self, decision: &Decision) -> Option<u8> {
        if !decision.is_allowed() {
            return Some(100);
        }
        if decision.origin() != Origin::Store {
            return None;
        }
        let all = self.quotas.iter().zip(decision.quotas());
        // To find what remains takes a division.
        let warning = all.filter(|(quota, _)| !quota.warn_at_percents().is_empty());
        warning.filter_map(|(quota, status)| quota.warn_at_percents().level(status.limit(), status.remaining()?)).max()
    }

    /// Whether a quota warns that a balance covers: how much of a request each has paid is not told.
    #[cfg(any(feature = "gate", feature = "serde"))]
    pub(crate) fn warns_of_what_is_covered(&self) -> bool {
        let covers = |quota: &Quota| matches!(quota.rule(), Rule::Balance(rule) if rule.covers());
        self.quotas.windows(2).any(|pair| !pair[0].warn_at_percents().is_empty() && covers(&pair[1]))
    }

    /// Whether a quota warns.
    #[cfg(any(feature = "gate", feature = "serde"))]
    pub(crate) fn warns(&self) -> bool {
        self.quotas.iter().any(|quota| !quota.warn_at_percents().is_empty())
    }

    /// Whether one key selects where all is stored.
    pub(crate) const fn has_place(&self) -> bool {
        self.dimensions.len() == 1 || self.group.is_some() || self.place_by_key
    }

    pub(crate) const fn is_placed_by_key(&self) -> bool {
        self.place_by_key
    }

    /// The policy's name.
    #[must_use]
    pub const fn name(&self) -> &str {
        &self.name
    }

    /// The quotas; see [`Policy::new`] for their order.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// The dimensions, in the order of the quotas.
    #[must_use]
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// The quotas whose states are stored together, in their order: those of a dimension. But a
    /// [balance](crate::algorithm::Balance) has a row of its own, and so has a penalty after it. So a change of the quotas beside a
    /// balance leaves what was granted.
    ///
    /// ```
    /// use tidegate_core::{Key, Keys, Millis, Policy, Quota};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let day = Millis::from_secs(86_400);
    /// let policy = Policy::new("api", [Quota::fixed_window(100, day)?, Quota::balance(10_000)?.covers_excess()?])?;
    /// assert_eq!(policy.rows().iter().map(|row| row.quotas()).collect::<Vec<_>>(), [0..1, 1..2]);
    /// let names = Keys::from(&Key::new("user:1")).storage_keys(&policy)?;
    /// assert_eq!(names.rows(), ["tg1:api:ba0:user:1|api:fw86400000", "tg1:api:ba0:user:1"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn rows(&self) -> &[Dimension] {
        &self.rows
    }

    /// The place of the balance's row among the [rows](Self::rows).
    #[must_use]
    pub fn balance_row(&self) -> Option<usize> {
        let balance = self.balance?;
        self.rows.iter().position(|row| row.quotas().contains(&balance))
    }

    /// Whether a row is the balance's.
    pub(crate) fn is_balance_row(&self, row: &Dimension) -> bool {
        self.balance.is_some_and(|balance| row.quotas().contains(&balance))
    }

    /// Whether a row is another one of the balance's dimension.
    pub(crate) fn is_beside_balance(&self, row: &Dimension) -> bool {
        let is_of = |dimension: &&Dimension| dimension.quotas().contains(&row.quotas().start);
        !self.is_balance_row(row) && self.dimensions.iter().find(is_of).is_some_and(|own| self.is_balance_row(own))
    }

    /// The policy of one of the [rows](Self::rows) alone, which has the same stored state.
    #[must_use]
    pub fn of_row(&self, place: usize) -> Self {
        self.part(&self.rows()[place])
    }

    /// The dimension of [`Policy::group_by`].
    #[must_use]
    pub fn group(&self) -> Option<&Dimension> {
        self.group.map(|place| &self.dimensions[place])
    }

    /// Whether denied requests are charged.
    #[must_use]
    pub const fn charges_denied(&self) -> bool {
        self.charge_denied
    }

    /// The policy's name and its shape. It changes with an algorithm, a window, a bucket's period or a dimension, because the
    /// stored counts then change their meaning. It does not change with a limit, so that a new limit keeps the usage.
    #[must_use]
    pub const fn id(&self) -> &str {
        &self.id
    }

    /// The value of the field `ratelimit-policy`.
    pub(crate) const fn field(&self) -> &str {
        &self.field
    }

    /// Whether a key can be [blocked](Policy::block): a quota is a penalty, or a block.
    #[must_use]
    pub fn has_blocks(&self) -> bool {
        self.quotas.iter().any(is_penalty)
    }

    /// Whether a quota counts the requests in flight.
    #[must_use]
    pub const fn has_slots(&self) -> bool {
        self.has_slots
    }

    /// Whether a quota is a [balance](crate::algorithm::Balance), to which units can be [granted](Policy::grant).
    #[must_use]
    pub const fn has_balance(&self) -> bool {
        self.balance.is_some()
    }

    pub(crate) const fn balance_place(&self) -> Option<usize> {
        self.balance
    }

    /// The policy of the balance's dimension alone, which has the same stored state. `None` without a balance.
    pub(crate) fn of_balance(&self) -> Option<Self> {
        self.dimensions.iter().find(|dimension| self.is_balance_row(dimension)).map(|own| self.part(own))
    }

    /// The policy by which units are granted, if it is not this one: a balance needs the key of its own dimension only, unless that of a
    /// group says where it is.
    pub(crate) fn grantable(&self) -> Option<Self> {
        let own = if self.dimensions.len() > 1 { self.of_balance() } else { None };
        own.filter(|own| self.group().is_none_or(|group| group.name() == own.dimensions[0].name()))
    }

    /// The name of the policy that has the balance, which may have been [joined](Self::join) with others.
    #[cfg(feature = "gate")]
    pub(crate) fn limit_of_balance(&self) -> Option<&str> {
        self.dimensions.iter().find(|dimension| self.is_balance_row(dimension)).map(Dimension::policy)
    }

    /// The policy of some of the quotas.
    fn part(&self, part: &Dimension) -> Self {
        let quotas = self.quotas[part.quotas()].into();
        Self { group: None, ..self.with(part.id().into(), Box::new([part.first()]), quotas) }
    }

    /// The error of a grant by a policy without a balance.
    pub(crate) fn no_balance(&self) -> Error {
        Error::invalid(format!("grant: the policy {} has no balance; add a quota of this kind", Quoted(&self.name)))
    }

    /// The longest lifetime of a slot.
    pub(crate) fn longest_slot(&self) -> Millis {
        let slots = self.quotas.iter().filter(|quota| matches!(quota.rule(), Rule::Concurrency(_)));
        slots.map(|quota| quota.rule().window()).max().unwrap_or_default()
    }

    /// The longest time from a key's last request until it is unused, with the current limits.
    #[cfg(feature = "std")]
    pub(crate) const fn retention(&self) -> Millis {
        self.retention
    }
}

/// Until when all calendar windows are known. The last instant if there are none.
fn known_until(quotas: &[Quota]) -> UnixMillis {
    let ends = quotas.iter().map(|quota| match quota.rule() {
        Rule::CalendarWindow(rule) => rule.known_until(),
        _ => UnixMillis::MAX,
    });
    ends.min().unwrap_or(UnixMillis::MAX)
}

fn returns_cost(quota: &Quota) -> bool {
    matches!(quota.rule(), Rule::Concurrency(rule) if rule.returns())
}

fn is_penalty(quota: &Quota) -> bool {
    matches!(quota.rule(), Rule::Penalty(_))
}

/// The quotas that a balance can cover: what they admit is a number of units that only grows with time.
const COVERABLE: &[&str; 3] = &["fixed_window", "token_bucket", "calendar_window"];

/// Checks a balance: it knows what it pays only if there is no other, and only a quota with a count leaves an excess.
fn balance_fits_beside(quotas: &[Quota], place: usize) -> Result<(), Error> {
    let quota = &quotas[place];
    let Rule::Balance(rule) = quota.rule() else { return Ok(()) };
    if let Some(first) = quotas[..place].iter().position(is_balance) {
        return Err(Error::invalid(format!(
            "quotas[{place}]: quotas[{first}] is a balance already, and one balance pays for a request; leave one out"
        )));
    }
    if let Some(slots) = quotas.iter().position(returns_cost) {
        return Err(Error::invalid(format!(
            "quotas[{slots}].returns_cost: a slot does not remember what the balance paid; leave this out"
        )));
    }
    if !rule.covers() {
        return Ok(());
    }
    let mut before = quotas[..place].iter().rev();
    let before = before.find(|other| other.dimension() == quota.dimension() && !is_penalty(other));
    let [others @ .., last] = COVERABLE;
    match before.map(|other| other.rule().name()) {
        Some(name) if COVERABLE.contains(&name) => Ok(()),
        found => Err(Error::invalid(format!(
            "quotas[{place}].covers: before it in its dimension is {}; write a {} or a {last} there, or leave this out",
            found.map_or("no quota".into(), |name| format!("a {name}")),
            others.join(", a ")
        ))),
    }
}

/// Checks the quotas that depend on others.
fn fits_beside(quotas: &[Quota], place: usize) -> Result<(), Error> {
    let quota = &quotas[place];
    let beside = |other: &&Quota| other.dimension() == quota.dimension();
    if returns_cost(quota) {
        if let Some(first) = quotas[..place].iter().position(returns_cost) {
            return Err(Error::invalid(format!(
                "quotas[{place}].returns_cost: quotas[{first}] returns the cost already; leave this out"
            )));
        }
        // A slot does not remember its request's keys of other dimensions.
        if !quotas.iter().all(|other| beside(&other)) {
            return Err(Error::invalid(format!(
                "quotas[{place}].returns_cost: the policy has several dimensions; leave this out"
            )));
        }
    }
    if !is_penalty(quota) {
        return Ok(());
    }
    let punishes = matches!(quota.rule(), Rule::Penalty(rule) if rule.punishes());
    if punishes && quotas.iter().filter(beside).all(is_penalty) {
        return Err(Error::invalid(format!(
            "quotas[{place}]: a penalty counts the denials of other quotas, and its dimension has none; write one"
        )));
    }
    if let Some(first) = quotas[..place].iter().filter(beside).find(|other| is_penalty(other)) {
        return Err(Error::invalid(format!(
            "quotas[{place}]: its dimension has a {} already; leave one out: a penalty also blocks by hand",
            first.rule().name()
        )));
    }
    Ok(())
}

/// Adds a quota where it is decided: beside its dimension, before the dimension's penalty and its balance with what that covers.
fn place(quotas: &mut Vec<Quota>, quota: Quota) {
    let mut place = match quotas.iter().rposition(|other| other.dimension() == quota.dimension()) {
        _ if returns_cost(&quota) => 0,
        Some(last) => last + 1,
        None => quotas.len(),
    };
    let is_before = |other: &Quota| other.dimension() == quota.dimension();
    if place > 0 && is_before(&quotas[place - 1]) && is_penalty(&quotas[place - 1]) {
        place -= 1;
    }
    if place > 0 && is_before(&quotas[place - 1]) && !is_penalty(&quota) {
        place -= match quotas[place - 1].rule() {
            Rule::Balance(rule) if rule.covers() => 2,
            Rule::Balance(_) => 1,
            _ => 0,
        };
    }
    quotas.insert(place, quota);
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::{Policy, Quota};
    use crate::algorithm::Concurrency;
    use crate::{Error, Millis, Rule, UnixMillis};

    #[test]
    fn what_a_policy_can_hold_is_what_it_admits_when_unused() -> Result<(), Error> {
        let minute = Millis::from_secs(60);
        let slots = Rule::Concurrency(Concurrency::new(2, minute)?);
        let quotas = [
            Quota::fixed_window(3, minute)?,
            Quota::sliding_window(3, minute)?,
            Quota::sliding_log(3, minute)?,
            Quota::token_bucket(3, 7, minute)?,
            Quota::leaky_bucket(3, 1, minute)?,
            slots.into(),
        ];
        let penalty = Quota::penalty(Millis::new(1), 2, Millis::new(2))?;
        let mut policies = Vec::new();
        for quota in quotas {
            policies.push(Policy::new("one", [quota.clone()])?);
            policies.push(Policy::new("two", [quota, penalty.clone()])?);
        }
        for policy in policies {
            for cost in 0..6 {
                let admits = policy.peek(&policy.initial_state(), UnixMillis::new(1_000_000), cost).is_allowed();
                assert_eq!(policy.can_hold(cost), admits, "{policy:?} {cost}");
            }
        }
        Ok(())
    }
}
