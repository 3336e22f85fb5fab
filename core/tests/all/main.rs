//! The tests of the core. They are one program, because each program would be compiled and linked with everything again.

mod block;
mod calendars;
mod charges;
mod client_ip;
mod combinator_mutants;
mod combinators;
mod corrections;
mod decisions;
mod deny_cache;
mod drivers;
mod erased;
mod fallback;
mod figures;
mod gate;
mod gate_bytes;
mod gate_events;
mod gate_files;
mod gate_leases;
mod gate_notices;
mod gate_readings;
mod gate_stores;
mod headers;
mod identities;
mod keys;
mod laws;
#[cfg(feature = "lending")]
mod lending;
mod limit_numbers;
mod memory;
mod memory_full;
mod policies;
mod responses;
mod sinks;
mod tokens;
mod usage;
mod worst_cases;
