//! Calls for a profiler that counts instructions.

use std::env;
use std::hint::black_box;

/// With the arguments `--count NAME TIMES`, makes the call of that name so many times for `conformance/bench/instructions.sh`, and returns true:
/// the benchmark then has nothing to measure.
///
/// # Panics
/// Panics if no call has that name, or without a number.
pub fn counted(calls: &mut [(&str, &mut dyn FnMut())]) -> bool {
    let mut arguments = env::args().skip_while(|argument| argument != "--count").skip(1);
    let Some(wanted) = arguments.next() else { return false };
    let found = calls.iter_mut().find(|(name, _)| *name == wanted);
    let Some((_, call)) = found else { panic!("--count: there is no \"{wanted}\"") };
    let Some(Ok(times)) = arguments.next().map(|times| times.parse()) else { panic!("--count: write how many times") };
    // What only the first calls take does not count.
    (0..100).for_each(|_| call());
    calls_that_count(times, *call);
    true
}

/// The profiler counts what happens in here.
#[inline(never)]
fn calls_that_count(times: u32, call: &mut dyn FnMut()) {
    for _ in 0..times {
        black_box(&mut *call)();
    }
}
