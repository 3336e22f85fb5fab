//! The accuracy of a limiter, and its bounds.

use core::fmt;

use crate::Millis;

/// The accuracy of a limiter.
///
/// Both bounds apply to one quota and any interval. [`Load::limit`] is then the most that an exact limiter admits in it,
/// [`Rule::maximum`](crate::Rule::maximum).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Accuracy {
    /// Admits exactly as many requests as the reference implementation, at any concurrency.
    Exact,
    /// Admits a number of requests between the floor and the ceiling of its drift.
    Approximate(Drift),
    /// The platform's own limiter. It admits at most limit x locations.
    PerLocation,
}

impl Accuracy {
    /// A stable name: `exact`, `approximate` or `per_location`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Approximate(_) => "approximate",
            Self::PerLocation => "per_location",
        }
    }

    /// Both bounds.
    ///
    /// ```
    /// use tidegate_core::Accuracy;
    /// assert_eq!(Accuracy::PerLocation.drift().ceiling.to_string(), "limit x locations");
    /// ```
    #[must_use]
    pub const fn drift(&self) -> Drift {
        match self {
            Self::Exact => Drift::WITHIN_LIMIT,
            Self::Approximate(drift) => *drift,
            Self::PerLocation => Drift::PER_LOCATION,
        }
    }

    /// The same ceiling, without a least number of admissions.
    #[cfg(feature = "std")]
    pub(crate) const fn without_floor(self) -> Self {
        Self::Approximate(Drift { floor: Floor::NONE, ..self.drift() })
    }

    /// Whether the ceiling is at most the limit at each location.
    #[cfg(feature = "std")]
    pub(crate) const fn is_within_limit_of_each_location(&self) -> bool {
        let drift = self.drift();
        matches!(drift.ceiling, Ceiling::Limit | Ceiling::PerLocation)
            && drift.fallback_percent == 0
            && drift.grace == 0
    }

    /// The most that one quota admits under a load.
    ///
    /// ```
    /// use tidegate_core::{Accuracy, Load};
    /// let load = Load { limit: 60, quota: 60, in_flight: 500, locations: 3 };
    /// assert_eq!(Accuracy::Exact.ceiling(load), 60);
    /// assert_eq!(Accuracy::PerLocation.ceiling(load), 180);
    /// ```
    #[must_use]
    pub fn ceiling(&self, load: Load) -> u64 {
        let drift = self.drift();
        let each = drift.fallback_share(load).saturating_add(drift.grace);
        drift.ceiling.of(load).saturating_add(each.saturating_mul(load.locations))
    }

    /// This limiter admits at least as much as an exact one with the returned limit, under a load; see [`Floor`].
    ///
    /// ```
    /// use tidegate_core::{Accuracy, Drift, Floor, Load};
    /// let load = Load { limit: 100, quota: 100, in_flight: 500, locations: 3 };
    /// let leases = Drift { floor: Floor { held: 10, ..Floor::NOTHING_HELD }, ..Drift::WITHIN_LIMIT };
    /// assert_eq!(Accuracy::Approximate(leases).floor(load), 70);
    /// assert_eq!(Accuracy::PerLocation.floor(load), 100);
    /// ```
    #[must_use]
    pub const fn floor(&self, load: Load) -> u64 {
        load.limit.saturating_sub(self.drift().floor.held.saturating_mul(load.locations))
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = match self {
            Self::Exact => return f.write_str("exact: admitted = limit"),
            Self::Approximate(_) => "approximate",
            Self::PerLocation => "per location",
        };
        let drift = self.drift();
        write!(f, "{class}: {} <= admitted <= {}", drift.floor, drift.ceiling)?;
        if drift.grace > 0 {
            write!(f, " + {} x locations", drift.grace)?;
        }
        match drift.fallback_percent {
            0 => Ok(()),
            percent => write!(f, " + max({percent} % x limit, 1) x locations"),
        }
    }
}

/// The bounds of an approximate limiter.
///
/// ```
/// use tidegate_core::{Accuracy, Ceiling, Drift, Floor, Load};
/// let drift = Drift { ceiling: Ceiling::PerLocation, ..Drift::WITHIN_LIMIT };
/// assert_eq!(drift.ceiling.of(Load { limit: 10, quota: 10, in_flight: 50, locations: 3 }), 30);
/// assert_eq!(Accuracy::Approximate(drift).to_string(), "approximate: limit <= admitted <= limit x locations");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Drift {
    /// The most that is admitted.
    pub ceiling: Ceiling,
    /// The least that is admitted, if enough is requested.
    pub floor: Floor,
    /// What each location admits beyond the ceiling while the store is down, in percent of the limit, but at least 1 of each quota:
    /// see `Fallback`.
    pub fallback_percent: u8,
    /// The units that each location admits of a key before it has heard of it from the store, beyond the ceiling if the key is at its
    /// limit; see [`Lease::grace`](crate::lending::Lease::grace). Locations that ended meanwhile count, too. Buckets repay it; in an
    /// interval over several windows, each window has its own.
    pub grace: u64,
    /// How long a refund, a settlement or a reset by another may go unseen, so that a denial which it would have ended is repeated.
    /// `None` if it is seen at once.
    pub unseen: Option<Millis>,
}

