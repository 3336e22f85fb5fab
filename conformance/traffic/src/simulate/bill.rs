//! What calls of stores carry, and what platforms bill of them.

use serde::Serialize;
use tidegate_conformance::operation::{Operation, Operations, mean};

/// What platforms count of the calls of stores, per decision.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Default)]
pub struct Billed {
    /// Requests to Durable Objects, Workers KV and the key-value stores of other platforms. Redis and Upstash bill none.
    pub requests: f64,
    /// Commands of Redis and Upstash: each script, and each command that it runs. A pipeline of two scripts is one trip, and has the
    /// commands of both.
    pub commands: f64,
    /// Rows that Durable Objects read.
    pub rows_read: f64,
    /// Rows that they write or delete, and alarms that they set, each of which is billed as a row.
    pub rows_written: f64,
}

impl Billed {
    pub(super) fn of(operations: &Operations, decisions: u64) -> Self {
        let per_decision = |of: &[Operation]| mean(sum(operations, |operation| of.contains(&operation)), decisions);
        Self {
            requests: mean(sum(operations, is_request), decisions),
            commands: per_decision(&[Operation::RedisCommand]),
            rows_read: per_decision(&[Operation::RowRead]),
            rows_written: per_decision(&[Operation::RowWritten, Operation::AlarmSet]),
        }
    }
}

/// The calls over the network among the operations, whoever waits for them.
pub(super) fn trips(operations: &Operations) -> u64 {
    sum(operations, |operation| operation == Operation::ScriptCall || is_request(operation))
}

/// Whether it is a call of its own that a platform counts as a request.
const fn is_request(operation: Operation) -> bool {
    match operation {
        Operation::ObjectRequest
        | Operation::KvRead
        | Operation::KvWrite
        | Operation::SpinOperation
        | Operation::FastlyOperation
        | Operation::BlobRequest => true,
        // A script call is billed by its commands, and a machine answers for the binding.
        Operation::ScriptCall | Operation::SqlStatement | Operation::BindingCall => false,
        Operation::RedisCommand | Operation::RowRead | Operation::RowWritten | Operation::AlarmSet => false,
    }
}

fn sum(operations: &Operations, counts: impl Fn(Operation) -> bool) -> u64 {
    operations.iter().filter(|(operation, _)| counts(**operation)).map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests {
    use tidegate_conformance::operation::{Operation, Operations};

    use super::{Billed, trips};

    #[test]
    fn a_trip_is_a_call_whoever_waits_for_it_and_what_it_carries_is_billed_apart() {
        let operations = Operations::from([
            (Operation::ScriptCall, 1),
            (Operation::RedisCommand, 8),
            (Operation::ObjectRequest, 2),
            (Operation::RowRead, 3),
            (Operation::RowWritten, 4),
            (Operation::AlarmSet, 1),
            (Operation::KvWrite, 5),
            (Operation::BindingCall, 100),
        ]);
        assert_eq!(trips(&operations), 8);
        let billed = Billed { requests: 3.5, commands: 4.0, rows_read: 1.5, rows_written: 2.5 };
        assert_eq!(Billed::of(&operations, 2), billed);
    }
}
