//! How much is lent, how often it is asked for, and what comes back.

use tidegate_core::Millis;
use tidegate_core::lending::Lease;
use tidegate_testing::{MINUTE, per_minute};

use super::world::{Fault, Step, World};

fn world(limit: u64, lease: Lease) -> World {
    let policy = per_minute(limit);
    World::new(policy, lease, Fault::None)
}

fn one(borrower: usize) -> Step {
    Step::Ask { borrower, cost: 1, times: 1 }
}

fn admitted(world: &World) -> u64 {
    world.decided.iter().filter(|one| one.admitted).map(|one| one.cost).sum()
}

#[test]
fn a_steady_client_far_from_its_limit_asks_once_in_a_window() {
    let mut world = world(1_000, Lease::new(1_000, MINUTE));
    let mut calls = Vec::new();
    for _ in 0..6 {
        for _ in 0..60 {
            world.play(&one(0));
            world.play(&Step::Forward(1_000));
        }
        calls.push(world.calls);
    }
    assert_eq!(admitted(&world), 360);
    assert!(calls[5] - calls[1] <= 6, "{calls:?}");
}

#[test]
fn denials_are_asked_for_once_in_a_lifetime() {
    let mut world = world(100, Lease::new(50, Millis::from_secs(20)));
    (0..120).for_each(|_| world.play(&one(0)));
    assert_eq!(admitted(&world), 100);
    let before = world.calls;
    for _ in 0..590 {
        world.play(&Step::Forward(100));
        world.play(&one(0));
    }
    assert_eq!(admitted(&world), 100);
    assert!(world.calls - before <= 3, "{}", world.calls - before);
}

#[test]
fn the_last_units_are_spent_where_they_are_asked_for() {
    // Two borrowers spend, and one has stopped early on.
    let mut world = world(600, Lease::new(600, MINUTE));
    for nth in 0..600 {
        world.play(&Step::Forward(40));
        world.play(&one(if nth < 30 { 2 } else { nth % 2 }));
    }
    let spent = admitted(&world);
    for _ in 0..600 {
        world.play(&Step::Forward(40));
        world.play(&one(0));
        world.play(&one(1));
    }
    assert!(admitted(&world) >= 550, "{spent}, then {}", admitted(&world));
}

#[test]
fn in_the_background_an_idle_borrower_returns_its_loan() {
    let mut world = world(100, Lease { in_background: true, ..Lease::new(100, MINUTE) });
    // Loans of 1, 2, 4, 8 and 14 units, the last of which is not spent.
    (0..21).for_each(|_| world.play(&one(0)));
    let held = |world: &mut World| {
        let before = admitted(world);
        (0..200).for_each(|_| world.play(&one(1)));
        100 - (admitted(world) - before) - before
    };
    world.play(&Step::Forward(30_000));
    world.play(&Step::Return(0));
    assert_eq!(held(&mut world), 0);
}

#[test]
fn in_the_background_no_request_of_a_steady_client_waits() {
    let mut world = world(100_000, Lease { in_background: true, ..Lease::new(1_000, MINUTE) });
    world.play(&Step::Network(super::world::Network { out_ms: 50, back_ms: 50, ..Default::default() }));
    let mut waited = Vec::new();
    for _ in 0..2_000 {
        world.decided.clear();
        world.play(&one(0));
        // A request that waits is decided when its call arrives.
        waited.push(world.decided.is_empty());
        world.play(&Step::Forward(20));
    }
    assert_eq!(waited[500..].iter().filter(|waited| **waited).count(), 0);
}

#[test]
fn what_nobody_misses_is_lent_at_once_and_not_returned() {
    let mut world = world(4_096 * 64 * 50, Lease { in_background: true, ..Lease::new(49, MINUTE) });
    (0..40).for_each(|_| world.play(&one(0)));
    assert_eq!((admitted(&world), world.calls), (40, 1));
    (0..40).for_each(|_| world.play(&one(1)));
    let calls = world.calls;
    assert_eq!(calls, 2);
    for borrower in [0, 1] {
        world.play(&Step::Forward(30_000));
        world.play(&Step::Return(borrower));
    }
    assert_eq!(world.calls, calls);
}
