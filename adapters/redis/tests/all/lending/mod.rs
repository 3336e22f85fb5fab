//! Loans on a real server: the lending script answers and stores what the core's lender does.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

mod faults;
mod limiters;
mod model;
mod replay;
mod story;
#[cfg(feature = "rest")]
mod telling;
mod versions;

use std::cell::{Cell, RefCell};

use crate::support::Server;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tidegate_core::lending::Answer;
use tidegate_core::store::Applied;
use tidegate_core::{Error, Key};
use tidegate_redis::wire::{Call, Script};

use self::replay::Replay;

fn load(connection: &mut redis::Connection, text: &str) -> String {
    redis::cmd("SCRIPT").arg("LOAD").arg(text).query(connection).unwrap()
}

/// Replays random stories with `lending` as the lending script. Returns the number of questions.
fn hold(connection: &mut redis::Connection, lending: &str, cases: u32, rng_seed: RngSeed) -> Result<u64, String> {
    redis::cmd("FLUSHALL").exec(connection).unwrap();
    let sha1s = [load(connection, &Script::General.text(false)), load(connection, lending)];
    let shrinks = if rng_seed == RngSeed::Random { Config::default().max_shrink_iters } else { 0 };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: shrinks, rng_seed, ..Config::default() };
    let (nth, asked, connection) = (Cell::new(0), Cell::new(0), RefCell::new(connection));
    let held = TestRunner::new(config).run(&story::story(), |story| {
        nth.set(nth.get() + 1);
        let (key, sha1s) = (Key::new(format!("case-{}", nth.get())), [&*sha1s[0], &sha1s[1]]);
        asked.set(asked.get() + Replay::run(&mut connection.borrow_mut(), sha1s, key, &story)?);
        Ok(())
    });
    held.map(|()| asked.get()).map_err(|failure| failure.to_string())
}

#[test]
fn the_script_lends_as_the_core_does() {
    let server = Server::start();
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(600);
    let asked = hold(&mut server.connection(), &Script::Lending.text(false), cases, RngSeed::Random).unwrap();
    assert!(asked > u64::from(cases) * 10, "only {asked} questions");
}

/// The answer to a borrower's question.
fn lent(call: &Call<'_>, text: &str) -> Result<Answer, Error> {
    match call.answer(Script::Lending, text.as_bytes())? {
        Some(Applied::Replied(reply)) => reply.answer(),
        other => unreachable!("{other:?}"),
    }
}
