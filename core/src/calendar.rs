//! Calendars: where the windows of a [`CalendarWindow`](crate::algorithm::CalendarWindow) begin.

use alloc::boxed::Box;
use alloc::format;
#[cfg(feature = "gate")]
use alloc::string::String;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use std::sync::OnceLock;

use jiff::civil::{Date, DateTime};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp};

use crate::algorithm::CalendarWindow;
use crate::quoted_text::Quoted;
use crate::suggestion::Suggestion;
use crate::{Error, UnixMillis};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// The unit of a [`Calendar`].
///
/// ```
/// use tidegate_core::Every;
/// assert_eq!(Every::Month.name(), "month");
/// assert!(Every::of_name("mounth").unwrap_err().to_string().contains("did you mean \"month\"?"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Every {
    /// 3,600 seconds, from the anchor on.
    Hour,
    /// A day of the zone, which may have 23 or 25 hours.
    Day,
    /// Seven days, from the anchor's day on.
    Week,
    /// A month, from the anchor's day on, or from the last one if the month does not have that.
    Month,
    /// A year, from the anchor's date on.
    Year,
}

impl Every {
    /// All, the shortest first.
    pub const ALL: [Self; 5] = [Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// The name in rules files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// The unit with this name.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) with the nearest name.
    pub fn of_name(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|unit| unit.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name);
            Error::invalid(format!("{} is not a unit of a calendar; {}", Quoted(name), Suggestion::of(name, &known)))
        })
    }
}

/// Cuts time into windows as people do: into hours, days, weeks, months or years of a time zone, from an anchor on.
///
/// The n-th boundary is the anchor and n units, in local time. A month without the anchor's day is cut at its last day, and the ones
/// after it at the anchor's day again. A local time that the clocks skip is taken as much later, and one that they show twice
/// is the earlier of both (RFC 5545). Boundaries are whole minutes. The zones are those of the IANA database that
/// this library was built with.
///
/// ```
/// use tidegate_core::{Calendar, Check, Every, Key, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let billing = Calendar::new(Every::Month).zone("Europe/Berlin")?.anchor("2026-01-31")?;
/// // 15 February 2026, 12:00 UTC, and three months later.
/// let (now, later) = (UnixMillis::new(1_771_156_800_000), UnixMillis::new(1_778_846_400_000));
/// let policy = Policy::new("plan", [Quota::calendar_window(10_000, &billing, 2_000, now)?])?;
/// let (limiter, key) = (MemoryLimiter::new(), Key::new("tenant:acme"));
/// let decision = limiter.decide(Check::new(&policy, &key, now))?;
/// assert_eq!(decision.binding().remaining(), Some(11_999));
/// // A policy knows two windows. Further ones are found by `at`, which returns the same policy while its window lasts.
/// assert!(limiter.decide(Check::new(&policy, &key, later)).is_err());
/// assert!(limiter.decide(Check::new(&policy.at(later), &key, later))?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Calendar {
    every: Every,
    zone: TimeZone,
    anchor: DateTime,
}

impl Calendar {
    /// The default of the anchor: a Monday, and a first of the month and of the year.
    const ANCHOR: DateTime = DateTime::constant(2001, 1, 1, 0, 0, 0, 0);

    /// A calendar in UTC whose boundaries are those of the calendar on the wall: full hours, midnights, Mondays, first days of a month
    /// and of a year.
    #[must_use]
    pub fn new(every: Every) -> Self {
        Self { every, zone: TimeZone::UTC, anchor: Self::ANCHOR }
    }

    /// Sets the time zone, by its name in the IANA database. The default is `UTC`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a name that the database does not have, with the nearest one.
    pub fn zone(mut self, name: &str) -> Result<Self, Error> {
        let found = zones().get(name).ok().filter(|zone| zone.iana_name().is_some_and(|known| known != "Etc/Unknown"));
        self.zone = found.ok_or_else(|| no_zone(name))?;
        Ok(self)
    }

    /// Sets the local time of a boundary: a date such as `2026-01-31`, or with a time such as `2026-01-31T06:00`. The default is
    /// `2001-01-01`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a text that is neither, or a day that does not exist.
    pub fn anchor(mut self, text: &str) -> Result<Self, Error> {
        self.anchor = local_time(text).ok_or_else(|| {
            Error::invalid(format!(
                "{} is not a date; write a date such as \"2026-01-31\", or with a time such as \"2026-01-31T06:00\"",
                Quoted(text)
            ))
        })?;
        Ok(self)
    }

    /// The unit.
    #[must_use]
    pub const fn every(&self) -> Every {
        self.every
    }

    /// The name of the time zone.
    #[must_use]
    pub fn zone_name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// The local time of a boundary, as [`Calendar::anchor`] reads it.
    #[must_use]
    pub fn anchor_text(&self) -> Box<str> {
        let text = self.anchor.to_string();
        let date = self.anchor.time() == jiff::civil::Time::midnight();
        text[..if date { 10 } else { 16 }].into()
    }

