use serde::{Deserialize, Serialize};

/// The median of the rounds, and how far they are apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median. Of an even number of rounds, the mean of both in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// The spread of values. `None` if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let [low, high] = [(sorted.len() - 1) / 2, sorted.len() / 2].map(|place| sorted[place]);
        Some(Self { median: f64::midpoint(low, high), min, max })
    }

    /// The spread of the ratios of each round. `None` if there are no rounds, or a divisor is zero.
    #[must_use]
    pub fn of_ratios(ours: &[f64], theirs: &[f64]) -> Option<Self> {
        if theirs.contains(&0.0) {
            return None;
        }
        Self::of(&ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_and_both_ends() {
        let spread = |median, min, max| Some(Spread { median, min, max });
        assert_eq!(Spread::of(&[3.0, 1.0, 9.0]), spread(3.0, 1.0, 9.0));
        assert_eq!(Spread::of(&[4.0, 1.0, 9.0, 2.0]), spread(3.0, 1.0, 9.0));
        assert_eq!(Spread::of(&[7.0]), spread(7.0, 7.0, 7.0));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_ratio_is_computed_in_each_round() {
        // The machine was twice as slow in the second round, for both. The ratio of the medians would be 1.
        let ratio = Spread::of_ratios(&[10.0, 40.0, 20.0], &[20.0, 40.0, 10.0]);
        assert_eq!(ratio, Some(Spread { median: 1.0, min: 0.5, max: 2.0 }));
        let ratio = Spread::of_ratios(&[10.0, 20.0, 10.0], &[20.0, 40.0, 20.0]);
        assert_eq!(ratio, Some(Spread { median: 0.5, min: 0.5, max: 0.5 }));
        assert_eq!(Spread::of_ratios(&[1.0, 1.0], &[1.0, 0.0]), None);
    }
}
