//! How the values of a line grow along its axis.

use serde::{Deserialize, Serialize};
use tidegate_measured::Unit;

use super::Measurement;

/// How a cost grows: about as `n.powf(exponent)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// What the measurements belong to.
    pub group: String,
    /// What was measured.
    pub name: String,
    /// The axis.
    pub axis: String,
    /// The unit of the values.
    pub unit: Unit,
    /// The first place on the axis and the median there.
    pub first: (u32, f64),
    /// The last one.
    pub last: (u32, f64),
    /// The slope of the straight line through the logarithms of all medians, by least squares. Of a rate, that of its inverse.
    pub exponent: f64,
    /// Whether the last is at most as much more than the first as `n * log n` is.
    pub at_most_n_log_n: bool,
}

/// The fewest places that tell how a line grows.
const PLACES_MIN: usize = 3;

impl Growth {
    /// That of each line, by the name of its measurements.
    pub(super) fn of_all(measurements: &[Measurement]) -> Vec<Self> {
        let mut seen: Vec<(&str, &str)> = Vec::new();
        let mut all = Vec::new();
        for one in measurements {
            let line = (&*one.group, &*one.name);
            if !seen.contains(&line) {
                seen.push(line);
                all.extend(Self::of(line, measurements));
            }
        }
        all
    }

    fn of((group, name): (&str, &str), measurements: &[Measurement]) -> Option<Self> {
        let of_line = measurements.iter().filter(|one| (&*one.group, &*one.name) == (group, name));
        let mut places: Vec<_> =
            of_line.filter_map(|one| Some((one.at?.parts(), one.unit, one.ours.spread.median))).collect();
        places.sort_by_key(|((_, place), ..)| *place);
        let (((axis, from), unit, first), ((_, to), _, last)) = (*places.first()?, *places.last()?);
        if places.len() < PLACES_MIN || places.iter().any(|(.., value)| *value <= 0.0) {
            return None;
        }
        let cost = |value: f64| if unit.more_is_better() { 1.0 / value } else { value };
        let points: Vec<_> =
            places.iter().map(|((_, place), _, value)| (f64::from(*place).ln(), cost(*value).ln())).collect();
        // The logarithm of 1 is 0, of which nothing is a multiple, so that of 2 stands in for it.
        let n_log_n = |place: u32| f64::from(place) * f64::from(place).max(2.0).log2();
        Some(Self {
            group: group.into(),
            name: name.into(),
            axis: axis.into(),
            unit,
            first: (from, first),
            last: (to, last),
            exponent: slope(&points),
            at_most_n_log_n: cost(last) / cost(first) <= n_log_n(to) / n_log_n(from),
        })
    }
}

/// The slope of the straight line that lies closest to these points.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let along: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    along / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::Growth;
    use crate::bench::BenchReport;

    fn growth(unit: &str, values: &[(u32, f64)]) -> Option<Growth> {
        let line = |(place, value): &(u32, f64)| {
            format!(
                r#"{{"group":"g","name":"n","at":{{"keys":{place}}},"unit":"{unit}","ours":[{value},{value},{value},{value},{value}]}}"#
            )
        };
        let lines: Vec<String> = values.iter().map(line).collect();
        BenchReport::read(&lines.join("\n")).expect("lines").growth.pop()
    }

    fn told(unit: &str, values: &[(u32, f64)]) -> (String, bool) {
        let growth = growth(unit, values).expect("a line");
        (format!("{:.2}", growth.exponent), growth.at_most_n_log_n)
    }

    #[test]
    fn a_line_has_an_exponent() {
        assert_eq!(told("ns", &[(1, 7.0), (10, 7.0), (100, 7.0)]), ("0.00".into(), true));
        assert_eq!(told("ns", &[(100, 300.0), (1, 3.0), (10, 30.0)]), ("1.00".into(), true));
        assert_eq!(told("ns", &[(10, 1.0), (20, 4.0), (40, 16.0)]), ("2.00".into(), false));
        assert_eq!(told("1/s", &[(1, 100.0), (10, 10.0), (100, 1.0)]), ("1.00".into(), true));
        assert_eq!(told("1/s", &[(1, 1.0), (10, 10.0), (100, 100.0)]), ("-1.00".into(), true));
    }

    #[test]
    fn n_log_n_is_the_most() {
        let log = |n: u32| (n, f64::from(n) * f64::from(n).log2());
        assert!(told("ns", &[log(16), log(64), log(1_024)]).1);
        assert!(!told("ns", &[log(16), log(64), (1_024, 1.1 * log(1_024).1)]).1);
    }

    #[test]
    fn two_places_and_nothing_tell_no_growth() {
        assert_eq!(growth("ns", &[(1, 3.0), (10, 30.0)]), None);
        assert_eq!(growth("ns", &[(1, 0.0), (10, 30.0), (20, 30.0)]), None);
    }
}
