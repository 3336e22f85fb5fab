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
}

impl Traffic {
    pub(super) fn arrivals(&self, places: usize, seed: u64) -> Arrivals {
        let mut sum = 0.0;
        let weights = (1..=self.clients.max(1)).map(|rank| {
            sum += f64::from(rank).powf(-self.skew);
            sum
        });
        let weights = weights.collect();
        Arrivals { traffic: *self, places, random: ChaCha8Rng::seed_from_u64(seed), weights, at: 0.0 }
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "days at most, and clients are few")]
    fn next(&mut self) -> Option<Arrival> {
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
    use super::Traffic;

    #[test]
    fn arrivals_have_their_rate_and_their_skew_and_follow_from_the_seed() {
        let traffic = Traffic { clients: 100, rate: 1_000.0, skew: 1.0, roaming: 2, seconds: 60 };
        let arrivals: Vec<_> = traffic.arrivals(5, 7).collect();
        assert!((58_500..61_500).contains(&arrivals.len()), "{}", arrivals.len());
        assert!(arrivals.windows(2).all(|pair| pair[0].at_us <= pair[1].at_us));
        let of = |client| arrivals.iter().filter(|arrival| arrival.client == client).count();
        // The first of a hundred sends 1 / 5.187 of all, and the tenth a tenth of that.
        assert!((10_500..12_700).contains(&of(0)) && (950..1_400).contains(&of(9)), "{} {}", of(0), of(9));
        assert!(arrivals.iter().filter(|arrival| arrival.client == 3).all(|arrival| [3, 4].contains(&arrival.place)));
        assert!(traffic.arrivals(5, 7).eq(arrivals.iter().copied()) && !traffic.arrivals(5, 8).eq(arrivals));
    }
}
