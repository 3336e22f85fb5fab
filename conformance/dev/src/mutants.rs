//! Deliberately broken limiters. At least one fixture must catch each of them, which proves that the suite finds
//! errors.
//!
//! They run in this process and speak the same protocol as guests. The requests of a burst are futures that all start
//! before the first is answered, so a limiter that reads, awaits and writes loses updates.

mod gate;
mod identity;
mod lending;
mod limiter;
mod policy;
mod warnings;
mod wire;

use std::sync::Mutex;

use bytes::Bytes;
use tidegate_conformance::fixture::{Case, Disturb, Fixture};
use tidegate_conformance::judge::{Verdict, judge};
use tidegate_conformance::reference::Prepared;
use tidegate_conformance::replay::{Replay, replay};
use tidegate_conformance::run::{differences, identify};
use tidegate_conformance::subject::{InProcess, Place, Subject};
use tidegate_core::Accuracy;
use tidegate_core::lending::Lease;
use tidegate_guest_protocol::{Arrival, Call, Gated, Identified, Reply, Route, serve};

use self::limiter::{Bench, Fault};

/// A broken limiter.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// The name of the mutant.
    pub name: &'static str,
    /// What is broken, as in the title of a bug report.
    pub about: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Counts wrongly. It is judged only by its decisions.
    Counts(Fault),
    /// Lends wrongly. It is held to the bounds of lending.
    Lends(lending::Fault),
    /// Counts correctly, but changes the reply.
    Says(fn(&mut Reply)),
    /// Counts against the wrong key.
    Identifies(fn(&Arrival) -> Identified),
    /// Reads a request or its rules wrongly, or answers wrongly.
    Gates(gate::Wrong),
    /// Decides correctly, and warns wrongly.
    Warns(warnings::Warn),
}

/// Returns all mutants.
#[must_use]
pub fn all() -> Vec<Mutant> {
    let counts = limiter::ALL.iter().map(|(name, about, fault)| Mutant { name, about, kind: Kind::Counts(*fault) });
    let lends = lending::ALL.iter().map(|(name, about, fault)| Mutant { name, about, kind: Kind::Lends(*fault) });
    let says = wire::ALL.iter().map(|(name, about, change)| Mutant { name, about, kind: Kind::Says(*change) });
    let identifies =
        identity::ALL.iter().map(|(name, about, key)| Mutant { name, about, kind: Kind::Identifies(*key) });
    let gates = gate::ALL.iter().map(|(name, about, wrong)| Mutant { name, about, kind: Kind::Gates(*wrong) });
    let warns = warnings::ALL.iter().map(|(name, about, warn)| Mutant { name, about, kind: Kind::Warns(*warn) });
    counts.chain(lends).chain(says).chain(identifies).chain(gates).chain(warns).collect()
}

/// Returns the fixtures that fail with the correct limiter in a mutant's place. If there are any, the suite is broken.
pub async fn false_alarms(cases: &[Prepared]) -> Vec<String> {
    let mut found = Vec::new();
    for prepared in cases {
        let caught = match &prepared.case {
            Case::Decision(fixture) => {
                let honest = Mistaken::new(Kind::Counts(Fault::None));
                differs(fixture, &prepared.reference, &honest, true).await
                    || differs(fixture, &prepared.reference, &Mistaken::new(Kind::Says(|_| ())), false).await
                    || exceeds(fixture, &prepared.reference, lending::Fault::None, lending::LEASE).await
                    || fixture.id.starts_with("grace/")
                        && exceeds(fixture, &prepared.reference, lending::Fault::None, lending::GRACE).await
            }
            Case::Gate(fixture) => {
                !differences(fixture, &Mistaken::new(Kind::Counts(Fault::None))).await.is_empty()
                    || !differences(fixture, &Mistaken::new(Kind::Warns(warnings::RIGHT))).await.is_empty()
            }
            Case::Request(fixture) => {
                let reference = InProcess::new(tidegate_core::MemoryLimiter::with_shards(1));
                identify(fixture, &reference).await.is_err()
            }
        };
        if caught {
            found.push(prepared.case.id().to_string());
        }
    }
    found
}

/// Returns the fixtures that catch a mutant.
pub async fn caught_by(mutant: &Mutant, cases: &[Prepared]) -> Vec<String> {
    let mut found = Vec::new();
    for prepared in cases {
        let subject = Mistaken::new(mutant.kind);
        let caught = match (&prepared.case, mutant.kind) {
            (Case::Decision(fixture), Kind::Counts(_)) => differs(fixture, &prepared.reference, &subject, true).await,
            (Case::Decision(fixture), Kind::Lends(fault)) => {
                exceeds(fixture, &prepared.reference, fault, fault.lease()).await
            }
            (Case::Decision(fixture), Kind::Says(_)) => differs(fixture, &prepared.reference, &subject, false).await,
            (Case::Gate(fixture), Kind::Gates(_) | Kind::Warns(_)) => !differences(fixture, &subject).await.is_empty(),
            (Case::Request(fixture), Kind::Identifies(_)) => identify(fixture, &subject).await.is_err(),
            _ => false,
        };
        if caught {
            found.push(prepared.case.id().to_string());
        }
    }
    found
}

