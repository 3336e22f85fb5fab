//! Where isolates and stores are, and how long a message takes between two places.

use tidegate_core::internal::Suggestion;

/// A region of the platforms, at its city's airport.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// The airport's code, as Cloudflare and Vercel name their locations.
    pub name: &'static str,
    /// Degrees north.
    pub latitude: f64,
    /// Degrees east.
    pub longitude: f64,
}

/// Thirty regions on six continents. The coordinates are those of the airports (<https://ourairports.com>).
pub const PLACES: [Place; 30] = [
    place("iad", 38.94, -77.46),
    place("ewr", 40.69, -74.17),
    place("atl", 33.64, -84.43),
    place("ord", 41.98, -87.90),
    place("dfw", 32.90, -97.04),
    place("den", 39.86, -104.67),
    place("lax", 33.94, -118.41),
    place("sfo", 37.62, -122.38),
    place("sea", 47.45, -122.31),
    place("yyz", 43.68, -79.63),
    place("mex", 19.44, -99.07),
    place("gru", -23.44, -46.47),
    place("scl", -33.39, -70.79),
    place("lhr", 51.47, -0.45),
    place("cdg", 49.01, 2.55),
    place("ams", 52.31, 4.76),
    place("fra", 50.03, 8.57),
    place("mad", 40.47, -3.56),
    place("mxp", 45.63, 8.72),
    place("arn", 59.65, 17.92),
    place("waw", 52.17, 20.97),
    place("dxb", 25.25, 55.36),
    place("jnb", -26.14, 28.25),
    place("bom", 19.09, 72.87),
    place("sin", 1.36, 103.99),
    place("hkg", 22.31, 113.91),
    place("hnd", 35.55, 139.78),
    place("icn", 37.46, 126.44),
    place("syd", -33.95, 151.18),
    place("akl", -37.01, 174.79),
];

const fn place(name: &'static str, latitude: f64, longitude: f64) -> Place {
    Place { name, latitude, longitude }
}

/// The kilometres that light travels in a millisecond.
const LIGHT_KM_PER_MS: f64 = 299.792;

/// How much longer a message takes than light on a great circle: half of it is the glass, and the rest are detours. Between large
/// regions it is about 2: a round trip of 70 to 75 ms from New York to London (37 ms for light), 150 to 160 ms from Frankfurt to
/// Singapore (69 ms), 100 to 110 ms from Tokyo to San Francisco (55 ms).
const DETOUR: f64 = 2.1;

/// A round trip within a place, in microseconds.
const WITHIN_US: u64 = 1_000;

/// The round trips between the places of a simulation.
#[derive(Clone, Debug)]
pub struct Places {
    names: Vec<String>,
    /// In microseconds, from each place to each place.
    rtt_us: Vec<Vec<u64>>,
}

