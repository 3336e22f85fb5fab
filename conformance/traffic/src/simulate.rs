//! Designs of rate limiters in a simulated fleet: the adapters' own code, on virtual time.
//!
//! A [`World`] has a clock that advances only when nothing can run. Requests arrive at [locations](Place) by a seeded plan, each
//! as a future that calls a limiter of the isolate that serves it. Whatever the limiter asks of its store takes the time that
//! the network and the store need, so requests overtake each other as they would in reality. The same seed gives the same run.
//!
//! The [`designs`] are the adapters as they are published, over [simulated stores](Model): Durable Objects with and without leases,
//! Workers KV, the Rate Limiting binding, Fastly's KV Store, that of Akamai Functions. Redis and Upstash decide and lend as the
//! core does, at one place, as their scripts do. Beside them are designs that are often recommended: a counter in Workers KV, a
//! count for each location, and counts that are synchronized after the fact.
//!
//! [`Assumed`] is what platforms document, or a guess, and [`Faults`] is what goes wrong. [`Fleet::emulated`] has the stores as local emulators
//! run them, so that predictions can be compared with what those did.

mod after_response;
mod bars;
mod bill;
mod design;
mod environment;
mod fleet;
mod isolate;
mod marks;
mod measure;
mod model;
mod page;
mod place;
mod recommended;
mod stores;
#[cfg(test)]
mod tests;
mod traffic;
mod waits;
mod world;

pub use self::bars::bars;
pub use self::bill::Billed;
pub use self::design::{Design, designs};
pub use self::environment::{Assumed, Faults};
pub use self::fleet::{First, Outcome, Setup, simulate, simulate_all};
pub use self::isolate::{Fleet, Isolate};
pub use self::marks::percent;
pub use self::model::Model;
pub use self::page::{Simulation, chart, page};
pub use self::place::{PLACES, Place, Places};
pub use self::traffic::{Flood, Traffic};
pub use self::waits::waits;
pub use self::world::World;
