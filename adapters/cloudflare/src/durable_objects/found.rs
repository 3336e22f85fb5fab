//! What an object finds for a call, and what it writes after it.

use std::borrow::Cow;

use tidegate_core::{Error, Millis, Policy, PolicyState, UnixMillis};

use crate::durable_objects::held::Held;
use crate::durable_objects::rows::Row;
use crate::durable_objects::wire::{Call, Granted, Returned};

/// The rows of a call, decoded.
pub(crate) struct Found {
    rows: Vec<Stored>,
}

/// A row, with its leases taken into account.
struct Stored {
    /// When it may be removed. `None` if there is no such row, so that the state is unused.
    expires: Option<UnixMillis>,
    state: PolicyState,
    held: Held,
    /// Whether the call has already changed it.
    changed: bool,
}

impl Found {
    pub(crate) fn with_capacity(rows: usize) -> Self {
        Self { rows: Vec::with_capacity(rows) }
    }

    /// Adds the next row.
    ///
    /// # Errors
    /// [`Corrupt`](tidegate_core::ErrorKind::Corrupt) if it is not a row of this policy.
    pub(crate) fn add(&mut self, policy: &Policy, row: Option<&Row>, now: UnixMillis) -> Result<(), Error> {
        self.rows.push(match row {
            None => Stored { expires: None, state: policy.initial_state(), held: Held::default(), changed: false },
            Some(row) => {
                let mut state = policy.decode(&row.value, now)?;
                let mut held = Held::decode(&row.leased)?;
                let changed = held.bound(now);
                let held = held.settle(policy, &mut state, now);
                Stored { expires: Some(row.expires), state, held, changed }
            }
        });
        Ok(())
    }

    /// The states of all rows.
    pub(crate) fn state(&self) -> PolicyState {
        match &self.rows[..] {
            [row] => row.state.clone(),
            rows => PolicyState::from_parts(rows.iter().flat_map(|row| row.state.parts()).cloned().collect()),
        }
    }

    /// Takes back a lease of the only row, and returns what is kept of it.
    pub(crate) fn take_back(&mut self, policy: &Policy, now: UnixMillis, back: Option<Returned>) -> Option<Granted> {
        let ([row], Some(back)) = (&mut self.rows[..], back) else { return None };
        let before = (row.state.clone(), row.held.clone());
        let kept = row.held.take_back(policy, &mut row.state, now, back);
        row.changed |= before.0 != row.state || before.1 != row.held;
        kept
    }

    /// Lends units of the only row, whose new state this is.
    pub(crate) fn lend(
        &mut self,
        policy: &Policy,
        state: &mut PolicyState,
        now: UnixMillis,
        want: u64,
        lifetime: Millis,
        kept: Option<Granted>,
    ) -> Option<Granted> {
        let [row] = &mut self.rows[..] else { return None };
        let lent = row.held.lend(policy, state, now, want, lifetime, kept);
        row.changed |= lent.is_some();
        lent
    }

    /// The rows to write for the new states: those that say something else than the stored ones.
    pub(crate) fn rows_after<'a>(
        &self,
        call: &Call<'a>,
        after: &PolicyState,
        now: UnixMillis,
        clock: UnixMillis,
    ) -> Vec<(&'a str, Row)> {
        let (mut rows, mut parts) = (Vec::new(), after.parts());
        for (place, (row, name)) in self.rows.iter().zip(&call.rows).enumerate() {
            let (part, others) = parts.split_at(row.state.parts().len());
            parts = others;
            if !row.changed && row.state.parts() == part {
                continue;
            }
            let policy = call.part(place);
            let state = match call.parts {
                [] => Cow::Borrowed(after),
                _ => Cow::Owned(PolicyState::from_parts(part.to_vec())),
            };
            let unused_after = policy.expires_after(&state, now);
            if row.expires.is_none() && unused_after == Millis::ZERO {
                continue;
            }
            // Lent units may be spent until the last lease ends, and drain from then on.
            let ttl = unused_after + row.held.last_end().since(now);
            let expires = clock + ttl.max(Millis::new(1)).max(call.min_ttl);
            rows.push((*name, Row { value: policy.encode(&state), leased: row.held.encode(), expires }));
        }
        rows
    }
}
