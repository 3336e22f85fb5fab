//! Who sends requests, when and where.

use rand::Rng as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

use super::world::START_US;

/// Requests of clients, at random times.
///
/// Each client sends at its own rate: the client of rank `r` in proportion to `1 / r^skew`. Each request of a client arrives at a
/// random place out of the client's, which are `roaming` of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// The number of clients.
    pub clients: u32,
    /// All requests in a second.
    pub rate: f64,
    /// How unequal the clients are. With 0 they are equal.
    pub skew: f64,
    /// At how many places a client's requests arrive.
    pub roaming: usize,
    /// For how long requests arrive.
    pub seconds: u32,
    /// One more client, which sends many requests at once.
    pub flood: Option<Flood>,
}

/// Requests that one client sends at the same moment, again and again. They arrive at all places, as those of several machines do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood {
    /// How many at once.
    pub requests: u32,
    /// The time from one flood to the next, in milliseconds. The first comes after half of it.
    pub every_ms: u32,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) at_us: u64,
    pub(super) client: u32,
    pub(super) place: usize,
    /// Chooses the isolate.
    pub(super) draw: u64,
}

/// The requests in the order of their arrival.
#[derive(Debug)]
pub(super) struct Arrivals {
    traffic: Traffic,
    places: usize,
    random: ChaCha8Rng,
    /// The sums of the clients' weights.
    weights: Vec<f64>,
    /// Seconds since the start.
    at: f64,
    /// The next request of the clients besides the flood.
    coming: Option<Arrival>,
    flood: Option<Flooding>,
}

/// What is to come of a flood.
#[derive(Debug)]
struct Flooding {
    flood: Flood,
    random: ChaCha8Rng,
    at_us: u64,
    /// How many more arrive at this moment.
    left: u32,
}

impl Traffic {
    /// How many clients there are, with the one that floods.
    pub(super) fn keys(&self) -> usize {
        self.clients.max(1) as usize + usize::from(self.flood.is_some())
    }

    /// About how many requests arrive.
    #[must_use]
    pub fn requests(&self) -> f64 {
        let seconds = f64::from(self.seconds);
        let flooded = self.flood.map_or(0.0, |Flood { requests, every_ms }| {
            f64::from(requests) * (seconds * 1_000.0 / f64::from(every_ms.max(1)) - 0.5).ceil()
        });
        self.rate * seconds + flooded
    }

    pub(super) fn arrivals(&self, places: usize, seed: u64) -> Arrivals {
        let mut sum = 0.0;
        let weights = (1..=self.clients.max(1)).map(|rank| {
            sum += f64::from(rank).powf(-self.skew);
            sum
        });
        let weights = weights.collect();
        let flood = self.flood.filter(|flood| flood.requests > 0).map(|flood| Flooding {
            flood,
            // Those of the others do not depend on it.
            random: ChaCha8Rng::seed_from_u64(seed.rotate_left(32) ^ 1),
            at_us: START_US + u64::from(flood.every_ms.max(1)) * 500,
            left: flood.requests,
        });
        let random = ChaCha8Rng::seed_from_u64(seed);
        let mut arrivals = Arrivals { traffic: *self, places, random, weights, at: 0.0, coming: None, flood };
        arrivals.coming = arrivals.ordinary();
        arrivals
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let flooded = self.flood.as_mut().and_then(|flood| {
            let until_us = START_US + u64::from(self.traffic.seconds) * 1_000_000;
            let before_us = self.coming.map_or(until_us - 1, |coming| coming.at_us);
            (flood.at_us <= before_us).then(|| flood.arrival(self.traffic.clients.max(1), self.places))
        });
        if flooded.is_some() {
            return flooded;
        }
        let arrival = self.coming?;
        self.coming = self.ordinary();
        Some(arrival)
    }
}

impl Flooding {
    fn arrival(&mut self, client: u32, places: usize) -> Arrival {
        let place = self.random.random_range(0..places);
        let arrival = Arrival { at_us: self.at_us, client, place, draw: self.random.random() };
        self.left -= 1;
        if self.left == 0 {
            (self.at_us, self.left) = (self.at_us + u64::from(self.flood.every_ms.max(1)) * 1_000, self.flood.requests);
        }
        arrival
    }
}

