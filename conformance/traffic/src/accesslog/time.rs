//! The times in access logs.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::strtime;
use jiff::tz::Offset;
use tidegate_core::UnixMillis;

/// Reads times. Most requests came within seconds of the one before, so the last times are remembered.
#[derive(Debug, Default)]
pub(super) struct Clock([(String, Option<UnixMillis>); 16]);

impl Clock {
    /// Reads `10/Oct/2000:13:55:36 -0700`, or a time as in RFC 3339. One without a zone is taken as UTC.
    pub(super) fn read(&mut self, text: &str) -> Option<UnixMillis> {
        // Here are the digits of the second in both forms.
        let place = text.as_bytes().get(17..20).map_or(0, |end| end.iter().map(|digit| usize::from(*digit)).sum());
        let (known, read) = &mut self.0[place % 16];
        if known != text {
            known.clear();
            known.push_str(text);
            *read = of_text(text);
        }
        *read
    }
}

fn of_text(text: &str) -> Option<UnixMillis> {
    if text.as_bytes().get(2) == Some(&b'/') {
        let common = strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).and_then(|parsed| parsed.to_timestamp());
        return common.ok().and_then(since_epoch);
    }
    let without_zone = || text.parse::<DateTime>().and_then(|at| Offset::UTC.to_timestamp(at)).ok();
    let timestamp = text.parse::<Timestamp>().ok().or_else(without_zone);
    timestamp.and_then(since_epoch).or_else(|| text.parse::<f64>().ok().and_then(of_number))
}

fn since_epoch(at: Timestamp) -> Option<UnixMillis> {
    u64::try_from(at.as_millisecond()).ok().map(UnixMillis::new)
}

/// Reads the time since the epoch in seconds, milliseconds, microseconds or nanoseconds. Its size tells which: from 1973 to
/// 5138, all of them are in different ranges.
pub(super) fn of_number(number: f64) -> Option<UnixMillis> {
    let ms = match number {
        0.0..1e11 => number * 1e3,
        1e11..1e14 => number,
        1e14..1e17 => number / 1e3,
        1e17..1e20 => number / 1e6,
        _ => return None,
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is positive and below 1e14")]
    let whole = ms.round() as u64;
    Some(UnixMillis::new(whole))
}

/// Such as `2026-11-23 15:20:10`, in UTC.
pub(super) fn shown(at_ms: u64) -> String {
    let timestamp = i64::try_from(at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    timestamp.map_or_else(|| format!("{at_ms} ms"), |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_forms_of_one_instant_are_equal() {
        let mut clock = Clock::default();
        for text in [
            "10/Oct/2000:13:55:36 -0700",
            "10/Oct/2000:20:55:36 +0000",
            "2000-10-10T20:55:36Z",
            "2000-10-10T22:55:36.000+02:00",
            "2000-10-10 20:55:36",
            "971211336",
            "971211336.000",
            "971211336000",
            "971211336000000",
            "971211336000000000",
        ] {
            assert_eq!(clock.read(text), Some(UnixMillis::new(971_211_336_000)), "{text}");
        }
        assert_eq!(clock.read("2000-10-10T20:55:36.789Z"), Some(UnixMillis::new(971_211_336_789)));
        assert_eq!(shown(971_211_336_789), "2000-10-10 20:55:36");
    }

    #[test]
    fn what_is_no_time_is_not_read() {
        let mut clock = Clock::default();
        for text in [
            "",
            "-",
            "32/Oct/2000:13:55:36 -0700",
            "10/Okt/2000:13:55:36 -0700",
            "31/Dec/1969:00:00:00 +0000",
            "-5",
            "NaN",
            "inf",
            "1e300",
        ] {
            assert_eq!(clock.read(text), None, "{text}");
        }
        assert_eq!(shown(u64::MAX), "18446744073709551615 ms");
    }
}