async fn differs(fixture: &Fixture, reference: &Replay, subject: &Mistaken, decisions_only: bool) -> bool {
    let mut found = replay(fixture, subject, "").await;
    if !decisions_only {
        return judge(&Accuracy::Exact, 1, fixture, reference, &found).verdict == Verdict::Fail;
    }
    // A mutant that counts wrongly must be caught by its decisions, not by a response field that reveals the fault.
    let (mut fixture, mut reference) = (fixture.clone(), reference.clone());
    for expect in fixture.steps.iter_mut().filter_map(|step| step.expect.as_mut()) {
        expect.headers = None;
    }
    for one in reference.steps.iter_mut().chain(&mut found.steps).flatten() {
        one.headers.retain(|(name, _)| name == "retry-after");
    }
    judge(&Accuracy::Exact, 1, &fixture, &reference, &found).verdict == Verdict::Fail
}

/// Whether limiters that borrow leave their bounds.
async fn exceeds(fixture: &Fixture, reference: &Replay, fault: lending::Fault, lease: Lease) -> bool {
    let Ok(borrowed) = lending::Borrowed::new(fault, lease) else { return true };
    if !borrowed.takes(fixture) {
        return false;
    }
    let found = replay(fixture, &borrowed, "").await;
    judge(&borrowed.capabilities().accuracy, lending::BORROWERS, fixture, reference, &found).verdict == Verdict::Fail
}

impl Subject for lending::Borrowed {
    async fn send(&self, route: Route, body: Bytes, place: Place) -> Result<Reply, String> {
        tokio::task::yield_now().await;
        Ok(self.answer(place.location.unwrap_or(place.nth), route, &body).await)
    }

    async fn prepare(&self, disturb: Disturb) -> Result<(), String> {
        self.halt(disturb == Disturb::Abort);
        Ok(())
    }

    async fn disturb(&self, disturb: Disturb) -> Result<(), String> {
        self.halt(false);
        if disturb == Disturb::Kill { self.kill().map_err(|error| error.to_string()) } else { Ok(()) }
    }

    fn isolates(&self) -> u64 {
        lending::BORROWERS
    }
}

/// A mutant as a subject.
struct Mistaken {
    kind: Kind,
    bench: Bench,
    /// The parts that senders were warned of.
    warned: Mutex<warnings::Warned>,
}

impl Mistaken {
    fn new(kind: Kind) -> Self {
        let fault = if let Kind::Counts(fault) = kind { fault } else { Fault::None };
        Self { kind, bench: Bench::new(fault), warned: Mutex::default() }
    }
}

impl Subject for Mistaken {
    async fn send(&self, route: Route, body: Bytes, _: Place) -> Result<Reply, String> {
        // All requests of a burst are in flight before the first is answered.
        tokio::task::yield_now().await;
        let mut reply = match (self.kind, route) {
            (Kind::Identifies(key), Route::Identify) => {
                let arrival = serde_json::from_slice::<Arrival>(&body).map_err(|error| error.to_string())?;
                Reply::new(200, &tidegate_guest_protocol::Answer::Identity(key(&arrival)))
            }
            (
                Kind::Counts(_),
                Route::Check
                | Route::Peek
                | Route::Settle
                | Route::Release
                | Route::Refund
                | Route::Block
                | Route::Grant
                | Route::Reset,
            ) => {
                let call = Call::from_body(&body).map_err(|error| error.to_string())?;
                self.bench.answer(route, &call).await
            }
            (Kind::Gates(wrong), Route::Gate) => {
                let mut call = serde_json::from_slice::<Gated>(&body).map_err(|error| error.to_string())?;
                (wrong.reads)(&mut call);
                let body = serde_json::to_vec(&call).map_err(|error| error.to_string())?;
                (wrong.answers)(serve(&self.bench.honest, route, &body).await)
            }
            (Kind::Warns(warn), Route::Gate) => {
                let call = serde_json::from_slice::<Gated>(&body).map_err(|error| error.to_string())?;
                let reply = serve(&self.bench.honest, route, &body).await;
                let mut warned = self.warned.lock().map_err(|error| error.to_string())?;
                warnings::changed(warn, &call, reply, &mut warned)
            }
            _ => match self.bench.down() {
                Some(down) => down,
                None => {
                    let reply = serve(&self.bench.honest, route, &body).await;
                    self.bench.lost().unwrap_or(reply)
                }
            },
        };
        if let Kind::Says(change) = self.kind {
            change(&mut reply);
        }
        Ok(reply)
    }

    async fn disturb(&self, disturb: Disturb) -> Result<(), String> {
        self.bench.disturb(disturb);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
