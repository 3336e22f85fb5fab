//! Every possible order of events, for checking a protocol exhaustively.
//!
//! This explores the real code: whatever a test chooses with the given function, such as the next event or the next
//! task to run, is chosen in every possible way.

/// Runs `attempt` once for every sequence of choices. `attempt` calls its argument with a number of options to choose
/// one.
pub fn in_every_order(mut attempt: impl FnMut(&mut dyn FnMut(usize) -> usize)) -> u64 {
    let mut chosen: Vec<(usize, usize)> = Vec::new();
    for runs in 1.. {
        let mut at = 0;
        attempt(&mut |among| {
            if at == chosen.len() {
                chosen.push((0, among));
            }
            at += 1;
            chosen[at - 1].0
        });
        while chosen.last().is_some_and(|(choice, among)| choice + 1 == *among) {
            chosen.pop();
        }
        match chosen.last_mut() {
            Some((choice, _)) => *choice += 1,
            None => return runs,
        }
    }
    unreachable!("the number of interleavings fits in u64")
}