impl Places {
    /// Places of [`PLACES`], with round trips in proportion to their distances.
    ///
    /// # Errors
    /// The message for a name that is not known.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let known = |name: &str| {
            PLACES.iter().find(|place| place.name == name).ok_or_else(|| {
                let all: Vec<&str> = PLACES.iter().map(|place| place.name).collect();
                format!("{name:?} is not a known place; {}, or a matrix with --latency", Suggestion::of(name, &all))
            })
        };
        let places = names.into_iter().map(known).collect::<Result<Vec<_>, _>>()?;
        if places.is_empty() {
            return Err("at least one place is needed".into());
        }
        let rtt_us = places.iter().map(|from| places.iter().map(|to| rtt_us(from, to)).collect()).collect();
        Ok(Self { names: places.iter().map(|place| place.name.to_owned()).collect(), rtt_us })
    }

    /// Places on one machine, named by numbers.
    #[must_use]
    pub(super) fn on_one_machine(count: usize, rtt_us: u64) -> Self {
        Self { names: (0..count).map(|nth| nth.to_string()).collect(), rtt_us: vec![vec![rtt_us; count]; count] }
    }

    /// Places with a matrix of round trips in milliseconds: a first line with a comma and the names, then a line for each name with
    /// its round trips, separated by commas.
    ///
    /// # Errors
    /// What is wrong with the text, and in which line.
    pub fn from_csv(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let cells = |line: &str| line.split(',').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let (_, header) = lines.next().ok_or("the matrix is empty; write a first line with the names of the places")?;
        let header = cells(header);
        let names = header.get(1..).unwrap_or_default().to_vec();
        let mut rtt_us = Vec::new();
        for (nth, (number, line)) in lines.enumerate() {
            let row = cells(line);
            let wrong = |what: &str| format!("line {}: {what}", number + 1);
            if row.first() != names.get(nth) {
                return Err(wrong(&format!("expected the place {:?}", names.get(nth).map_or("none", String::as_str))));
            }
            let read = |cell: &String| match cell.parse::<f64>() {
                Ok(ms) if (0.0..=60_000.0).contains(&ms) => Ok(us(ms)),
                _ => Err(wrong(&format!("{cell:?} is not a round trip of 0 to 60,000 ms"))),
            };
            let times = row[1..].iter().map(read).collect::<Result<Vec<_>, _>>()?;
            if times.len() != names.len() {
                return Err(wrong(&format!("{} round trips; expected {}", times.len(), names.len())));
            }
            rtt_us.push(times);
        }
        if names.is_empty() || rtt_us.len() != names.len() {
            return Err(format!("{} lines for {} places; write one for each", rtt_us.len(), names.len()));
        }
        Ok(Self { names, rtt_us })
    }

    /// The number of places.
    #[must_use]
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// The names.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of the place with this name.
    ///
    /// # Errors
    /// The message for a name that is none of them, with the nearest.
    pub fn find(&self, name: &str) -> Result<usize, String> {
        let all: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let found = all.iter().position(|known| *known == name);
        found.ok_or_else(|| {
            format!("{name:?} is none of the places; {}, or add it to the places", Suggestion::of(name, &all))
        })
    }

    /// A round trip in microseconds.
    #[must_use]
    pub fn rtt_us(&self, from: usize, to: usize) -> u64 {
        self.rtt_us.get(from).and_then(|row| row.get(to)).copied().unwrap_or(WITHIN_US)
    }
}

fn rtt_us(from: &Place, to: &Place) -> u64 {
    WITHIN_US + us(2.0 * kilometres(from, to) / LIGHT_KM_PER_MS * DETOUR)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a minute")]
fn us(ms: f64) -> u64 {
    (ms * 1_000.0) as u64
}

/// The distance on a sphere, by the haversine formula.
fn kilometres(from: &Place, to: &Place) -> f64 {
    let half = |a: f64, b: f64| ((b - a).to_radians() / 2.0).sin().powi(2);
    let cosines = from.latitude.to_radians().cos() * to.latitude.to_radians().cos();
    let angle = half(from.latitude, to.latitude) + cosines * half(from.longitude, to.longitude);
    2.0 * 6_371.0 * angle.sqrt().asin()
}

#[cfg(test)]
mod tests {
    use super::{PLACES, Places};

    #[test]
    fn round_trips_are_as_long_as_measured_ones() {
        let near = |from: &str, to: &str, measured: std::ops::Range<u64>| {
            let rtt = Places::named([from, to]).expect("known").rtt_us(0, 1) / 1_000;
            assert!(measured.contains(&rtt), "{from} to {to}: {rtt} ms");
        };
        near("ewr", "lhr", 65..85);
        near("fra", "sin", 130..175);
        near("hnd", "sfo", 95..125);
        near("iad", "iad", 1..2);
        assert!(PLACES.iter().all(|place| place.name.len() == 3));
    }

    #[test]
    fn a_matrix_is_read_or_its_mistake_named() {
        let places = Places::from_csv(",here,there\nhere,0.5,80\nthere,80,1\n").expect("a matrix");
        assert_eq!((places.count(), places.rtt_us(0, 1), places.rtt_us(1, 1)), (2, 80_000, 1_000));
        for (text, why) in [
            ("", "empty"),
            (",a\n", "0 lines for 1 places"),
            (",a\nb,1\n", "line 2: expected the place \"a\""),
            (",a\n\n\na,-1\n", "line 4: \"-1\" is not a round trip"),
            (",a\na,1,2\n", "line 2: 2 round trips; expected 1"),
        ] {
            let error = Places::from_csv(text).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
        assert!(Places::named(["nowhere"]).is_err_and(|error| error.contains("nowhere")));
    }
}