    /// The boundary of the window in which an instant lies, and the next two. If the first lies before the epoch, they are the first three
    /// from the epoch on. `None` beyond the year 9998.
    ///
    /// ```
    /// use tidegate_core::{Calendar, Every, UnixMillis};
    /// let day = Calendar::new(Every::Day);
    /// let bounds = day.boundaries(UnixMillis::new(100_000_000)).unwrap();
    /// assert_eq!(bounds.map(UnixMillis::get), [86_400_000, 172_800_000, 259_200_000]);
    /// ```
    #[must_use]
    pub fn boundaries(&self, now: UnixMillis) -> Option<[UnixMillis; 3]> {
        let now = i64::try_from(now.get()).ok()?;
        let (mut place, mut found) = (self.place_before(now)?, [-1; 3]);
        while found[0] < 0 || found[1] <= now {
            let next = self.boundary(place)?;
            place += 1;
            // Two places may share an instant: the clocks of Samoa skipped a day.
            if next > found[2] {
                found = [found[1], found[2], next];
            }
        }
        let instant = |ms: i64| u64::try_from(ms).ok().map(UnixMillis::new);
        Some([instant(found[0])?, instant(found[1])?, instant(found[2])?])
    }

    /// The place of a boundary that lies before an instant, and at most three units before it.
    fn place_before(&self, now: i64) -> Option<i64> {
        if self.every == Every::Hour {
            return Some((now - self.boundary(0)?).div_euclid(HOUR_MS) - 1);
        }
        let local = self.zone.to_datetime(Timestamp::from_millisecond(now).ok()?).date();
        let anchor = self.anchor.date();
        let days = || i64::from((local - anchor).get_days());
        let months = |date: Date| i64::from(date.year()) * 12 + i64::from(date.month());
        Some(
            match self.every {
                Every::Hour | Every::Day => days(),
                Every::Week => days().div_euclid(7),
                Every::Month => months(local) - months(anchor),
                Every::Year => i64::from(local.year()) - i64::from(anchor.year()),
            } - 2,
        )
    }

    /// The instant of a boundary, in milliseconds since the epoch.
    fn boundary(&self, place: i64) -> Option<i64> {
        let (span, elapsed) = match self.every {
            Every::Hour => (Span::new(), place * HOUR_MS),
            Every::Day => (Span::new().try_days(place).ok()?, 0),
            Every::Week => (Span::new().try_weeks(place).ok()?, 0),
            Every::Month => (Span::new().try_months(place).ok()?, 0),
            Every::Year => (Span::new().try_years(place).ok()?, 0),
        };
        let local = self.anchor.checked_add(span).ok()?;
        let instant = self.zone.to_ambiguous_timestamp(local).compatible().ok()?.as_millisecond();
        // Offsets of former centuries have seconds.
        let minutes = instant.div_euclid(MINUTE_MS) + i64::from(instant.rem_euclid(MINUTE_MS) > 0);
        Some(minutes * MINUTE_MS + elapsed)
    }

    /// The rule whose first window is that of an instant.
    pub(crate) fn rule(&self, limit: u64, carry_over: u64, now: UnixMillis) -> Result<CalendarWindow, Error> {
        let bounds = self.boundaries(now);
        let [start, end, next_end] = bounds
            .ok_or_else(|| Error::invalid(format!("now: {now} lies beyond the calendar; give an earlier instant")))?;
        CalendarWindow::new(limit, start, end.since(start), next_end.since(end), carry_over)
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        (self.every, self.zone_name(), self.anchor) == (other.every, other.zone_name(), other.anchor)
    }
}

impl Eq for Calendar {}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.every, self.zone_name(), self.anchor).hash(state);
    }
}

/// The database that this library contains, so that the same version has the same windows on every host.
fn zones() -> &'static TimeZoneDatabase {
    static ZONES: OnceLock<TimeZoneDatabase> = OnceLock::new();
    ZONES.get_or_init(TimeZoneDatabase::bundled)
}

/// An instant in UTC, such as `2026-01-31T05:00Z`.
#[cfg(feature = "gate")]
pub(crate) fn to_the_minute(at: UnixMillis) -> String {
    let time = i64::try_from(at.get()).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| at.to_string(), |time| time.strftime("%Y-%m-%dT%H:%MZ").to_string())
}

fn no_zone(name: &str) -> Error {
    let names: Vec<_> = zones().available().map(|zone| zone.to_string()).collect();
    let known: Vec<&str> = names.iter().map(|name| &**name).collect();
    let near = Suggestion::of(name, &known).nearest().map(|near| format!("did you mean {}? ", Quoted(near)));
    let near = near.unwrap_or_default();
    let write = if near.is_empty() { "write" } else { "Write" };
    Error::invalid(format!(
        "{} is not a time zone; {near}{write} a name of the IANA database, such as \"Europe/Berlin\" or \"UTC\"",
        Quoted(name)
    ))
}

/// Reads `YYYY-MM-DD` or `YYYY-MM-DDTHH:MM`.
fn local_time(text: &str) -> Option<DateTime> {
    let pattern: &[u8] = if text.len() == 10 { b"0000-00-00" } else { b"0000-00-00T00:00" };
    let fits = |(byte, wanted): (u8, &u8)| if *wanted == b'0' { byte.is_ascii_digit() } else { byte == *wanted };
    if text.len() != pattern.len() || !text.bytes().zip(pattern).all(fits) {
        return None;
    }
    let number = |from: usize, to: usize| text.get(from..to).map_or(Ok(0), str::parse::<i16>).ok();
    let small = |from: usize| number(from, from + 2).and_then(|number| i8::try_from(number).ok());
    DateTime::new(number(0, 4)?, small(5)?, small(8)?, small(11)?, small(14)?, 0, 0).ok()
}
