//! The states that the requests of several users of a tenant share.

use std::collections::HashMap;

use tidegate_core::{Error, Key, Keys, Policy, PolicyState, QuotaState};
use tidegate_guest_protocol::Call;

/// Where a request is counted.
pub(super) struct Place {
    /// All keys of the request together.
    pub(super) name: String,
    /// The name of each of the policy's rows.
    rows: Vec<String>,
}

impl Place {
    pub(super) fn of(call: &Call) -> Result<Self, Error> {
        let sole = Key::new(&call.key);
        let named: Vec<(&str, Key)> = call.keys.iter().map(|(name, key)| (name.as_str(), Key::new(key))).collect();
        let named: Vec<(&str, &Key)> = named.iter().map(|(name, key)| (*name, key)).collect();
        let keys = if named.is_empty() { Keys::from(&sole) } else { Keys::from(&named[..]) };
        let rows = keys.storage_keys(&call.policy)?.rows().to_vec();
        Ok(Self { name: rows.join("\n"), rows })
    }

    /// The name of the balance's row.
    pub(super) fn of_balance(&self, policy: &Policy) -> &str {
        policy.balance_row().map_or("", |row| &self.rows[row])
    }
}

/// The states of policies with several rows, or with a balance, which other policies may have, too.
#[derive(Default)]
pub(super) struct Rows(HashMap<String, Vec<QuotaState>>);

impl Rows {
    /// Reads the state that these keys have now, if other keys may have changed it.
    pub(super) fn read(&self, place: &Place, policy: &Policy, state: &mut PolicyState) {
        if policy.rows().len() == 1 && !policy.has_balance() {
            return;
        }
        let unused = policy.initial_state();
        let parts = policy
            .rows()
            .iter()
            .zip(&place.rows)
            .flat_map(|(of, row)| self.0.get(row).cloned().unwrap_or_else(|| unused.parts()[of.quotas()].to_vec()));
        *state = PolicyState::from_parts(parts.collect());
    }

    pub(super) fn write(&mut self, place: &Place, policy: &Policy, state: &PolicyState) {
        if policy.rows().len() == 1 && !policy.has_balance() {
            return;
        }
        for (of, row) in policy.rows().iter().zip(&place.rows) {
            self.0.insert(row.clone(), state.parts()[of.quotas()].to_vec());
        }
    }

    /// Makes all unused, but for a balance if it is not `everything`.
    pub(super) fn remove(&mut self, place: &Place, policy: &Policy, everything: bool) {
        for (nth, row) in place.rows.iter().enumerate() {
            if everything || policy.balance_row() != Some(nth) {
                self.0.remove(row);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
