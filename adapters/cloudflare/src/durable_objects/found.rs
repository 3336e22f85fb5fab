//! What an object finds for a call, and what it writes after it.

use std::borrow::Cow;

use tidegate_core::lending::{Answer, Lender, Question};
use tidegate_core::{Decision, Error, Millis, Policy, PolicyState, UnixMillis};

use crate::durable_objects::rows::Row;
use crate::durable_objects::wire::Call;

/// The rows of a call, decoded.
pub(crate) struct Found {
    rows: Vec<Stored>,
}

/// A row, with its loans taken into account.
struct Stored {
    /// When it may be removed. `None` if there is no such row, so that the state is unused.
    expires: Option<UnixMillis>,
    state: PolicyState,
    lender: Lender,
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
            None => Stored { expires: None, state: policy.initial_state(), lender: Lender::default(), changed: false },
            Some(row) => {
                let mut state = policy.decode(&row.value, now)?;
                let mut lender = Lender::decode(&row.leased)?;
                let changed = lender.settle(policy, &mut state, now);
                Stored { expires: Some(row.expires), state, lender, changed }
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

    /// Decides on a check, and answers a borrower's question. Only one row is ever lent.
    pub(crate) fn lend(
        &mut self,
        call: &Call<'_>,
        state: &mut PolicyState,
        now: UnixMillis,
        question: &Question,
    ) -> Answer {
        let [row] = &mut self.rows[..] else { return call.policy.decide(state, now, call.cost).into() };
        let before = row.lender.clone();
        let answer = row.lender.decide(call.policy, state, now, call.cost, question);
        row.changed |= before != row.lender;
        answer
    }

    /// A decision on the states, with the wait that loans make longer.
    pub(crate) fn corrected(
        &self,
        call: &Call<'_>,
        state: &PolicyState,
        now: UnixMillis,
        decision: Decision,
    ) -> Decision {
        match &self.rows[..] {
            [row] => row.lender.corrected(call.policy, state, now, call.cost, decision),
            _ => decision,
        }
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
            // Lent units may be spent until the last loan ends, and drain from then on.
            let ttl = unused_after + row.lender.last_end().since(now);
            let expires = clock + ttl.max(Millis::new(1)).max(call.min_ttl);
            rows.push((*name, Row { value: policy.encode(&state), leased: row.lender.encode(), expires }));
        }
        rows
    }
}