impl Arrivals {
    /// The next request of the clients besides the flood.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "days at most, and clients are few")]
    fn ordinary(&mut self) -> Option<Arrival> {
        // The times between the requests of a Poisson process.
        let wait: f64 = self.random.random();
        self.at -= (1.0 - wait).ln() / self.traffic.rate.max(f64::MIN_POSITIVE);
        if self.at >= f64::from(self.traffic.seconds) {
            return None;
        }
        let all = self.weights.last().copied().unwrap_or_default();
        let drawn = self.random.random::<f64>() * all;
        let client = self.weights.partition_point(|sum| *sum <= drawn).min(self.weights.len() - 1) as u32;
        let roaming = self.traffic.roaming.clamp(1, self.places);
        let nth = self.random.random_range(0..roaming);
        // A client's places follow each other, and clients begin at different ones.
        let place = (client as usize + nth) % self.places;
        Some(Arrival { at_us: START_US + (self.at * 1e6) as u64, client, place, draw: self.random.random() })
    }
}

#[cfg(test)]
mod tests {
    use super::{Flood, Traffic};
    use crate::simulate::world::START_US;

    #[test]
    fn arrivals_have_their_rate_and_their_skew_and_follow_from_the_seed() {
        let traffic = Traffic { clients: 100, rate: 1_000.0, skew: 1.0, roaming: 2, seconds: 60, flood: None };
        let arrivals: Vec<_> = traffic.arrivals(5, 7).collect();
        assert!((58_500..61_500).contains(&arrivals.len()), "{}", arrivals.len());
        assert!(arrivals.windows(2).all(|pair| pair[0].at_us <= pair[1].at_us));
        let of = |client| arrivals.iter().filter(|arrival| arrival.client == client).count();
        // The first of a hundred sends 1 / 5.187 of all, and the tenth a tenth of that.
        assert!((10_500..12_700).contains(&of(0)) && (950..1_400).contains(&of(9)), "{} {}", of(0), of(9));
        assert!(arrivals.iter().filter(|arrival| arrival.client == 3).all(|arrival| [3, 4].contains(&arrival.place)));
        assert!(traffic.arrivals(5, 7).eq(arrivals.iter().copied()) && !traffic.arrivals(5, 8).eq(arrivals));
    }
    #[test]
    fn a_flood_arrives_at_once_and_at_all_places_between_the_same_other_requests() {
        let calm = Traffic { clients: 10, rate: 100.0, skew: 0.0, roaming: 1, seconds: 30, flood: None };
        let flooded = Traffic { flood: Some(Flood { requests: 500, every_ms: 10_000 }), ..calm };
        let arrivals: Vec<_> = flooded.arrivals(3, 7).collect();
        assert!(arrivals.windows(2).all(|pair| pair[0].at_us <= pair[1].at_us));
        let (flood, others): (Vec<_>, Vec<_>) = arrivals.into_iter().partition(|arrival| arrival.client == 10);
        assert!(calm.arrivals(3, 7).eq(others));
        let at_us: Vec<_> =
            [5, 15, 25].into_iter().flat_map(|second| vec![START_US + second * 1_000_000; 500]).collect();
        assert!(flood.iter().map(|arrival| arrival.at_us).eq(at_us));
        assert!((0..3).all(|place| (400..600).contains(&flood.iter().filter(|one| one.place == place).count())));
        assert_eq!((calm.keys(), flooded.keys(), calm.requests(), flooded.requests()), (10, 11, 3_000.0, 4_500.0));
        // One that ends with a flood has it whole.
        let alone = Traffic { rate: f64::MIN_POSITIVE, seconds: 5, ..flooded };
        assert_eq!(alone.arrivals(3, 7).count(), 0);
        assert_eq!(Traffic { seconds: 6, ..alone }.arrivals(3, 7).count(), 500);
    }
}