impl Drift {
    /// What each location admits beyond the ceiling while the store is down.
    fn fallback_share(&self, Load { limit, quota, .. }: Load) -> u64 {
        let percent = u64::from(self.fallback_percent);
        // The most may be rounded down: a bucket refills by parts of a unit, and its share does, too.
        let below = limit.saturating_add(1);
        match percent.saturating_mul(quota) {
            0 => 0,
            // A share that is rounded up to 1 is one of `quota` units.
            1..100 => (below / quota).min(limit),
            _ => below.saturating_mul(percent).div_ceil(100).saturating_sub(1),
        }
    }

    /// At most the limit, and no early denials.
    pub const WITHIN_LIMIT: Self =
        Self { ceiling: Ceiling::Limit, floor: Floor::NOTHING_HELD, fallback_percent: 0, grace: 0, unseen: None };

    /// At most the limit at each location, and no early denials.
    pub const PER_LOCATION: Self = Self { ceiling: Ceiling::PerLocation, ..Self::WITHIN_LIMIT };
}

/// The most that an approximate limiter admits. Displays as a formula of [`Load`]'s fields.
///
/// ```
/// use tidegate_core::{Ceiling, Load};
/// let load = Load { limit: 2, quota: 2, in_flight: 2, locations: 3 };
/// assert_eq!((Ceiling::Limit.of(load), Ceiling::PerLocation.of(load), Ceiling::LastWriterWins.of(load)), (2, 6, 5));
/// let twice = Ceiling::Other { formula: "2 x limit", of: |load| load.limit.saturating_mul(2) };
/// assert_eq!((twice.of(load), twice.to_string().as_str()), (4, "2 x limit"));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Ceiling {
    /// The limit.
    Limit,
    /// The limit at each location.
    PerLocation,
    /// What a store admits in which the last writer wins. With a limit `L` and `n` requests in flight, that is at most
    /// `(n + L)! / (n! L!) - 1`.
    ///
    /// A request that read a low count may write last and lower the count again, so the store forgets what was admitted
    /// meanwhile. Only the `n` requests in flight at the first write can have read 0. Each of them can lower the count to 1,
    /// after which up to `n` requests read 1, and so on up to `L`. An exhaustive search of small cases reaches this bound
    /// (`adapters/spin/tests/drift.rs`).
    ///
    /// With one request at a time, the bound is the limit. With a limit of 1, it is `n`. If the store is quiet between bursts,
    /// each burst that admits a request raises the count, and the bound is `limit x in_flight`. If a store shows writes
    /// late, a request is in flight until its write is visible.
    LastWriterWins,
    /// Another bound, of a limiter that Tidegate does not know.
    Other {
        /// The bound for people.
        formula: &'static str,
        /// The bound.
        of: fn(Load) -> u64,
    },
}

impl Ceiling {
    /// Those with a name of their own.
    pub const KNOWN: [Self; 3] = [Self::Limit, Self::PerLocation, Self::LastWriterWins];

    /// The most that is admitted under a load.
    #[must_use]
    pub fn of(&self, load: Load) -> u64 {
        match self {
            Self::Limit => load.limit,
            Self::PerLocation => load.limit.saturating_mul(load.locations),
            Self::LastWriterWins => last_writer_wins(load),
            Self::Other { of, .. } => of(load),
        }
    }

    /// The ceiling as a formula of [`Load`]'s fields.
    #[must_use]
    pub const fn formula(&self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::PerLocation => "limit x locations",
            Self::LastWriterWins => "(in_flight + limit)! / (in_flight! x limit!) - 1",
            Self::Other { formula, .. } => formula,
        }
    }
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.formula())
    }
}

fn last_writer_wins(Load { limit, in_flight, .. }: Load) -> u64 {
    let (few, many) = if limit < in_flight { (limit, in_flight) } else { (in_flight, limit) };
    let mut chosen: u128 = 1;
    for nth in 1..=u128::from(few) {
        // The division is exact: the dividend is a product of `nth` consecutive numbers.
        chosen = chosen * (u128::from(many) + nth) / nth;
        if chosen > u128::from(u64::MAX) {
            return u64::MAX;
        }
    }
    u64::try_from(chosen - 1).unwrap_or(u64::MAX)
}

/// The least that an approximate limiter admits. By every instant, it has admitted as many requests as an exact limiter with
/// the limit `limit - held x locations`, if the key was unused and all requests cost the same.
///
/// ```
/// use tidegate_core::{Floor, Millis};
/// let leases = Floor { held: 20, within: Some(Millis::from_secs(2)) };
/// assert_eq!(leases.to_string(), "limit - 20 x locations (in the first 2000 ms)");
/// assert_eq!(Floor::NOTHING_HELD.to_string(), "limit");
/// assert_eq!(Floor::NONE.to_string(), "0");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// The units that each location may hold unspent, so that the others cannot use them.
    pub held: u64,
    /// How long after a key's first request this holds. `None` means always.
    pub within: Option<Millis>,
}

impl Floor {
    /// No early denials.
    pub const NOTHING_HELD: Self = Self { held: 0, within: None };

    /// No least number.
    pub const NONE: Self = Self { held: u64::MAX, within: None };
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.write_str("0");
        }
        f.write_str("limit")?;
        if self.held > 0 {
            write!(f, " - {} x locations", self.held)?;
        }
        self.within.map_or(Ok(()), |within| write!(f, " (in the first {} ms)", within.get()))
    }
}

/// The variables of a drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The most that an exact limiter admits in the interval.
    pub limit: u64,
    /// The most that it admits at once: the quota's own limit.
    pub quota: u64,
    /// The most requests of one key that are in flight at once.
    pub in_flight: u64,
    /// The locations (PoPs, regions, isolates) that serve them, including those that ended meanwhile.
    pub locations: u64,
}
