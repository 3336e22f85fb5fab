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
    /// The spread of values, of which there must be one.
    pub(super) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let [min, max] = [sorted[0], sorted[sorted.len() - 1]];
        let [low, high] = [(sorted.len() - 1) / 2, sorted.len() / 2].map(|place| sorted[place]);
        Self { median: f64::midpoint(low, high), min, max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_and_both_ends() {
        let spread = |median, min, max| Spread { median, min, max };
        assert_eq!(Spread::of(&[3.0, 1.0, 9.0]), spread(3.0, 1.0, 9.0));
        assert_eq!(Spread::of(&[4.0, 1.0, 9.0, 2.0]), spread(3.0, 1.0, 9.0));
        assert_eq!(Spread::of(&[7.0]), spread(7.0, 7.0, 7.0));
    }
}
