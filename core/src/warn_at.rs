//! The parts of a limit at which decisions warn.

use alloc::format;

use crate::Error;

/// Parts of a limit, in whole percents, ascending. Each is reached when at least so much of the limit is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct WarnAt(
    /// The first 0 ends it.
    [u8; Self::MOST],
);

impl WarnAt {
    const MOST: usize = 8;

    pub(crate) fn new(percents: &[u64]) -> Result<Self, Error> {
        if percents.is_empty() || percents.len() > Self::MOST {
            let (count, most) = (percents.len(), Self::MOST);
            return Err(Error::invalid(format!("warn_at: {count} percents; write 1 to {most}, such as [80, 100]")));
        }
        let mut found = Self::default();
        let mut before = 0;
        for (place, percent) in percents.iter().enumerate() {
            let number = u8::try_from(*percent).ok().filter(|number| (1..=100).contains(number));
            let Some(number) = number else {
                return Err(Error::invalid(format!(
                    "warn_at: {percent} is out of range; write whole percents from 1 to 100"
                )));
            };
            if number <= before {
                return Err(Error::invalid(format!(
                    "warn_at: {number} comes after {before}; write each once, ascending"
                )));
            }
            found.0[place] = number;
            before = number;
        }
        Ok(found)
    }

    /// Each percent.
    pub(crate) fn percents(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.iter().copied().take_while(|percent| *percent > 0)
    }

    #[cfg(any(feature = "std", feature = "serde"))]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0[0] == 0
    }

    /// The highest that is reached if this remains of a limit.
    #[cfg(feature = "std")]
    pub(crate) fn level(&self, limit: u64, remaining: u64) -> Option<u8> {
        self.percents().take_while(|percent| units(*percent, limit) <= limit.saturating_sub(remaining)).last()
    }

    /// Those that a charge has reached, by what remained of a limit before and after it.
    #[cfg(feature = "gate")]
    pub(crate) fn crossed(&self, limit: u64, before: u64, after: u64) -> impl Iterator<Item = u8> + '_ {
        let [was, is] = [before, after].map(|remaining| limit.saturating_sub(remaining));
        let mut percents = self.percents();
        core::iter::from_fn(move || {
            percents.by_ref().find(|percent| {
                let needed = units(*percent, limit);
                was < needed && needed <= is
            })
        })
    }
}

/// The least number of used units that is this part of a limit: the part, rounded up. No product is larger than the limit times 1.
#[cfg(feature = "std")]
fn units(percent: u8, limit: u64) -> u64 {
    let percent = u64::from(percent);
    limit / 100 * percent + (limit % 100 * percent).div_ceil(100)
}

#[cfg(all(test, feature = "gate"))]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::{WarnAt, units};

    #[test]
    fn a_part_is_rounded_up_for_every_limit() {
        for limit in (1..=1_000_u64).chain([(1 << 51) - 1, 1 << 51]) {
            for percent in 1..=100_u8 {
                let exact = (u128::from(limit) * u128::from(percent)).div_ceil(100);
                assert_eq!(u128::from(units(percent, limit)), exact, "{percent} % of {limit}");
            }
        }
    }

    #[test]
    fn each_charge_crosses_what_lies_between() {
        let at = WarnAt::new(&[50, 80, 100]).unwrap();
        let crossed = |before, after| at.crossed(10, before, after).collect::<Vec<_>>();
        assert_eq!((crossed(10, 6), crossed(6, 5), crossed(5, 4)), (vec![], vec![50], vec![]));
        assert_eq!((crossed(10, 0), crossed(3, 1), crossed(1, 0)), (vec![50, 80, 100], vec![80], vec![100]));
        assert_eq!(
            [10, 6, 5, 3, 2, 1, 0].map(|left| at.level(10, left)),
            [None, None, Some(50), Some(50), Some(80), Some(80), Some(100)]
        );
    }

    #[test]
    fn a_mistake_says_what_to_write() {
        let error = |percents: &[u64]| WarnAt::new(percents).unwrap_err().to_string();
        assert_eq!(error(&[]), "warn_at: 0 percents; write 1 to 8, such as [80, 100]");
        assert_eq!(error(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), "warn_at: 9 percents; write 1 to 8, such as [80, 100]");
        for wrong in [0, 101, 256, u64::MAX] {
            assert_eq!(
                error(&[wrong]),
                format!("warn_at: {wrong} is out of range; write whole percents from 1 to 100")
            );
        }
        assert_eq!(error(&[80, 80]), "warn_at: 80 comes after 80; write each once, ascending");
    }
}
